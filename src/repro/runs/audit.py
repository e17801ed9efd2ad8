"""Make some runs of the panels again and compare them with the data in git."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from repro import paths
from repro.protocol.log import Log
from repro.runs import store
from repro.runs.design import Cell, Design, cells, of_language_model
from repro.runs.make import make
from repro.runs.panels import TABLES, asked_of
from repro.stats import panels
from repro.stats.intervals import predicted

CONFIDENCE = 0.95


def chosen(design: Design, count: int, seed: int) -> list[Cell]:
    """`count` of the runs that have data, at random; not of a language model's, which take its package and minutes."""
    made = set(panels.load("runs", root=paths.PANELS)["run"])
    known = [cell for cell in cells(design) if cell.name in made and not of_language_model(design, cell.panel)]
    rows = np.random.default_rng(seed).choice(len(known), size=min(count, len(known)), replace=False)
    return [known[row] for row in sorted(rows)]


def audit(design: Design, of: Sequence[Cell], say: Callable = print) -> pd.DataFrame:
    """A row per run: `bits` (whether its curve, steps and questions are those in git to the last bit), `stored` and
    `again` (final accuracy), and the 95% prediction interval `low` to `high` of a further run of the same arm, from its
    other seeds (NaN with fewer than three)."""
    asked, kept = asked_of(design, of, say), paths.HERE
    with tempfile.TemporaryDirectory() as folder:
        paths.HERE = Path(folder)  # or a run that this machine has made before would be compared, and not today's
        try:
            make(list(asked.values()), say)
            found = store.find(list(asked.values()), store.Need(here=True), say).places
            return pd.DataFrame([_compare(cell, store.log_of(found[one])) for cell, one in asked.items()])
        finally:
            paths.HERE = kept


def _compare(cell: Cell, log: Log) -> dict:
    same = True
    for table in ("curves", "steps", "questions"):
        stored = (
            panels.load(table, cell.panel, root=paths.PANELS)
            .query("run == @cell.name")
            .drop(columns="run")
            .reset_index(drop=True)
        )
        again = pd.DataFrame(getattr(log, TABLES[table]))[list(stored)].astype(stored.dtypes)
        same &= stored.equals(again)
    low, high = prediction(cell)
    stored, again = _final(cell.panel)[cell.name], log.evaluations[-1]["accuracy"]
    return {"run": cell.name, "bits": bool(same), "stored": stored, "again": again, "low": low, "high": high}


def _final(panel: str) -> pd.Series:
    curves = panels.load("curves", panel, root=paths.PANELS)
    return curves.sort_values("step", kind="stable").groupby("run")["accuracy"].last()


def prediction(cell: Cell) -> tuple[float, float]:
    """Of one more run, from the other seeds of its arm."""
    start = cell.name.rsplit("/", 1)[0] + "/"
    final = _final(cell.panel)
    others = final[final.index.str.startswith(start) & (final.index != cell.name)]
    if len(others) < 3:
        return float("nan"), float("nan")
    return tuple(map(float, predicted(others.to_numpy(), 1, CONFIDENCE)[1:]))
