"""Kills of a training process: a tiny run, forked so that it needs no imports, ended at a random moment of its work."""

import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.faults import Fault, Settled, silent

ARMS = ("grpo", "cost-aware", "zvf", "d3s", "sgpo", "random-reward", "adaptive-beta", "random-tokens")
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
STEPS, EVERY = 24, 4  # of a run; between its checkpoints
KILLS = 5  # of one run, before it may end


def tiny_policy(folder: Path) -> Path:
    """A policy of 16 units, untrained but with opinions, so that some of its answers are right."""
    import torch

    from repro.policy.model import build_qwen2, save_policy
    from repro.tasks.tokenizer import build_tokenizer

    if not (folder / "config.json").exists():
        torch.manual_seed(0)
        model = build_qwen2(hidden=16, layers=1, heads=2, max_length=64)
        with torch.no_grad():
            model.model.embed_tokens.weight.mul_(8.0)
        save_policy(model, build_tokenizer(), folder)
    return folder


def tiny_run(arm: str, seed: int, folder: Path, steps: int | None = None) -> Any:
    """A run of an arm on the tiny policy; rewards are coin flips, since it would learn nothing else."""
    from repro import arms, settings
    from repro.engine.run import Run

    whole = settings.load(scale="smoke")
    task = whole.task.model_copy(update={"train_queries": 7, "evaluation_queries": 7})
    sizes = {
        "steps": steps or STEPS,
        "rollouts_per_step": 32 if arm == "sgpo" else 16,
        "minibatch": 8,
        "max_new_tokens": 6,
        "checkpoint_every": EVERY,
    }
    engine = whole.engine.model_copy(update={**sizes, "kl_probe": 8, "log_every": 6, "workers": 1})
    evaluation = whole.evaluation.model_copy(update={"budget_gflops": None, "samples": 1, "final_samples": 1})
    entry = whole.arm(arm).model_copy(update={"reward": ("coin_flip", {})})
    whole = whole.model_copy(
        update={"task": task, "engine": engine, "evaluation": evaluation, "arms": {**whole.arms, arm: entry}}
    )
    place = folder / f"train-{arm}" / f"seed-{seed}"
    return Run(arm, seed, arms.build(arm, entry), whole, tiny_policy(folder / "policy"), None, place, "faults")


def bits(log: Any) -> str:
    """A hash of a log without its seconds; equal only for logs that are equal to the last bit."""
    tables = asdict(log)
    tables.pop("seconds")
    return hashlib.sha256(json.dumps(tables).encode()).hexdigest()[:12]


class Process:
    """A forked process that trains a run; `reached` is the last step that it began."""

    def __init__(self, run: Any, said: Path):
        self.reading, writing = os.pipe()
        self.reached, self.started = -1, time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.setsid()
                os.close(self.reading)
                descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(descriptor, 1)
                os.dup2(descriptor, 2)
                sys.stdout = sys.stderr = os.fdopen(descriptor, "w", buffering=1)
                status = train(run, lambda step, accuracy: os.write(writing, step.to_bytes(4, "big")))
            finally:
                os._exit(status)
        os.close(writing)

    def wait_for(self, step: int) -> None:
        """Until it has begun `step`, or has ended."""
        while self.reached < step and (told := os.read(self.reading, 4)):
            self.reached = int.from_bytes(told, "big")

    def end(self) -> int:
        """Its exit status as in subprocess, when it has ended."""
        self.wait_for(1 << 30)
        os.close(self.reading)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def train(run: Any, progress: Callable[[int, float | None], Any]) -> int:
    """What becomes of a run in a pipeline, as a command line: its exit status."""
    from repro.engine.run import train_one
    from repro.engine.runs import checkpoints_of
    from repro.errors import command

    def main() -> None:
        checkpoints = checkpoints_of(run)
        if checkpoints.finished() is None:
            train_one(run, checkpoints, progress)

    return command(main, name="repro.run")()


def warm_up(folder: Path) -> None:
    """One step here, so that forked processes find imported and compared what they need."""
    import torch
    from transformers.utils import logging

    torch.set_num_threads(1)
    logging.disable_progress_bar()
    train(run := tiny_run("zvf", 0, folder / "warm", steps=1), lambda step, accuracy: None)
    shutil.rmtree(run.folder)


def kills(seed: int, folder: Path, done: int) -> Iterator[Callable[[], list[Fault]]]:
    """Without end, after `done` rows: kills at random moments of a run, then its end, compared with one left alone."""
    rng = np.random.default_rng([seed, 1, done])
    warm_up(folder)
    for number in count(done):
        yield lambda number=number: _one(rng, number, folder)


def _one(rng: np.random.Generator, number: int, folder: Path) -> list[Fault]:
    from repro.engine.runs import checkpoints_of

    arm = ARMS[number % len(ARMS)]
    whole, seconds = alone(arm, number, folder)
    run = tiny_run(arm, number, folder / "killed")
    said, found = folder / "said.txt", []
    for step in np.sort(rng.integers(0, STEPS, size=KILLS)):
        name = SIGNALS[int(rng.integers(len(SIGNALS)))]
        process = Process(run, said)
        process.wait_for(int(step))
        time.sleep(float(rng.uniform(0, seconds / STEPS)))  # anywhere within the step, and its checkpoint
        os.kill(process.pid, getattr(signal, name))
        status = process.end()
        kept, text = _kept(run), said.read_text()
        found.append(
            Fault(
                kind="run",
                target=f"training process, {arm}",
                fault=name,
                at=f"step {process.reached}",
                ended=status != 0,
                said=text,
                lost=max(0, process.reached - kept),
                most=EVERY,
                silent=silent(name, status != 0, text),
            )
        )
        if status == 0:
            break
    if Process(run, said).end() != 0:
        raise RuntimeError(f"the run after the kills fails: {said.read_text()}")
    same = bits(checkpoints_of(run).finished()) == whole
    checkpoints_of(run).remove()
    return [each.settled(Settled(same=same)) for each in found]


def _kept(run: Any) -> int:
    """The step at which the run would be taken up."""
    import torch

    if (run.folder / "finished.json").exists():
        return run.settings.engine.steps
    path = run.folder / "state.pt"
    return torch.load(path, weights_only=True)["step"] if path.exists() else 0


@cache
def alone(arm: str, seed: int, folder: Path) -> tuple[str, float]:
    """The bits of the same run left alone, and its seconds."""
    from repro.engine.runs import checkpoints_of

    run = tiny_run(arm, seed, folder / "alone")
    process = Process(run, folder / "alone.txt")
    process.wait_for(0)
    began = time.monotonic()
    if process.end() != 0:
        raise RuntimeError(f"the run without a kill fails: {(folder / 'alone.txt').read_text()}")
    same = bits(checkpoints_of(run).finished())
    checkpoints_of(run).remove()
    return same, time.monotonic() - began
