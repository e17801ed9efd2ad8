"""Checkpoints: the state there and back, whole or not at all, never another experiment's."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from repro.engine.checkpoint import FINISHED, Checkpoints
from repro.errors import sentence
from repro.files import Unreadable
from repro.methods.method import Method
from repro.methods.plans import PlannedGroup, Queries
from repro.policy.flops import FlopCounter
from repro.protocol.ledger import Ledger
from repro.protocol.log import Log
from repro.protocol.running_arm import RunningArm


def in_order(queries: Queries, rollouts_per_step: int, rng: np.random.Generator):
    return (PlannedGroup(query, 2) for query in range(len(queries)))


def trainer(seed: int = 0, updates: int = 0):
    """What a checkpoint reads and writes of a Trainer, on a model of six weights."""
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 2, bias=False)
    known = Queries(np.ones(100, int), np.arange(100) % 3, np.full(100, 2))
    state = RunningArm(Method(in_order, *[None] * 6, ""), 0, 4, known)
    state.model, state.optimiser, state.diverged = model, torch.optim.AdamW(model.parameters()), False
    state.ledger, state.log = Ledger(), Log()
    for step in range(updates):
        learn(state, step)
    return state


def learn(state, step: int) -> None:
    state.optimiser.zero_grad()
    (state.model(torch.tensor([1.0, -2.0, 3.0 + step])) ** 2).sum().backward()
    state.optimiser.step()
    state.ledger.charge_update(FlopCounter(10, 1, 4), np.array([5, step + 1]))
    state.plan.fill_step(4)
    state.log.steps.append({"seed": 0, "step": step, "loss": 0.1 + 0.2 * step, "skipped": False})
    state.log.seconds.append({"seed": 0, "step": step, "phase": "update", "seconds": 0.5})


def weights(state) -> list[list[float]]:
    return state.model.weight.tolist()


def test_a_restored_run_goes_on_with_the_same_bits(tmp_path):
    whole = trainer(updates=5)
    Checkpoints(tmp_path / "run", "a").save(trainer(updates=3), 3)
    resumed = trainer(seed=1)
    assert Checkpoints(tmp_path / "run", "a").restore(resumed) == 3
    for step in (3, 4):
        learn(resumed, step)
    assert weights(resumed) == weights(whole)  # AdamW's moments included
    assert resumed.ledger == whole.ledger and resumed.log == whole.log
    assert resumed.plan.taken == whole.plan.taken == 10 and resumed.plan.fill_step(2) == [PlannedGroup(10, 2)]


def killed(path, content):
    """Path.write_bytes, killed half-way."""
    with path.open("wb") as file:
        file.write(b"half of")
    raise KeyboardInterrupt


def test_another_experiments_checkpoint_is_ignored(tmp_path):
    other = Checkpoints(tmp_path, "other settings")
    other.save(trainer(updates=2), 2)
    other.finish(trainer(updates=2).log)
    state = trainer(seed=1)
    before = weights(state)
    mine = Checkpoints(tmp_path, "mine")
    assert mine.restore(state) == 0 and mine.finished() is None
    assert weights(state) == before and state.log == Log() and state.ledger == Ledger()
    mine.save(state, 1)  # and replaced
    assert mine.restore(trainer()) == 1 and other.restore(trainer()) == 0


def test_a_half_written_file_is_never_read(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, "a")
    left_over = tmp_path / ".state.pt.1.partial"  # of a process that was killed
    left_over.write_bytes(b"half of it")
    assert checkpoints.restore(trainer()) == 0
    checkpoints.save(trainer(updates=1), 1)
    assert set(tmp_path.iterdir()) == {tmp_path / "state.pt", left_over}

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(trainer(updates=2), 2)
    assert set(tmp_path.iterdir()) == {tmp_path / "state.pt", left_over}
    resumed = trainer(seed=1)
    assert checkpoints.restore(resumed) == 1 and weights(resumed) == weights(trainer(updates=1))
    checkpoints.save(trainer(updates=2), 2)
    assert checkpoints.restore(resumed) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_a_full_disk_is_one_sentence_and_leaves_the_checkpoint_before_whole(tmp_path):
    """The disk: no file may be larger than a kilobyte."""
    import resource

    checkpoints, usual = Checkpoints(tmp_path, "a"), resource.getrlimit(resource.RLIMIT_FSIZE)
    checkpoints.save(trainer(updates=1), 1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, usual[1]))
    try:
        with pytest.raises(OSError) as full:
            checkpoints.save(trainer(updates=2), 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert sentence(full.value).startswith(f"no space left on the disk of {tmp_path / 'state.pt'}: free some")
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]
    resumed = trainer(seed=1)
    assert checkpoints.restore(resumed) == 1 and weights(resumed) == weights(trainer(updates=1))


@pytest.mark.parametrize("name", ["half", "a pickle"])
def test_a_damaged_checkpoint_is_named_and_never_trained_from(name, tmp_path):
    checkpoints, path = Checkpoints(tmp_path, "a"), tmp_path / "state.pt"
    checkpoints.save(trainer(updates=1), 1)
    whole, pickle = path.read_bytes(), b"cos\nsystem\n(S'true'\ntR."
    path.write_bytes({"half": whole[: len(whole) // 2], "a pickle": pickle}[name])
    with pytest.raises(Unreadable, match=r"state\.pt is cut, or no checkpoint .*: delete it, and the run starts"):
        checkpoints.restore(trainer())


def test_a_finished_log_is_text_that_gives_back_every_bit_and_every_nan(tmp_path):
    checkpoints, log = Checkpoints(tmp_path, "a"), Log()
    log.steps.append({"seed": 0, "loss": 0.1 + 0.2, "kl": float("nan"), "skipped": True, "flops": 1.1e23, "step": 3})
    log.selection.append({"seed": 0, "weight": 1e-300, "family": "sum-2"})
    checkpoints.finish(log)
    assert json.loads((tmp_path / FINISHED).read_text())["fingerprint"] == "a"
    again = checkpoints.finished()
    assert math.isnan(again.steps[0].pop("kl")) and again.selection == log.selection
    assert again.steps == [{"seed": 0, "loss": 0.1 + 0.2, "skipped": True, "flops": 1.1e23, "step": 3}]
    assert [type(value) for value in again.steps[0].values()] == [int, float, bool, float, int]


def test_a_snapshot_is_of_its_step_and_is_whole_or_not_there(tmp_path, monkeypatch):
    checkpoints, state = Checkpoints(tmp_path / "run", "a"), trainer(updates=1)
    then = weights(state)
    checkpoints.keep_snapshot(state.model, 1)
    learn(state, 1)  # what happens to the model later is nothing to the file
    checkpoints.keep_snapshot(state.model, 12)
    kept = {step: load_file(path)["weight"].tolist() for step, path in checkpoints.snapshots().items()}
    assert kept == {1: then, 12: weights(state)} and then != weights(state)

    monkeypatch.setattr(Path, "write_bytes", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.keep_snapshot(trainer().model, 1)
    assert load_file(checkpoints.snapshots()[1])["weight"].tolist() == then and len(checkpoints.snapshots()) == 2
