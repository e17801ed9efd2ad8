"""Many runs in worker processes: the bits of one process, work ahead that stops when told, failures contained."""

import time

import pytest
import torch
from tiny_run import comparable

from repro.engine.embedded.runs import Run, forget, make_trainer, tables_of, train_runs
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
def policy(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("policy") / "model"
    model = build_qwen2(hidden=16, layers=1, heads=2, max_length=64)
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(8.0)  # a policy with opinions, so that some answers are even right
    save_policy(model, build_tokenizer(), folder)
    return folder


def new_run(arm: str, policy, folder, steps: int, seed: int = 0) -> Run:
    """A run whose rewards are coin flips where it should learn: an untrained policy solves nothing."""
    evaluation = SETTINGS.evaluation.model_copy(update=dict(every=max(10, steps // 4), samples=1, final_samples=1))
    engine = ENGINE.model_copy(update={"steps": steps})
    arms = {**SETTINGS.arms, arm: SETTINGS.arms[arm].model_copy(update={"reward": ("coin_flip", {})})}
    settings = SETTINGS.model_copy(
        update={"task": TASK, "engine": engine, "evaluation": evaluation, "arms": arms}, deep=True
    )
    return Run(arm, seed, settings, policy, None, folder / f"train-{arm}" / f"seed-{seed}", "a")


def here(run: Run, until: int | None = None):
    """The same run in this process, from its last checkpoint to step `until` (None: the end): (trainer, log)."""
    trainer = make_trainer(run)
    stop = (lambda: False) if until is None else lambda: len(trainer.log.steps) >= until
    return trainer, trainer.train(run.checkpoints, lambda *_: None, stop)


def state(run: Run) -> dict:
    return torch.load(run.folder / "state.pt", weights_only=True)


@pytest.mark.slow
def test_work_ahead_is_kept_stops_when_the_wanted_runs_are_done_and_goes_on_with_the_same_bits(policy, tmp_path):
    wanted = [new_run("grpo", policy, tmp_path, steps=200)]
    broken = new_run("gspo", tmp_path / "no policy", tmp_path, steps=10)
    short = new_run("cost-aware", policy, tmp_path, steps=3)
    endless = new_run("d3s", policy, tmp_path, steps=ENDLESS, seed=4)
    lines: list[str] = []
    logs = train_runs(wanted, [broken, short, endless], lines.append)
    assert list(logs) == [("grpo", 0)]  # what fails ahead of its time fails nobody
    assert all(line.startswith("grpo  seed 0  step ") for line in lines) and "200/200" in lines[-1]

    # The wanted run has the bits of one trained in this process, and is not trained a second time.
    _, alone = here(new_run("grpo", policy, tmp_path / "alone", steps=200))
    assert comparable(logs["grpo", 0]) == comparable(alone)
    assert comparable(train_runs(wanted, [endless])["grpo", 0]) == comparable(alone)

    # The short run ahead is finished and taken as it is.
    _, alone = here(new_run("cost-aware", policy, tmp_path / "alone", steps=3))
    assert comparable(short.checkpoints.finished()) == comparable(alone)
    assert not broken.folder.exists() or broken.checkpoints.finished() is None

    # The endless one was stopped on its way: what it left are the bits of one trained alone, also three steps on.
    reached = state(endless)["step"]
    assert 0 < reached < ENDLESS and endless.checkpoints.finished() is None
    again = new_run("d3s", policy, tmp_path / "alone", steps=ENDLESS, seed=4)
    here(again, until=reached)
    assert same_state(endless, again)
    for run in (endless, again):
        here(run, until=reached + 3)
    assert same_state(endless, again) and state(again)["step"] == reached + 3

    forget([*wanted, short, endless])
    assert not (tmp_path / "train-grpo").exists() and not (tmp_path / "train-d3s").exists()


def same_state(first: Run, second: Run) -> bool:
    """Weights, moments, ledger and log, to the bit; seconds aside."""
    one, other = state(first), state(second)
    weights = all(torch.equal(one["model"][name], other["model"][name]) for name in one["model"])
    moments = [[value for part in s["optimiser"]["state"].values() for value in part.values()] for s in (one, other)]
    plain = [{key: s[key] for key in ("step", "diverged", "groups_taken", "ledger")} for s in (one, other)]
    tables = [tables_of_state(s) for s in (one, other)]
    return weights and all(map(torch.equal, *moments)) and plain[0] == plain[1] and tables[0] == tables[1]


def tables_of_state(saved: dict) -> dict:
    from repro.engine.embedded.log import Log

    return comparable(Log(**saved["log"]))


@pytest.mark.slow
def test_a_wanted_run_that_fails_ends_all_at_once(policy, tmp_path):
    good = new_run("grpo", policy, tmp_path, steps=ENDLESS)
    bad = new_run("gspo", tmp_path / "no policy", tmp_path, steps=10)
    started = time.monotonic()
    with pytest.raises(OSError, match="no policy"):
        train_runs([good, bad], say=lambda line: None)
    assert time.monotonic() - started < 120  # the endless run is not waited for


def test_tables_have_a_row_for_every_run_in_order(policy, tmp_path):
    logs = [here(new_run("grpo", policy, tmp_path, steps=2, seed=seed))[1] for seed in (0, 3)]
    tables = tables_of(logs)
    assert list(tables) == ["steps", "evaluations", "questions", "rollouts", "selection", "seconds"]
    assert tables["steps"][["seed", "step"]].to_numpy().tolist() == [[0, 0], [0, 1], [3, 0], [3, 1]]
    assert tables["selection"].groupby("seed").size().to_dict() == {0: 16, 3: 16}
    assert tables["questions"]["query"].tolist() == [*range(7), *range(7)]
