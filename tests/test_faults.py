"""Faults of benchmarks/faults.py on tiny runs, killed, damaged, on a full disk: one sentence, the same bits."""

import re
import sys
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import fault_disk, fault_files, fault_pipelines, fault_project, fault_runs, faults
from benchmarks.fault_project import steps_lost
from repro.stops import TAKES_UP

ARMS = fault_runs.ARMS
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a path as somebody may have it, and runs of a second."""
    place = tmp_path_factory.mktemp("faults") / "it's a $(folder); ünd so"
    place.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fault_runs, "STEPS", 6)
        patch.setattr(fault_runs, "EVERY", 2)
        patch.setattr(fault_runs, "ARMS", ("cost-aware",))
        fault_runs.warm_up(place)
        yield place
        fault_runs.alone.cache_clear()


def well(row) -> bool:
    return bool(faults.well(pd.DataFrame([asdict(row)])).all()) and row.same is True


def test_kills_at_random_moments_lose_no_bit_and_no_step_beyond_a_checkpoint(folder):
    rows = next(fault_runs.kills(0, folder, 0))()
    assert rows and all(map(well, rows)) and {row.fault for row in rows} <= set(fault_runs.SIGNALS)
    assert all(row.lost <= 2 for row in rows)
    words = {"SIGINT": "interrupted", "SIGTERM": "terminated"}
    told = [row for row in rows if row.fault in words and row.ended]
    assert all(row.silent is False and row.said == f"repro.run: {words[row.fault]}; {TAKES_UP}" for row in told)


def test_every_arm_that_is_killed_is_one_of_params_yaml(folder):
    assert [fault_runs.tiny_run(arm, 0, folder).arm for arm in ARMS] == list(ARMS)


@pytest.mark.parametrize("name", fault_files.RUN_FILES)
def test_a_damaged_checkpoint_is_named_or_harmless(folder, name):
    row = fault_files.file_of_a_run(name, fault_files.RUN_FILES[name], folder)
    assert well(row), row
    assert not row.ended or "delete it, and the run" in row.said


@pytest.mark.parametrize(
    ("name", "place", "sentence"),
    [
        ("full disk", fault_disk.full, r"no space left on the disk of .*state\.pt: free some"),
        ("read-only folder", fault_disk.read_only, "make it writable|permission denied"),
    ],
)
def test_a_disk_that_does_not_take_a_checkpoint_is_one_sentence(folder, name, place, sentence):
    try:
        row = fault_files.folder_of_a_run(name, place, folder)
    except faults.Unavailable as reason:
        pytest.skip(str(reason))
    assert well(row) and row.ended, row
    assert re.search(sentence, row.said), row.said


def test_a_process_that_hides_its_environment_is_an_orphan_all_the_same(folder, monkeypatch):
    monkeypatch.setattr(fault_project, "GONE_SECONDS", 0.0)
    words = ("sh", "-c", "env -i sleep 600 & exec sleep 600")  # as Ray's workers, whose titles overwrite it
    command = fault_project.Command(words, folder, folder, "")
    assert fault_project.until(lambda: len(command.processes()) == 2, 60.0)
    command.process.kill()
    assert command.wait() != 0 and command.left() == 1
    assert fault_project.until(lambda: not command.processes(), 60.0)


def test_an_ending_without_a_sentence_counts_as_a_traceback(folder):
    told = ("repro: x.json is cut: delete it", "ERROR: failed to reproduce 'a'", "'./dvc.lock' is invalid.")
    for words, well_told in [*((each, True) for each in told), ("Killed", False)]:
        command = fault_project.Command(("sh", "-c", 'echo "$0"; exit 1', words), folder, folder, "")
        row = fault_pipelines.ended(command, "cut x.json", "the pipeline").settled(faults.Settled(same=True))
        assert well(row) is well_told and row.ended


def test_a_row_that_is_not_well_is_seen():
    row = faults.Fault("run", "a process, grpo", "SIGKILL", "step 3", True, "a\nb: said", lost=3, most=4)
    assert well(row.settled(faults.Settled(same=True))) and row.settled(faults.Settled(same=True)).said == "b: said"
    for change in ({"lost": 5}, {"orphans": 1}, {"said": faults.TRACE}, {"silent": True}):
        bad = faults.replace(row, **change).settled(faults.Settled(same=True))
        assert not well(bad)
    assert not well(row.settled(faults.Settled(same=False)))
    table = faults.table(pd.DataFrame([asdict(row.settled(faults.Settled(same=False)))]))
    assert "| run | SIGKILL, a process | 1 | 0 | 0 | 0 | 0 | 0 | 1 | 1 |" in table


@pytest.mark.parametrize(
    ("said", "silent"),
    [
        ("repro: train-grpo: terminated; checkpoints are kept", False),
        ("12 steps\nrepro.atlas: interrupted; the same command goes on", False),
        ("grpo  seed 0  step   7/12", True),
        ("", True),
    ],
)
def test_a_kill_that_nobody_speaks_of_is_silent(said, silent):
    assert faults.silent("SIGTERM", True, said) is silent
    assert faults.silent("SIGKILL", True, said) is None and faults.silent("SIGTERM", False, said) is None


def test_the_steps_lost_are_those_told_of_beyond_the_checkpoint():
    said = "grpo  seed 0  step   7/12  accuracy 0.500\ngrpo  seed 1  step   3/12\ngrpo  seed 0  step   9/12, about 3 s"
    kept = {Path("build/train-grpo/seed-0"): 6, Path("build/train-grpo/seed-1"): 4}
    assert steps_lost(said, kept) == 3
    assert steps_lost("x step:2 - loss:0.1\ny step:3 - loss:0.2", {Path("build/verl/grpo"): 1}) == 2
    assert steps_lost("starting the workers, 30 s", kept) is None and steps_lost(said, {}) is None
    row = faults.Fault("stage", "a process", "SIGKILL", "3 s", True, "a sentence", lost=None, most=2)
    assert faults.well(pd.DataFrame([asdict(row)])).all()
