"""The atlas's data: `load("runs")` and `load("curves")` are a table each, joined by the column `run`."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from repro import paths
from repro.errors import Refused
from repro.files import Unreadable, read_parquet

ROWS = "rows_"  # columns of `runs`: how many rows a run has in another table
RATE = "engine.learning_rate"  # what the panels of tuning vary
TABLES = ("runs", "curves", "steps", "batches", "questions", "temperatures", "seconds")


class NoRuns(Refused):
    """One sentence: the atlas lacks the runs that a table is made of."""


def load(table: str, panel: str | None = None, root: Path | None = None, columns: Sequence[str] = ()) -> pd.DataFrame:
    """One table of all panels, or of one: runs (a row per run: panel, policy, arm, seed, what was varied, machine),
    curves (a row per evaluation), steps (per training step), batches (per logged batch, before selection), questions
    (per held-out query at the end), temperatures (per held-out query and temperature, of some panels), seconds (CPU
    seconds by phase). atlas/README.md describes the columns. Empty where nothing has been made yet;
    Unreadable where a file lacks one of `columns`."""
    if table not in TABLES:
        raise ValueError(f"the atlas has no table {table!r}; it has {', '.join(TABLES)}")
    folders = sorted((root or paths.ATLAS_DATA).glob(panel or "*"))
    parts = [part for folder in folders if (part := _of_panel(table, folder, columns)) is not None]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"run": pd.Series(dtype=str)})


def _of_panel(table: str, folder: Path, columns: Sequence[str] = ()) -> pd.DataFrame | None:
    """A panel's table, of all shards; None where none has been made. Unreadable, a ValueError, names the first run
    that has not as many rows as `runs` says, or that is there twice."""
    cure = "git checkout atlas/data"
    parts = [read_parquet(path, cure, ["run", *columns]) for path in sorted(folder.glob(f"{table}*.parquet"))]
    whole = pd.concat(parts, ignore_index=True) if parts else None
    if table == "runs":
        if whole is not None and len(twice := whole["run"][whole["run"].duplicated()]):
            raise Unreadable(f"{folder / table}.parquet has {twice.iloc[0]} twice: `{cure}`")
        return whole
    runs = _of_panel("runs", folder)
    if runs is not None and ROWS + table in runs:
        wanted = runs.set_index("run")[ROWS + table].fillna(0)
        found = whole["run"].value_counts() if whole is not None else pd.Series(dtype=int)
        wrong = wanted[wanted != found.reindex(wanted.index, fill_value=0)]
        if len(wrong):
            run, rows = wrong.index[0], found.get(wrong.index[0], 0)
            raise Unreadable(f"{folder / table}.parquet has {rows} of {wrong.iloc[0]:g} rows of {run}: `{cure}`")
    return whole


def made(panels: Sequence[str], columns: Sequence[str] = ()) -> pd.DataFrame:
    """The runs of `panels`; NoRuns where there is none."""
    parts = [load("runs", panel, columns=columns) for panel in panels]
    runs = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    if runs.empty:
        cures = f"`git checkout atlas/data`, or `make atlas PANEL={panels[0]}`"
        raise NoRuns(f"atlas/data has no run of panel {panels[0]}: {cures}")
    return runs


def whole(runs: pd.DataFrame, where: Sequence[str]) -> pd.DataFrame:
    """Those of `runs` at the places, values of the columns `where`, with as many runs as any, and of the arms with as
    many there as any: the others are still being made."""
    for by in (list(where), ["arm"]):
        sizes = runs.groupby(by)["run"].transform("size")
        runs = runs[sizes == sizes.max()]
    return runs


def varied(runs: pd.DataFrame, key: str, kind: Callable[[Any], Any], otherwise: Any = None) -> pd.Series:
    """What each of `runs` set `key` of params.yaml to, as `kind` makes it. `otherwise`: what runs that do not vary it
    have. Unreadable, a ValueError, names a run that does not say."""
    return pd.Series(
        [_set(*of, key, kind, otherwise) for of in zip(runs["varied"], runs["run"], strict=True)], runs.index
    )


def _set(varied: str, run: str, key: str, kind: Callable[[Any], Any], otherwise: Any) -> Any:
    try:
        value = json.loads(varied).get(key, otherwise)
        if value is not None:
            return kind(value)
    except (AttributeError, TypeError, ValueError):
        pass
    raise Unreadable(f"atlas/data: {run} does not say its {key}: `git checkout atlas/data`")


def of_seeds(
    table: str, panel: str, arms: Sequence[str], seeds: Sequence[int], policy: str | None = None
) -> pd.DataFrame:
    """A table of a panel in which nothing is varied, for `arms` and `seeds`, as repro.stats.runs has those of this
    machine: columns `arm` and `seed` in place of `run`, rows in the order of `arms`. `policy`: the base policy, of a
    panel that has several. `evaluations` means curves. Unreadable, a ValueError, names a run that has not been made."""
    made = load("runs", panel)
    if policy is not None and len(made):
        made = made[made["policy"] == policy]
    wanted = pd.MultiIndex.from_product([arms, seeds], names=["arm", "seed"])
    made = made.set_index(["arm", "seed"])["run"] if len(made) else pd.Series(dtype=str, index=wanted[:0])
    lacking = wanted.difference(made.index, sort=False)
    if len(lacking):
        arm, seed = lacking[0]
        raise Unreadable(f"the atlas's panel {panel} has no run of {arm} with seed {seed}: `make atlas PANEL={panel}`")
    rows = load({"evaluations": "curves"}.get(table, table), panel).set_index("run")
    names = made.loc[wanted]
    if names.duplicated().any() or not names.isin(rows.index).all():
        raise Unreadable(f"the atlas's panel {panel} has runs twice, or without {table}: `git checkout atlas/data`")
    frame = rows.loc[names].reset_index()
    key = names.reset_index().set_index("run")
    frame.insert(0, "arm", frame["run"].map(key["arm"]))
    frame.insert(1, "seed", frame["run"].map(key["seed"]))
    single = frame.select_dtypes("float32")
    return frame.drop(columns="run").astype(dict.fromkeys(single, "float64"))
