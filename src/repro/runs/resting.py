"""What the pages of a panel rest on after an edit of params.yaml or of the design.

A panel's page shows runs in git, which were made with the settings of their day. Where these are today's, nothing is
said. Where an edit asks for others and the store has them all, the panel's tables are put together of those, in
build/panels, which repro.stats.panels reads first. Where it lacks some, the page goes on to show the runs in git and
says so in one line, with what is missing and how long it takes.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from repro import paths
from repro.files import write_json
from repro.policy.shipped import changes
from repro.runs import design as designs
from repro.runs import golden, store
from repro.runs.design import Cell, Design, cells, settings_of
from repro.runs.key import Asked
from repro.runs.panels import append, append_copy, asked_of, made_with, runs_of, tables_of
from repro.settings import SettingsError
from repro.stats import panels
from repro.stored import read_stored


def settle(design: Design, names: Sequence[str], say: Callable[[str], Any] = print) -> dict[str, dict]:
    """{panel: what its pages rest on that is not of today's settings, as repro.stats.panels.says puts into words}; the
    panels' tables are put in place."""
    found = {name: _settled(design, name, say) for name in names}
    write_json(found, panels.RESTING)
    return found


def state(names: Sequence[str]) -> dict[str, str]:
    """What the pages of these panels depend on apart from the files in git: what they say, and which runs they show."""
    asks = {name: paths.BUILD / "panels" / name / "asks.json" for name in names}
    return {name: panels.says([name]) + (path.read_text() if path.exists() else "") for name, path in asks.items()}


def _settled(design: Design, panel: str, say: Callable[[str], Any]) -> dict[str, Any]:
    shutil.rmtree(paths.BUILD / "panels" / panel, ignore_errors=True)
    known, entry = runs_of(panel), design.panels.get(panel)
    if entry is None or entry.repeats or "asks" not in known or known.empty:
        return {}
    try:
        changed = _changed(design, panel)
        if designs.of_language_model(design, panel):  # its model need not be at hand
            return {"runs": len(known), "changed": changed} if changed else {}
        asked = asked_of(design, list(cells(design, [panel])), say)
    except SettingsError as error:
        return {"runs": len(known), "changed": [str(error)]}
    rows = known.set_index("run")[["asks", "computes"]].to_dict("index")
    both = {one: rows[cell.name] for cell, one in asked.items() if cell.name in rows}
    same = both and all(row["asks"] == one.asks for one, row in both.items())
    if same and golden.computes(list(both), say) == [row["computes"] for row in both.values()]:
        return {}  # those in git, arms that params.yaml has no longer among them; others may still be made
    found = store.find(list(asked.values()), say=say)
    if asked and not found.absent:
        _assemble(panel, asked, found.places)
        return {}
    seconds = sum(store.seconds_of(one) for one in found.absent)
    return {
        "runs": len(rows),
        "changed": changed,
        "asked": len(asked),
        "missing": len(found.absent),
        "seconds": seconds,
    }


def _assemble(panel: str, asked: dict[Cell, Asked], places: dict[Asked, store.Place]) -> None:
    """The panel's tables of the runs that today's settings ask for, wherever they are."""
    root = paths.BUILD / "panels"
    of_log = {cell: one for cell, one in asked.items() if places[one].folder}
    if of_log:
        logs = {cell: store.log_of(places[one]) for cell, one in of_log.items()}
        for table, frame in tables_of(list(logs), logs).items():
            append(frame, panel, table, root=root)
    for cell, one in asked.items():
        if places[one].panel:
            append_copy(cell, places[one], ("curves", "steps", "questions", "harder", "seconds", "batches"), root=root)
    append(pd.DataFrame([cell.facts for cell in asked]), panel, "runs", root=root)
    design, first = designs.load(strict=False), next(iter(asked))
    write_json(made_with(settings_of(design, Cell(panel, first.policy, "", 0))), root / panel / "settings.json")
    (root / panel / "asks.json").write_text(json.dumps([one.asks for one in asked.values()]))


def _changed(design: Design, panel: str) -> list[str]:
    """`engine.steps 24, now 30`: each setting that is not what the runs in git were made with."""
    path = paths.PANELS / panel / "settings.json"
    if not path.exists():
        return []
    then = read_stored(path, "git checkout it", panels.MADE_WITH)["sections"]
    now = made_with(settings_of(design, Cell(panel, design.panels[panel].policies[0], "", 0)))["sections"]
    return [
        f"{section}.{key} {_short(before)}, now {_short(value)}" for section, key, before, value in changes(then, now)
    ]


def _short(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else json.dumps(value)
    return text if len(text) <= 24 else "another"
