"""Weights kept on the way: those of their step, also after a resume."""

import pytest
import torch
from safetensors.torch import load_file
from tiny_run import STEPS, new_trainer, parity, reward_with, run

from repro.arms import build
from repro.engine.checkpoint import Checkpoints
from repro.engine.log import Log
from repro.engine.run import Run
from repro.engine.runs import checkpoints_of, write_results
from repro.settings import load

SETTINGS = load()


@pytest.fixture(autouse=True)
def score_parity(monkeypatch):
    reward_with(monkeypatch, parity)


def trained_for(steps: int, tmp_path, **options):
    """A run of its own that trains `steps` steps and no more."""
    trainer = new_trainer(steps=steps, learning_rate=1e-3, **options)
    run(trainer, Checkpoints(tmp_path / f"alone-{steps}", "a"))
    return trainer.model.state_dict()


def equal(path, state) -> bool:
    kept = load_file(path)
    return kept.keys() == state.keys() and all(torch.equal(kept[name], state[name]) for name in kept)


def test_a_snapshot_holds_the_weights_at_its_step(tmp_path):
    trainer = new_trainer(snapshots=(1, 3, STEPS), learning_rate=1e-3)
    log = run(trainer, checkpoints := Checkpoints(tmp_path / "run", "a"))
    kept = checkpoints.snapshots()
    assert list(kept) == [1, 3, STEPS]
    assert equal(kept[1], trained_for(1, tmp_path)) and equal(kept[3], trained_for(3, tmp_path))
    assert equal(kept[STEPS], trainer.model.state_dict()) and not equal(kept[3], trainer.model.state_dict())
    plain = new_trainer(learning_rate=1e-3)
    assert run(plain, none := Checkpoints(tmp_path / "plain", "a")) == log  # keeping them changes nothing
    assert none.snapshots() == {}


def test_a_resumed_run_leaves_the_same_snapshots_wherever_it_stops(tmp_path):
    """A kill at 3 comes after snapshot 3 and before checkpoint 4: the step is made again and so is the file."""
    options = dict(snapshots=(1, 3, STEPS), learning_rate=1e-3)
    run(new_trainer(**options), whole := Checkpoints(tmp_path / "whole", "a"))
    for stop_at in (1, 3, 4, STEPS):
        checkpoints = Checkpoints(tmp_path / f"cut-{stop_at}", "a")
        with pytest.raises(KeyboardInterrupt):
            run(new_trainer(**options), checkpoints, stop_at)
        run(new_trainer(**options), checkpoints)
        texts = [{step: path.read_bytes() for step, path in c.snapshots().items()} for c in (whole, checkpoints)]
        assert list(texts[0]) == [1, 3, STEPS] and texts[0] == texts[1], stop_at


def test_snapshots_of_another_experiment_are_made_anew(tmp_path):
    run(new_trainer(snapshots=(1, 3), seed=9), Checkpoints(tmp_path / "run", "other"))
    run(new_trainer(snapshots=(1, 3), learning_rate=1e-3), checkpoints := Checkpoints(tmp_path / "run", "mine"))
    assert equal(checkpoints.snapshots()[1], trained_for(1, tmp_path))
    assert equal(checkpoints.snapshots()[3], trained_for(3, tmp_path))


def test_only_the_arms_of_fidelity_have_their_snapshots_written(tmp_path):
    """With the seed in the name, at the steps that the settings want and no other."""
    fidelity = SETTINGS.fidelity.model_copy(update={"snapshot_every": 2, "arms": ["zvf"]})
    engine = SETTINGS.engine.model_copy(update={"steps": 5})
    settings = SETTINGS.model_copy(update={"fidelity": fidelity, "engine": engine})
    for arm in ("zvf", "grpo"):
        method = build(arm, settings.arms[arm])
        runs = [
            Run(arm, seed, method, settings, tmp_path, None, tmp_path / arm / f"seed-{seed}", "a") for seed in (0, 5)
        ]
        for one in runs:
            model = torch.nn.Linear(1, 1)
            for step in (2, 3, 4, 6):  # 3 and 6 are of an earlier experiment
                torch.nn.init.constant_(model.weight, 10 * one.seed + step)
                checkpoints_of(one).keep_snapshot(model, step)
        write_results(runs, [Log(), Log()], tmp_path / "data" / arm, tmp_path / "timings" / arm)
    files = sorted((tmp_path / "data" / "zvf" / "snapshots").iterdir())
    assert {path.name: float(load_file(path)["weight"]) for path in files} == {
        "seed-0-step-2.safetensors": 2.0,
        "seed-0-step-4.safetensors": 4.0,
        "seed-5-step-2.safetensors": 52.0,
        "seed-5-step-4.safetensors": 54.0,
    }
    assert not (tmp_path / "data" / "grpo" / "snapshots").exists()
    assert (tmp_path / "timings" / "zvf" / "seconds.parquet").exists()
    assert not (tmp_path / "data" / "zvf" / "seconds.parquet").exists()


def test_the_first_evaluation_is_the_one_given_and_changes_nothing_else(tmp_path):
    start = {"samples": 32, "accuracy": 0.25, "response_tokens": 6.5, "truncated": 0.125}
    own = run(new_trainer(), Checkpoints(tmp_path / "own", "a"))
    given = run(new_trainer(start=start), Checkpoints(tmp_path / "given", "a"))
    first = given["evaluations"][0]
    assert {name: first[name] for name in start} == start
    assert (first["step"], first["diverged"], first["flops"]) == (0, False, 0.0)
    assert given["evaluations"][1:] == own["evaluations"][1:] and given["questions"] == own["questions"]
    assert given["steps"] == own["steps"]
