"""Panels of the design as questions to the store: their cells as runs that are asked for, and their tables for git."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pandas as pd

from repro import paths
from repro.files import read_parquet, write_json, write_parquet
from repro.machine import processor
from repro.protocol.log import Log
from repro.runs import store
from repro.runs.design import Cell, Design, Panel, of_language_model, settings_of
from repro.runs.key import Asked
from repro.runs.make import made_ready
from repro.runs.policies import policy_of
from repro.runs.store import Need, Place
from repro.runs.temperatures import at_temperatures, of_base
from repro.settings import SCHEDULING, WORDS, Settings
from repro.stats import panels
from repro.stored import read_stored

TABLES = {name: name for name in ("steps", "questions", "harder", "seconds")} | {"curves": "evaluations"}  # of the log
CHUNK = 24  # runs between two looks at the clock
# What a panel's runs depend on, as stored next to them to say in words what an edit has changed.
SECTIONS = {
    "task": {"pretraining_queries"},
    "policy": {"shipped"},
    "engine": SCHEDULING,
    "evaluation": set(),
    "profile": set(),
}


def asked_of(design: Design, of: Sequence[Cell], say: Callable = print) -> dict[Cell, Asked]:
    """The run that each cell asks for; cells whose arm is not in params.yaml any more ask for none."""
    found = {}
    for cells, settings in by_setting(design, of):
        policy = policy_of(design, cells[0], say)
        known = [cell for cell in cells if cell.arm in settings.all_arms]
        found |= {cell: Asked(settings, cell.arm, cell.seed, policy) for cell in known}
    return {cell: found[cell] for cell in of if cell in found}


def by_setting(design: Design, of: Sequence[Cell]) -> Iterator[tuple[list[Cell], Settings]]:
    """The cells with equal settings together, and their settings."""
    alike: dict[tuple, list[Cell]] = {}
    for cell in of:
        alike.setdefault(cell.setting, []).append(cell)
    for cells in alike.values():
        yield cells, settings_of(design, cells[0])


def make(
    design: Design,
    of: Sequence[Cell],
    minutes: float | None = None,
    say: Callable = print,
    any_cpu: bool = False,
    again: bool = False,
) -> int:
    """Make the runs of the cells that the store lacks, into this machine's layer, and return their number. A later call
    goes on where this one was cut off. `minutes`: no chunk of runs begins after as many. `any_cpu`: those that are left
    to another kind of CPU too. `again`: also those that git has, unless this machine has made them."""
    began, made = monotonic(), 0
    left = list(of) if again else list(missing(design, of, say))
    left = left if any_cpu or again else of_this_cpu(design, left, say)
    asked = asked_of(design, left, say)
    if again:
        absent = set(store.find(list(asked.values()), Need(here=True), say).absent)
        left = [cell for cell in left if asked[cell] in absent]
    for start in range(0, len(left), CHUNK):
        if minutes is not None and monotonic() - began > 60 * minutes:
            break
        chunk = left[start : start + CHUNK]
        ready(design, chunk, asked, say, again)
        made += len(chunk)
        say(f"{made} of {len(left)} runs made, the last {chunk[-1].name}")
    return made


def of_this_cpu(design: Design, of: Sequence[Cell], say: Callable = print) -> list[Cell]:
    """The cells without those of a seed and base policy of which another kind of processor has made runs in that panel,
    and without those of a panel that repeats what this kind has made. Says how many of a panel are left out."""
    cells = {cell.panel: cell for cell in of}
    cpus = {panel: processor(settings_of(design, cell).engine.device) for panel, cell in cells.items()}
    made, kept = _cpus(), []
    for cell in of:
        cpu = cpus[cell.panel]
        repeated = design.panels[cell.panel].repeats
        theirs = made.get((cell.panel, cell.policy, cell.seed), set()) - {cpu}
        ours = repeated is not None and cpu in made.get((repeated, cell.policy, cell.seed), set())
        if not theirs and not ours:
            kept.append(cell)
    for panel in cells:
        if left := sum(cell.panel == panel for cell in of) - sum(cell.panel == panel for cell in kept):
            say(f"{left} runs of {panel} are left to another kind of CPU than {cpus[panel]}")
    return kept


def _cpus() -> dict[tuple[str, str, int], set[str]]:
    """(panel, policy, seed) → the kinds of CPU that have made its runs."""
    runs = panels.load("runs", root=paths.PANELS)
    if not len(runs):
        return {}
    return runs.groupby(["panel", "policy", "seed"])["cpu"].agg(set).to_dict()


def ready(
    design: Design,
    cells: Sequence[Cell],
    asked: Mapping[Cell, Asked],
    say: Callable = print,
    here: bool = False,
) -> None:
    """Make those of the cells' runs that the store lacks. A panel that repeats another, or is scored at other
    temperatures, asks for runs of this machine, as all do where `here`."""
    for panel, group in groupby(cells, key=lambda cell: cell.panel):
        made_ready([asked[cell] for cell in group], _need(design.panels[panel], here), say)


def _need(entry: Panel, here: bool = False) -> Need:
    tables = ("selection", "rollouts") if entry.rollouts else ()
    return Need(tables, snapshots=bool(entry.temperatures), here=here or entry.repeats is not None)


def missing(design: Design, of: Sequence[Cell], say: Callable = print) -> Iterator[Cell]:
    """The cells whose runs the store lacks; of a panel that is known by names, which its tables in git lack."""
    listed = {name: set(runs_of(name)["run"]) for name in dict.fromkeys(cell.panel for cell in of)}
    by_name = {name for name in listed if design.panels[name].repeats or of_language_model(design, name)}
    others = [cell for cell in of if cell.panel not in by_name]
    asked = asked_of(design, others, say)
    absent = set(store.find(list(asked.values()), say=say).absent)
    for cell in of:
        if (cell.name not in listed[cell.panel]) if cell.panel in by_name else asked[cell] in absent:
            yield cell


def runs_of(panel: str) -> pd.DataFrame:
    """The runs of a panel in git, also before the first."""
    return panels.load("runs", panel, root=paths.PANELS)


def keep(design: Design, of: Sequence[Cell], part: str = "", say: Callable = print) -> list[Cell]:
    """Add the runs of the cells that this machine's layer or another panel has, and their own panel lacks, to tables
    for git, `runs` last: a run listed there counts as made. `part`: a shard's own files. Returns these cells."""
    listed = {cell.panel: set(runs_of(cell.panel)["run"]) for cell in of}
    new = [cell for cell in of if cell.name not in listed[cell.panel]]
    asked, kept = asked_of(design, new, say), []
    for panel, group in groupby(new, key=lambda cell: cell.panel):
        own, entry = list(group), design.panels[panel]
        places = store.find([asked[cell] for cell in own], _need(entry), say).places
        found = {cell: places[asked[cell]] for cell in own if asked[cell] in places}
        here = {cell: place.folder for cell, place in found.items() if place.folder}
        if not found:
            continue
        describe(design, panel)
        if here:
            _append_all(list(here), here, asked, entry, part)
        for cell, place in found.items():
            if not place.folder:
                append_copy(cell, place, part=part)
                append(pd.DataFrame([store.made(place) | cell.facts]), panel, "runs", part)
        kept += found
    store.forget_index()
    return kept


def _append_all(
    cells: Sequence[Cell], folders: Mapping[Cell, Path], asked: Mapping[Cell, Asked], entry: Panel, part: str
) -> None:
    from repro.engine.checkpoint import Checkpoints

    panel, kept = cells[0].panel, {cell: Checkpoints(folder, None) for cell, folder in folders.items()}
    logs = {cell: one.finished() for cell, one in kept.items()}
    tables = tables_of(cells, logs)
    if entry.rollouts:
        tables |= {table: _rows(cells, logs, table) for table in ("selection", "rollouts")}
    if entry.temperatures:
        tables["temperatures"] = scored(cells, [asked[cell] for cell in cells], folders, entry.temperatures)
    for table, frame in tables.items():
        append(frame, panel, table, part)
    facts = [
        {
            **cell.facts,
            **kept[cell].made(),
            **{panels.ROWS + table: (frame["run"] == cell.name).sum() for table, frame in tables.items()},
        }
        for cell in cells
    ]
    append(pd.DataFrame(facts), panel, "runs", part)


def append_copy(
    cell: Cell, place: Place, tables: Sequence[str] = panels.TABLES[1:], part: str = "", root: Path | None = None
) -> None:
    """The rows of a run that a panel in git has, under this cell's name."""
    for table in tables:
        if len(rows := store.rows_in_git(place, table)):
            append(rows.assign(run=cell.name), cell.panel, table, part, root)


def tables_of(cells: Sequence[Cell], logs: Mapping[Cell, Log]) -> dict[str, pd.DataFrame]:
    """The tables of a panel's runs but `runs` and `temperatures`."""
    found = {}
    for table, name in TABLES.items():
        rows = _rows(cells, logs, name)
        if len(rows) or table != "harder":  # a split that not every bed has
            found[table] = rows.drop(columns="prompt", errors="ignore")
    seconds = found["seconds"].groupby(["run", "phase"], sort=False, as_index=False)
    drawn = [batches(pd.DataFrame(logs[cell].selection)).assign(run=cell.name) for cell in cells]
    return found | {"seconds": seconds["seconds"].sum(), "batches": pd.concat(drawn, ignore_index=True)}


def batches(selection: pd.DataFrame) -> pd.DataFrame:
    """A row per logged batch, from the rows of its rollouts: means over its N rollouts of the terms from which every
    cost of Cost-Aware Learning's eq. 8 follows, with |A| in the place of the gradient's norm G and c the tokens of
    prompt and response.

    cost: mean c; square: mean A²; optimal: mean |A|√c; variance: mean |A|·c, absolute: mean |A|. So uniform draws cost
    (Σc)(ΣA²)/(Σ|A|√c)² = cost·square/optimal² times the optimum, draws by |A| absolute·variance/optimal² times.
    silent: share of rollouts with A = 0; correlation: of |A| and c over the batch, NaN where one does not vary.
    """
    rows = []
    for step, batch in selection.groupby("step", sort=True):
        absolute_N, cost_N = batch["advantage"].abs().to_numpy(float), batch["cost"].to_numpy(float)
        vary = np.ptp(absolute_N) > 0 and np.ptp(cost_N) > 0
        rows.append(
            {
                "step": step,
                "rollouts": len(batch),
                "cost": cost_N.mean(),
                "square": (absolute_N**2).mean(),
                "optimal": (absolute_N * np.sqrt(cost_N)).mean(),
                "variance": (absolute_N * cost_N).mean(),
                "absolute": absolute_N.mean(),
                "silent": (absolute_N == 0).mean(),
                "correlation": np.corrcoef(absolute_N, cost_N)[0, 1] if vary else np.nan,
            }
        )
    return pd.DataFrame(rows)


def _rows(cells: Sequence[Cell], logs: Mapping[Cell, Log], name: str) -> pd.DataFrame:
    rows = [{"run": cell.name, **row} for cell in cells for row in getattr(logs[cell], name)]
    return pd.DataFrame(rows).drop(columns="seed", errors="ignore")


def scored(
    cells: Sequence[Cell], asked: Sequence[Asked], folders: Mapping[Cell, Path], samples: Mapping[float, int]
) -> pd.DataFrame:
    """What the runs' policies score at other temperatures, and their base policy, if the panel does not have it yet."""
    each = at_temperatures([(one, folders[cell]) for cell, one in zip(cells, asked, strict=True)], samples)
    frames = [frame.assign(run=cell.name) for cell, frame in zip(cells, each, strict=True)]
    panel, base = cells[0].panel, f"{cells[0].panel}/{cells[0].policy}/base"
    if base not in set(panels.load("temperatures", panel)["run"]):
        frames.append(of_base(asked[0].policy, asked[0].settings, samples).assign(run=base))
    return pd.concat(frames, ignore_index=True)


def append(frame: pd.DataFrame, panel: str, table: str, part: str = "", root: Path | None = None) -> None:
    path = (root or paths.PANELS) / panel / f"{table}{part}.parquet"
    if table not in ("selection", "rollouts"):  # of which the claims' figures are made
        frame = panels.as_stored(frame)
    if path.exists():
        # a kill between two tables leaves rows of runs that are added again
        before = read_parquet(path, "git checkout runs/panels")  # rows of runs listed as made are not made again
        frame = pd.concat([before[~before["run"].isin(frame["run"])], frame], ignore_index=True)
    write_parquet(frame, path)


def describe(design: Design, panel: str) -> None:
    """Store what the panel's runs were made with next to them; an arm that is there already stays as it was made."""
    path = paths.PANELS / panel / "settings.json"
    now = made_with(settings_of(design, Cell(panel, design.panels[panel].policies[0], "", 0)))
    stored = read_stored(path, "git checkout it", panels.MADE_WITH) if path.exists() else now
    if set(now["arms"]) - set(stored["arms"]) or not path.exists():
        write_json(stored | {"arms": now["arms"] | stored["arms"]}, path)


def made_with(settings: Settings) -> dict[str, Any]:
    """{"sections": {name: values}, "arms": {name: parts}} of settings, as stored next to a panel's runs."""
    sections = {name: getattr(settings, name).model_dump(mode="json", exclude=out) for name, out in SECTIONS.items()}
    arms = {name: arm.model_dump(mode="json", exclude=WORDS) for name, arm in settings.all_arms.items()}
    return json.loads(json.dumps({"sections": sections, "arms": arms}))
