"""Make some runs of the atlas again and compare them with its data."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from scipy.stats import t

from repro.atlas.design import Cell, Design, cells
from repro.atlas.run import TABLES, by_setting, policy_of, runs_of, train
from repro.engine.log import Log
from repro.engine.runs import forget
from repro.stats import atlas

CONFIDENCE = 0.95


def chosen(design: Design, count: int, seed: int) -> list[Cell]:
    """`count` of the runs that have data, at random; not of a language model's, which take its package and minutes."""
    made = set(atlas.load("runs")["run"])
    known = [cell for cell in cells(design) if cell.name in made and not design.panels[cell.panel].few_shot]
    rows = np.random.default_rng(seed).choice(len(known), size=min(count, len(known)), replace=False)
    return [known[row] for row in sorted(rows)]


def audit(design: Design, of: Sequence[Cell], say: Callable = print) -> pd.DataFrame:
    """A row per run: `bits` (whether its curve, steps and questions are the atlas's to the last bit), `stored` and
    `again` (final accuracy), and the 95% prediction interval `low` to `high` of a further run of the same arm, from its
    other seeds in the atlas (NaN with fewer than three)."""
    rows = []
    for group, settings in by_setting(design, of):
        runs = runs_of(design, group, settings, policy_of(design, group[0], say))
        logs = train(design, group, runs, say)
        forget(runs)
        rows += [_compare(cell, logs[cell]) for cell in group]
    return pd.DataFrame(rows)


def _compare(cell: Cell, log: Log) -> dict:
    same = True
    for table in ("curves", "steps", "questions"):
        stored = atlas.load(table, cell.panel).query("run == @cell.name").drop(columns="run").reset_index(drop=True)
        again = pd.DataFrame(getattr(log, TABLES[table]))[list(stored)].astype(stored.dtypes)
        same &= stored.equals(again)
    low, high = prediction(cell)
    stored, again = _final(cell.panel)[cell.name], log.evaluations[-1]["accuracy"]
    return {"run": cell.name, "bits": bool(same), "stored": stored, "again": again, "low": low, "high": high}


def _final(panel: str) -> pd.Series:
    curves = atlas.load("curves", panel)
    return curves.sort_values("step", kind="stable").groupby("run")["accuracy"].last()


def prediction(cell: Cell) -> tuple[float, float]:
    """Of one more run: mean ± t · s · √(1 + 1/n) over the other seeds."""
    start = cell.name.rsplit("/", 1)[0] + "/"
    final = _final(cell.panel)
    others = final[final.index.str.startswith(start) & (final.index != cell.name)]
    n = len(others)
    if n < 3:
        return float("nan"), float("nan")
    half = t.ppf((1 + CONFIDENCE) / 2, n - 1) * others.std(ddof=1) * np.sqrt(1 + 1 / n)
    return float(others.mean() - half), float(others.mean() + half)
