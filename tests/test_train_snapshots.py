"""Weights kept on the way: those of their step, also after a resume."""

import pytest
import torch
from safetensors.torch import load_file
from tiny_run import STEPS, new_trainer, parity, reward_with, run

from repro.engine.checkpoint import Checkpoints


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


def test_the_first_evaluation_is_the_one_given_and_changes_nothing_else(tmp_path):
    start = {"samples": 32, "accuracy": 0.25, "response_tokens": 6.5, "truncated": 0.125}
    own = run(new_trainer(), Checkpoints(tmp_path / "own", "a"))
    given = run(new_trainer(start=start), Checkpoints(tmp_path / "given", "a"))
    first = given["evaluations"][0]
    assert {name: first[name] for name in start} == start
    assert (first["step"], first["diverged"], first["flops"]) == (0, False, 0.0)
    assert given["evaluations"][1:] == own["evaluations"][1:] and given["questions"] == own["questions"]
    assert given["steps"] == own["steps"]
