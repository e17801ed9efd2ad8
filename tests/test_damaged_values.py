"""A file of ours with the right keys and a wrong value: its reader names the file, the place and the cure."""

import copy
import functools
import json
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_damaged_files import counted, kept_best, language, panel, recorded, seconds, started

from repro import paths
from repro.engine.checkpoint import FINISHED, Checkpoints
from repro.engine.ledger import Ledger
from repro.engine.log import Log
from repro.errors import sentence
from repro.files import Unreadable, write_json

NAN, INFINITY = float("nan"), float("inf")


def finished(place: Path) -> tuple[Path, Callable]:
    steps = [{"seed": 0, "step": step, "loss": float("nan"), "updates": 2} for step in range(2)]
    last = {"seed": 0, "step": 2, "accuracy": 0.5, "diverged": False, "flops_train": 1e9}
    run = Checkpoints(place, "a")
    run.finish(Log(steps=steps, evaluations=[last]))
    return place / FINISHED, run.finished


def spent(place: Path) -> tuple[Path, Callable]:
    from repro.verl.checkpoints import STATE, _spent

    folder = place / "checkpoints" / "global_step_1"
    return write_json({"ledger": Ledger(queries=3).row()}, folder / STATE), lambda: _spent(place, 1)


def profiled_by_verl(place: Path) -> tuple[Path, Callable]:
    from repro.verl import profile

    path = write_json({"policy": "a", "top_p": 1.0}, place / profile.HOW)
    return path, lambda: profile._same(place, {"policy": "a", "top_p": 1.0})


def after(second: int) -> list[dict[str, int]]:
    """Two steps, of which the second should be step 1."""
    return [{"seed": 0, "step": step} for step in (0, second)]


NUMBERS = ("x", None, -1, NAN, [1], True)
VALUES = [  # a reader, the place of a value in its file, what it may not be, and the cure that is named
    (seconds, "seconds_per_sample", NUMBERS, "delete it and run `dvc repro profile`"),
    (counted, "layers", (*NUMBERS, 0, 1.0, "2"), "delete it and run `dvc repro profile`"),
    (started, "accuracy", (*NUMBERS, 1.5), "delete it, and it is measured again"),
    (panel, "arms", (3, [1], None, {"a": 3}), "git checkout it"),
    (language, "threads", (*NUMBERS, 0), "`git checkout runs/language_model`"),
    (finished, "log", (3, None, [], {"steps": 3}, {"nope": []}), "delete it, and the run is made again"),
    (finished, "log.steps", (after(0), after(2), "x"), "delete it, and the run is made again"),
    (finished, "log.steps.1", (3, {}, {"seed": 0}), "delete it, and the run is made again"),
    (finished, "log.steps.1.loss", ("0.5", None, [1], True), "delete it, and the run is made again"),
    (finished, "log.steps.1.step", ("1", -1, 0.5, NAN), "delete it, and the run is made again"),
    (finished, "log.steps.1.updates", ("2", -1, NAN), "delete it, and the run is made again"),
    (finished, "log.evaluations.0.accuracy", ("x", 1.5, -1, NAN), "delete it, and the run is made again"),
    (finished, "log.evaluations.0.diverged", ("no", 0, None), "delete it, and the run is made again"),
    (finished, "log.evaluations.0.flops_train", (NAN, INFINITY, -1.0), "delete it, and the run is made again"),
]
OF_VERL_TOO = [
    (kept_best, "accuracy", (*NUMBERS, 2), "delete .*best, and the next best checkpoint is kept there"),
    (kept_best, "step", (*NUMBERS, 1.5), "delete .*best, and the next best checkpoint is kept there"),
    (recorded, "ledger.queries", NUMBERS, "remove this checkpoint, and the run goes on from an earlier one"),
    (recorded, "log.steps", (3, [3], [{}]), "remove this checkpoint, and the run goes on from an earlier one"),
    (recorded, "sources", (3, None, [{"seed": -1}]), "remove this checkpoint, and the run goes on from an earlier"),
    (spent, "ledger.flops_train", (*NUMBERS, INFINITY), "remove .*global_step_1"),
    (profiled_by_verl, "policy", (3, None, ["a"]), "remove .* to profile again"),
]
CASES = [pytest.param(*case, id=f"{case[0].__name__} {case[1]}") for case in VALUES]
CASES += [pytest.param(*case, id=f"{case[0].__name__} {case[1]}", marks=pytest.mark.verl) for case in OF_VERL_TOO]


@pytest.mark.parametrize(("made", "place", "values", "cure"), CASES)
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
        found = re.fullmatch(rf"{re.escape(str(path))} cannot be read \((.*)\): {cure}.*", said)
        assert found and "\n" not in said and len(said) < 400, (value, said)
        assert re.match(r"(it has no )?" + re.escape(place.rpartition(".")[0] or place), found[1]), (value, said)


def with_value(content: Any, place: str, value: Any) -> Any:
    """A copy of `content`, with `value` at a place such as a.0.b."""
    changed = copy.deepcopy(content)
    *way, last = [int(part) if part.isdecimal() else part for part in place.split(".")]
    functools.reduce(operator.getitem, way, changed)[last] = value
    return changed
