"""The check of a GPU machine: its judgement of what verl logs, everywhere; the check itself, where there is a GPU."""

import os
import subprocess
import sys

import pytest

from repro.verl import gpu_check, ready
from repro.verl.gpu_check import held, main, rewind, run, steps

GRPO = {
    "training/global_step": 1,
    "training/rollout_probs_diff_mean": 0.004,
    "training/rollout_actor_probs_pearson_corr": 0.999,
    "actor/loss": 0.01,
    "arm/trained_tokens": 400,
}
D3S = {"training/global_step": 1, "arm/drawn": 0.25, "actor/entropy": 0.4, "arm/trained_tokens": 100}
RUNS = {
    "evaluation": [],
    "grpo": [GRPO, GRPO],
    "d3s": [D3S | {"arm/generated_tokens": tokens} for tokens in (10, 20, 30)],
    "resume": [{"training/global_step": 3, "arm/generated_tokens": 31}],
    "zvf": [{"rollout_corr/rollout_is_mean": 1.01, "arm/refill_rounds": 1}],
    "flash": [GRPO],
}
WRONG = {
    "grpo": [GRPO, GRPO | {"training/rollout_probs_diff_mean": 0.3}],  # weights that were not sent to vLLM
    "d3s": [D3S | {"arm/drawn": 1.0}],
    "resume": [{"training/global_step": 3, "arm/generated_tokens": 11}],
    "zvf": [{"rollout_corr/rollout_is_mean": 1.3, "arm/refill_rounds": 1}],
    "flash": [GRPO | {"training/rollout_actor_probs_pearson_corr": 0.6}],  # another attention
}


def test_a_step_holds_by_what_verl_logged(tmp_path):
    by_name = {step.name: step for step in steps("a/model", tmp_path)}
    assert list(by_name) == list(RUNS)
    for name, step in by_name.items():
        assert held(step, 0, RUNS, "")[0], name
        assert held(step, 1, RUNS, "first\nCUDA error\n") == (False, "ended with status 1: CUDA error")
        if name in WRONG:
            assert not held(step, 0, RUNS | {name: WRONG[name]}, "")[0], name
    assert not held(by_name["d3s"], 0, RUNS | {"d3s": [D3S | {"arm/trained_tokens": 400}]}, "")[0]
    told = held(by_name["zvf"], 0, RUNS | {"zvf": [{}]}, "")[1]
    assert told == "verl logged too little (KeyError: 'rollout_corr/rollout_is_mean')"
    assert "algorithm.rollout_correction.rollout_is=token" in by_name["zvf"].command


@pytest.mark.verl
def test_every_command_of_the_check_composes(tmp_path, monkeypatch, capsys):
    pytest.importorskip("verl", reason="verl is not installed here: `make extra-verl` installs it")
    from repro.verl.__main__ import main as train

    monkeypatch.setattr(ready, "gpus_here", lambda: 1)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    commands = [step.command for step in steps("a/model", tmp_path)]
    for module, *words in commands:
        if module == "repro.verl":
            train([*words, "--check"])
            assert (
                f"verl accepts a/model with arm {words[words.index('--arm') + 1]}, on 1 node" in capsys.readouterr().out
            )
    assert {module for module, *_ in commands} == {"repro.verl", "repro.evaluation"} and not list(tmp_path.iterdir())


def test_rewinding_leaves_the_run_as_after_an_earlier_step(tmp_path):
    folder = tmp_path / "d3s/seed-0/checkpoints"
    for step in (2, 3):
        (folder / f"global_step_{step}").mkdir(parents=True)
    (folder / "latest_checkpointed_iteration.txt").write_text("3")
    rewind(tmp_path, 2)
    assert sorted(path.name for path in folder.iterdir()) == ["global_step_2", "latest_checkpointed_iteration.txt"]
    assert (folder / "latest_checkpointed_iteration.txt").read_text() == "2"


def test_a_failing_step_and_its_output_are_kept(tmp_path):
    step = gpu_check.Step("broken", ("no_such_module",), "", lambda _: (True, ""), "broken")
    status, log = run(step, tmp_path, 60)
    assert status == 1 and "No module named no_such_module" in (tmp_path / "broken.log").read_text() == log


def test_without_a_gpu_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr(ready, "gpus_here", lambda: 0)
    assert main([]) == gpu_check.NO_GPU
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1 and "there is no GPU here" in told.err


@pytest.mark.gpu
@pytest.mark.verl
def test_the_whole_path_holds_on_this_gpu(tmp_path):
    if ready.gpus_here() == 0:
        pytest.skip("there is no GPU here; on one, this runs what `make gpu-check` does")
    model = os.environ.get("REPRO_GPU_CHECK_MODEL", "HuggingFaceTB/SmolLM2-135M-Instruct")
    command = [sys.executable, "-m", "repro.verl.gpu_check", "--model", model, "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2400)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
