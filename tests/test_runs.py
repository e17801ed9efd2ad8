"""Many runs in worker processes: the bits of one process, work for later stages, failures contained."""

import subprocess
import sys
import threading
import time
from dataclasses import replace
from multiprocessing import spawn

import pandas as pd
import pytest
import torch
from tiny_run import comparable

from repro import arms as building
from repro import paths
from repro.engine.crew import Crew
from repro.engine.progress import Step
from repro.engine.run import Run, make_trainer
from repro.engine.runs import as_job, checkpoints_of, tables_of, train_runs
from repro.policy.model import build_qwen2, save_policy
from repro.settings import load
from repro.tasks.tokenizer import build_tokenizer

SETTINGS = load(scale="smoke")
TASK = SETTINGS.task.model_copy(update=dict(train_queries=7, evaluation_queries=7))
ENGINE = SETTINGS.engine.model_copy(
    update=dict(rollouts_per_step=16, minibatch=8, max_new_tokens=6, checkpoint_every=1000, kl_probe=0, workers=2)
)
ENDLESS = 100_000  # steps


@pytest.fixture(scope="module")
def policy(tmp_path_factory, tools):
    """The folder of a tiny policy; from now on workers start from the warm process."""
    spawn.set_executable(str(tools / "python"))
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("policy") / "model"
    model = build_qwen2(hidden=16, layers=1, heads=2, max_length=64)
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(8.0)  # a policy with opinions, so that some answers are even right
    save_policy(model, build_tokenizer(), folder)
    return folder


def new_run(arm: str, policy, folder, steps: int, seed: int = 0) -> Run:
    """A run whose rewards are coin flips where it should learn: an untrained policy solves nothing."""
    evaluation = SETTINGS.evaluation.model_copy(update=dict(budget_gflops=None, samples=1, final_samples=1))
    engine = ENGINE.model_copy(update={"steps": steps, "log_every": max(10, steps // 4)})
    arms = {**SETTINGS.arms, arm: SETTINGS.arms[arm].model_copy(update={"reward": ("coin_flip", {})})}
    settings = SETTINGS.model_copy(
        update={"task": TASK, "engine": engine, "evaluation": evaluation, "arms": arms}, deep=True
    )
    method, place = building.build(arm, settings.arms[arm]), folder / f"train-{arm}" / f"seed-{seed}"
    return Run(arm, seed, method, settings, policy, None, place, f"a {seed}")


def alone(run: Run, tmp_path):
    """The log of the same run trained in this process, from its first step."""
    run = replace(run, folder=tmp_path / "alone" / run.arm)
    return comparable(make_trainer(run).train(checkpoints_of(run), lambda *_: None))


@pytest.mark.slow
def test_runs_in_workers_have_the_bits_of_one_process_and_are_not_trained_twice(policy, tmp_path):
    wanted = [new_run("grpo", policy, tmp_path, steps=30), new_run("cost-aware", policy, tmp_path, steps=20)]
    lines, seen = [], []
    logs = train_runs(wanted, say=lines.append, watch=seen.append)
    assert list(logs) == [("grpo", 0), ("cost-aware", 0)]
    steps = [event for event in seen if isinstance(event, Step) and event.arm == "cost-aware"]
    assert [event.step for event in steps] == list(range(21)) and steps[0].measured == {}
    measured = pd.DataFrame([event.measured for event in steps[1:]])
    pd.testing.assert_frame_equal(measured, pd.DataFrame(logs["cost-aware", 0].steps), check_exact=True)
    assert [event.evaluated["accuracy"] for event in steps if event.accuracy is not None] == [
        row["accuracy"] for row in logs["cost-aware", 0].evaluations
    ]
    assert any(line.startswith("grpo  seed 0  step  30/30  accuracy ") for line in lines)
    for run in wanted:
        assert comparable(logs[run.arm, 0]) == alone(run, tmp_path)
    before = time.monotonic()
    assert [comparable(log) for log in train_runs(wanted).values()] == [comparable(log) for log in logs.values()]
    assert time.monotonic() - before < 2.0  # read, not trained: no worker could have started


@pytest.mark.slow
def test_a_wanted_run_that_fails_ends_all_at_once(policy, tmp_path):
    good = new_run("grpo", policy, tmp_path, steps=ENDLESS)
    bad = new_run("gspo", tmp_path / "no policy", tmp_path, steps=10)
    started = time.monotonic()
    with pytest.raises(OSError, match="no policy"):
        train_runs([good, bad], say=lambda line: None)
    assert time.monotonic() - started < 120  # the endless run is not waited for


@pytest.mark.slow
def test_a_run_that_another_process_makes_is_left_to_it_and_read(policy, tmp_path, monkeypatch):
    run = new_run("grpo", policy, tmp_path, steps=3)
    kept, seen, logs, refused = checkpoints_of(run), [], {}, threading.Semaphore(0)
    monkeypatch.setattr("repro.engine.crew.sleep", lambda seconds: refused.release() or time.sleep(seconds))
    right = make_trainer(run).train(checkpoints_of(replace(run, folder=tmp_path / "other")), lambda *_: None)
    asking = threading.Thread(target=lambda: logs.update(train_runs([run], lambda line: None, seen.append)))
    with kept.held() as ours:
        assert ours
        asking.start()
        assert refused.acquire(timeout=60) and refused.acquire(timeout=60)  # it asks again, and trains nothing
        assert asking.is_alive()
        kept.finish(right, {"cpu": "another"})
    asking.join(60)
    assert not asking.is_alive() and comparable(logs["grpo", 0]) == comparable(right)
    assert not [event for event in seen if isinstance(event, Step)] and kept.made() == {"cpu": "another"}


def test_a_plain_script_starts_workers_without_a_guard_of_its_own(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from repro.engine.workers import map_in_workers\nprint(map_in_workers(abs, [-3, 4], 1))\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=paths.ROOT, timeout=120)
    assert done.stdout == "[3, 4]\n", done.stderr


def ends_of(crew: Crew) -> list:
    """Its events until it is idle, steps apart."""
    received = []
    while not crew.idle:
        received += [event for event in crew.events(1.0) if event.kind != "step"]
    return received


def test_a_worker_that_dies_fails_its_run_and_no_other(policy, tmp_path):
    doomed, next_one = new_run("grpo", policy, tmp_path, steps=ENDLESS), new_run("gspo", policy, tmp_path, steps=2)
    crew = Crew(1, [as_job(doomed), as_job(next_one)])
    try:
        while not any(event.kind == "step" for event in crew.events(1.0)):
            pass
        crew._workers[0].process.kill()
        received = ends_of(crew)
    finally:
        crew.terminate()
    assert [(event.job.name.split(",")[0], event.kind) for event in received] == [("grpo", "failed"), ("gspo", "done")]
    assert "grpo, seed 0, was killed (out of memory?)" in str(received[0].value)


def test_tables_have_a_row_for_every_run_in_order(policy, tmp_path):
    runs = [new_run("grpo", policy, tmp_path, steps=2, seed=seed) for seed in (0, 3)]
    logs = [make_trainer(run).train(checkpoints_of(run), lambda *_: None) for run in runs]
    tables = tables_of(logs)
    assert list(tables) == ["steps", "evaluations", "questions", "harder", "rollouts", "selection", "seconds"]
    assert tables["steps"][["seed", "step"]].to_numpy().tolist() == [[0, 0], [0, 1], [3, 0], [3, 1]]
    assert tables["selection"].groupby("seed").size().to_dict() == {0: 16, 3: 16}
    assert tables["questions"]["query"].tolist() == [*range(7), *range(7)]
