"""A file of ours with the right keys and a wrong value: its reader names the file, the place and the cure."""

import copy
import functools
import json
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_damaged_files import counted, panel, recorded, started

from repro import paths
from repro.engine.checkpoint import FINISHED, Checkpoints
from repro.errors import sentence
from repro.files import Unreadable
from repro.protocol.log import Log

NAN = float("nan")


def finished(place: Path) -> tuple[Path, Callable]:
    steps = [{"seed": 0, "step": step, "loss": float("nan"), "updates": 2} for step in range(2)]
    last = {"seed": 0, "step": 2, "accuracy": 0.5, "diverged": False, "flops_train": 1e9}
    run = Checkpoints(place, "a")
    run.finish(Log(steps=steps, evaluations=[last]))
    return place / FINISHED, run.finished


AFTER_ITSELF, AFTER_A_GAP = ([{"seed": 0, "step": step} for step in (0, second)] for second in (0, 2))
NUMBERS = ("x", None, -1, NAN, [1], True)
VALUES = [  # a reader, the place of a value in its file, what it may not be, and the cure that is named
    (counted, "layers", (*NUMBERS, 0, 1.0, "2"), "delete it and run `dvc repro profile`"),
    (started, "accuracy", (*NUMBERS, 1.5), "delete it, and it is measured again"),
    (panel, "arms", (3, [1], None, {"a": 3}), "git checkout it"),
    (finished, "log.steps", (AFTER_ITSELF, AFTER_A_GAP, "x"), "delete it, and the run is made again"),
    (finished, "log.steps.1.loss", ("0.5", None, [1], True), "delete it, and the run is made again"),
    (finished, "log.evaluations.0.accuracy", ("x", 1.5, -1, NAN), "delete it, and the run is made again"),
    pytest.param(recorded, "ledger.queries", NUMBERS, "remove this checkpoint, and the run", marks=pytest.mark.verl),
]


@pytest.mark.parametrize(("made", "place", "values", "cure"), VALUES)
def test_a_wrong_value_is_one_sentence_with_the_file_the_place_and_the_cure(
    made, place, values, cure, tmp_path, monkeypatch
):
    path, read = made(tmp_path)
    monkeypatch.setattr(paths, "PANELS", tmp_path)
    read()
    good = json.loads(path.read_text())
    for value in values:
        path.write_text(json.dumps(with_value(good, place, value)))
        with pytest.raises(Unreadable) as told:
            read()
        said = sentence(told.value)
        assert said.startswith(f"{path} cannot be read ({place}") and f"): {cure}" in said and len(said) < 400, said


def with_value(content: Any, place: str, value: Any) -> Any:
    """A copy of `content`, with `value` at a place such as a.0.b."""
    changed = copy.deepcopy(content)
    *way, last = [int(part) if part.isdecimal() else part for part in place.split(".")]
    functools.reduce(operator.getitem, way, changed)[last] = value
    return changed
