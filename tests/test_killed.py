"""A training process that is killed, and started again: the run ends with the bits of one left alone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from tiny_run import comparable

from repro.arms import build
from repro.engine.run import Run, train_one
from repro.engine.runs import checkpoints_of
from repro.errors import command
from repro.policy.model import build_qwen2, save_policy
from repro.settings import load
from repro.stops import TAKES_UP
from repro.tasks.tokenizer import build_tokenizer

ARM, STEPS, EVERY = "cost-aware", 12, 3  # of a run; between its checkpoints
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def run_in(folder: Path, policy: Path) -> Run:
    """A run of a second; rewards are coin flips, since an untrained policy solves nothing."""
    settings = load(scale="smoke")
    sizes = dict(steps=STEPS, rollouts_per_step=16, minibatch=8, max_new_tokens=6, checkpoint_every=EVERY)
    entry = settings.arm(ARM).model_copy(update={"reward": ("coin_flip", {})})
    parts = {
        "task": settings.task.model_copy(update=dict(train_queries=7, evaluation_queries=7)),
        "engine": settings.engine.model_copy(update=sizes | dict(kl_probe=8, log_every=4)),
        "evaluation": settings.evaluation.model_copy(update=dict(budget_gflops=None, samples=1, final_samples=1)),
        "arms": settings.arms | {ARM: entry},
    }
    return Run(ARM, 0, build(ARM, entry), settings.model_copy(update=parts), policy, None, folder, "a")


def train(folder: str, policy: str) -> int:
    """What the process does: it says each step that it begins, and waits for a line before it goes on."""
    run = run_in(Path(folder), Path(policy))

    def main() -> None:
        train_one(run, checkpoints_of(run), say)

    return command(main, name="train")()


def say(step: int, accuracy: float | None) -> None:
    print(step, flush=True)
    sys.stdin.readline()


def kill(number: int, at: int, wait: float, *folders: Path) -> tuple[list[int], int, str]:
    """Train in a process that gets signal `number`, `wait` seconds after it began step `at`: the steps that it began,
    its status, what it said."""
    code = "import sys, test_killed; sys.exit(test_killed.train(*sys.argv[1:]))"
    places = os.pathsep.join(str(ROOT / name) for name in ("src", "tests", "."))
    environment, pipe = {**os.environ, "PYTHONPATH": places}, subprocess.PIPE
    words = [sys.executable, "-c", code, *map(str, folders)]
    with subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        begun: list[int] = []
        for line in process.stdout:
            begun.append(int(line))
            process.stdin.write("\n")
            process.stdin.flush()
            if begun[-1] == at:
                time.sleep(wait)
                process.send_signal(number)
                break
        begun += map(int, process.stdout)
        return begun, process.wait(), process.stderr.read()


def test_a_killed_run_goes_on_from_its_checkpoint_and_ends_with_the_same_tables(tmp_path):
    """Killed at a step's beginning, then terminated within one."""
    torch.manual_seed(0)
    model = build_qwen2(hidden=16, layers=1, heads=2, max_length=64)
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(8.0)  # a policy with opinions, so that some answers are even right
    policy = tmp_path / "policy"
    save_policy(model, build_tokenizer(), policy)
    whole = run_in(tmp_path / "alone", policy)
    alone = comparable(train_one(whole, checkpoints_of(whole), lambda *_: None))
    run, first = run_in(tmp_path / "run", policy), 0
    for number, at, wait in ((signal.SIGKILL, 4, 0.0), (signal.SIGTERM, 10, 0.03)):
        begun, status, said = kill(number, at, wait, run.folder, policy)
        assert begun[:1] == [first] and begun[-1] in (at, at + 1), said
        assert checkpoints_of(run).finished() is None
        if number == signal.SIGTERM:
            assert status == 143 and said.splitlines()[-1] == f"train: terminated; {TAKES_UP}"
        else:
            assert status == -number
        first = EVERY * (at // EVERY)  # the last checkpoint: at most as many steps are lost
    steps: list[int] = []
    log = train_one(run, checkpoints_of(run), lambda step, accuracy: steps.append(step))
    assert steps[0] == first and comparable(log) == alone
    assert comparable(checkpoints_of(run).finished()) == alone
