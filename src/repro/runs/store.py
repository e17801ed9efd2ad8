"""The one store of runs: what is there under a key is read, and nothing is refused.

First layer: runs/panels, in git, tables by panel of the design (repro.stats.panels). Second: runs/here, a folder for
each run that this machine made, or that was copied from another: its name begins with arm and seed and ends with the
key; `run.json` has its log and where and when it was made; and weights lie next to where a study of the policy in
training asked for them. A run is found by what it asks for (repro.runs.key) and what its code computes
(repro.runs.golden), on whatever kind of CPU it was made.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from repro import paths
from repro.engine.checkpoint import FINISHED, Checkpoints
from repro.files import Unreadable
from repro.machine import hardware, slug
from repro.protocol.log import Log
from repro.runs import golden
from repro.runs.key import Asked
from repro.stats import panels
from repro.stats.panels import ROWS

PLAIN = ("evaluations", "steps", "questions")  # tables that every run has
RUN = ["arm", "seed"]
MEASURED = "default"  # the panel whose seconds tell how long runs that are missing take


@dataclass(frozen=True)
class Place:
    """Where a run is: a folder of this machine's layer, or a panel in git and its name there."""

    folder: Path | None = None
    panel: str = ""
    run: str = ""


@dataclass
class Found:
    """`places`: of the runs that are there, in the order asked; `absent`: the others."""

    places: dict[Asked, Place]
    absent: list[Asked]


@dataclass(frozen=True)
class Need:
    """What a run must have, to count as there. tables: of the log, besides PLAIN; snapshots: the weights during
    training that a study of its arm wants; here: made on this machine, or on one of its kind of CPU, in full
    precision."""

    tables: tuple[str, ...] = ()
    snapshots: bool = False
    here: bool = False


ANY = Need()


def find(asked: Sequence[Asked], need: Need = ANY, say: Callable[[str], Any] = print) -> Found:
    """Which of the runs are there, and where. Golden steps are made of those alone that may be."""
    known = [one for one in asked if _was_asked(one)]
    names = zip(known, golden.computes(known, say), strict=True)
    places = {one: _committed(one, name, need) or _made_here(one, name, need) for one, name in names}
    there = {one: place for one, place in places.items() if place}
    return Found(there, [one for one in asked if one not in there])


def _was_asked(one: Asked) -> bool:
    """Whether there is a run of these settings, whatever its code computed."""
    return one.asks in _index() or any(paths.HERE.glob(f"{_stem(one, '')}*"))


def checkpoints_for(asked: Asked, computes: str) -> Checkpoints:
    """Where a run that is made here keeps its state, and what it ends with."""
    return Checkpoints(paths.HERE / f"{_stem(asked, computes)}-{slug(hardware()['cpu'])}", f"{asked.asks} {computes}")


def tables(places: Iterable[tuple[Asked, Place]], names: Sequence[str] = PLAIN) -> dict[str, pd.DataFrame]:
    """{name: table} of runs, columns `arm` and `seed` in front, rows in the order asked. Where some runs are in git,
    which keeps single precision (FLOPs apart), all figures have it."""
    listed = list(places)
    return {name: _table(listed, name) for name in names}


def _table(places: Sequence[tuple[Asked, Place]], name: str) -> pd.DataFrame:
    parts, single = [], any(place.panel for _, place in places)
    for one, place in places:
        part = rows_in_git(place, name) if place.panel else pd.DataFrame(getattr(log_of(place), name))
        part = part.drop(columns=[column for column in (*RUN, "run") if column in part])
        part = panels.widened(panels.as_stored(part) if single and not place.panel else part)
        part.insert(0, "arm", one.arm)
        part.insert(1, "seed", one.seed)
        parts.append(part)
    whole = pd.concat(parts, ignore_index=True)
    return whole.drop(columns="prompt", errors="ignore") if name == "questions" else whole


@cache
def _by_run(panel: str, table: str) -> dict[str, pd.DataFrame]:
    return dict(iter(panels.load(table, panel, root=paths.PANELS).groupby("run", sort=False)))


def made(place: Place) -> dict:
    """Where and when a run was made: cpu, torch, commit, dirty, date."""
    if place.folder:
        return Checkpoints(place.folder, None).made()
    return panels.load("runs", place.panel).set_index("run").loc[place.run].to_dict()


def rows_in_git(place: Place, table: str) -> pd.DataFrame:
    """A panel's rows of one run, as they are stored; none where the panel has no such table."""
    return _by_run(place.panel, panels.NAMES.get(table, table)).get(place.run, pd.DataFrame())


def log_of(place: Place) -> Log:
    """The log of a run in this machine's layer. Unreadable, with the cure, where there is none."""
    log = Checkpoints(place.folder, None).finished()
    if log is None:
        raise Unreadable(f"{place.folder / FINISHED} is no log of a run: delete it, and the run is made again")
    return log


def _committed(asked: Asked, computes: str, need: Need) -> Place | None:
    """The run in git, of the first panel that has it."""
    if need.snapshots or need.here:
        return None
    for row in _index().get(asked.asks, ()):
        has = (row.get(f"{ROWS}{panels.NAMES.get(name, name)}", 0) > 0 for name in need.tables)
        if row["computes"] == computes and all(has):
            return Place(panel=row["panel"], run=row["run"])
    return None


@cache
def _index() -> dict[str, list[dict]]:
    """{asks: rows of `runs`} of every panel, in the order of the design's file."""
    runs = panels.load("runs", root=paths.PANELS)  # those in git, whatever a page shows in their place
    if "asks" not in runs:
        return {}
    known: dict[str, list[dict]] = {}
    order = {panel: place for place, panel in enumerate(panels.in_order())}
    rows = sorted(runs.fillna(0).to_dict("records"), key=lambda row: order.get(row["panel"], len(order)))
    for row in rows:
        known.setdefault(row["asks"], []).append(row)
    return known


def forget_index() -> None:
    """Read the panels again when asked next: some have been written."""
    _index.cache_clear()
    _by_run.cache_clear()


def _made_here(asked: Asked, computes: str, need: Need) -> Place | None:
    """The run in this machine's layer; that of its own kind of CPU before one of another."""
    own = checkpoints_for(asked, computes).folder
    others = () if need.here else sorted(paths.HERE.glob(f"{_stem(asked, computes)}-*"))
    for folder in (own, *others):
        wanted = set(asked.settings.snapshots_of(asked.arm)) if need.snapshots else set()
        if (folder / FINISHED).exists() and wanted <= set(Checkpoints(folder, None).snapshots()):
            return Place(folder)
    return None


def _stem(asked: Asked, computes: str) -> str:
    return f"{asked.arm}-{asked.seed}-{asked.asks}-{computes[:8]}"


def seconds_of(asked: Asked) -> float:
    """How long a run takes: for each rollout and token that it may draw, as long as those of panel MEASURED."""
    engine, share = asked.settings.engine_of(asked.arm), 1.0
    if engine.stop_gflops and (bill := asked.settings.evaluation.bill_gflops):
        share = engine.stop_gflops / bill
    return _each() * engine.steps * engine.rollouts_per_step * engine.max_new_tokens * share


@cache
def _each() -> float:
    """Seconds for a rollout and a token of the longest response allowed."""
    seconds, steps = panels.load("seconds", MEASURED), panels.load("steps", MEASURED)
    whole, rollouts = seconds.groupby("run")["seconds"].sum(), steps.groupby("run")["rollouts"].max()
    return float((whole / rollouts).median() / panels.engine_of(MEASURED)["max_new_tokens"])
