"""The tables of the runs in git, by panel of the design: `load("runs")` and `load("curves")` are a table each, joined
by the column `run`. runs/README.md describes the columns."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from repro import paths
from repro.errors import Refused
from repro.files import Unreadable, read_json, read_parquet
from repro.settings.text import read_mapping
from repro.stored import read_stored

KEY = ("asks", "computes")  # columns of `runs`: what a run is found by (repro.runs.store)
ROWS = "rows_"  # columns of `runs`: how many rows a run has in another table
BASE = "base.parquet"  # in the folder of a base policy
RATE = "engine.learning_rate"  # what the panels of tuning vary
TABLES = (
    "runs",
    "curves",
    "steps",
    "batches",
    "questions",
    "harder",
    "temperatures",
    "seconds",
    "selection",
    "rollouts",
)
NAMES = {"evaluations": "curves"}  # what tables of the engine's log are called here, where it is otherwise
MADE_WITH = {"sections": dict[str, dict], "arms": dict[str, dict]}  # settings.json of a panel: what its runs depend on
RESTING = paths.BUILD / "panels.json"  # {panel: what its pages rest on}, which `dvc repro` writes


class NoRuns(Refused):
    """One sentence: the store lacks the runs that a table is made of."""


def load(table: str, panel: str | None = None, root: Path | None = None, columns: Sequence[str] = ()) -> pd.DataFrame:
    """One table of all panels, or of one: runs (a row per run: panel, policy, arm, seed, what was varied, machine),
    curves (a row per evaluation), steps (per training step), batches (per logged batch, before selection), questions
    (per held-out query at the end), harder (the same of the harder split), temperatures (per held-out query and
    temperature, of some panels), seconds (CPU seconds by phase), selection and rollouts (per rollout of a logged batch,
    of some panels). runs/README.md describes the columns. Empty where nothing has been made yet; Unreadable where a
    file lacks one of `columns`. `root`: by default the tables in git, but where an edit asks for other runs, and the
    store has them, those (repro.runs.resting)."""
    if table not in TABLES:
        raise ValueError(f"runs have no table {table!r}; they have {', '.join(TABLES)}")
    folders = sorted(_in_place(folder, root) for folder in (root or paths.PANELS).glob(panel or "*"))
    parts = [part for folder in folders if (part := _of_panel(table, folder, columns)) is not None]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"run": pd.Series(dtype=str)})


def _in_place(folder: Path, root: Path | None) -> Path:
    view = paths.BUILD / "panels" / folder.name
    return view if root is None and view.is_dir() else folder


def base_of(policy: str) -> pd.DataFrame:
    """What a base policy of the design answers before any training: a row per held-out query of either split (split,
    query, family, samples, successes, tokens, truncated, greedy; repro.runs.policies.answers_of)."""
    return read_parquet(paths.BASE_POLICIES / policy / BASE, "git checkout runs/policies")


def says(names: Sequence[str]) -> str:
    """One line: which runs pages of these panels rest on, where these are not of today's settings, how many of today's
    are missing and how long they take. Empty where all are today's."""
    known = read_json(RESTING, "run `dvc repro manifest`") if RESTING.exists() else {}
    found = {name: known[name] for name in names if known.get(name)}
    if not found:
        return ""
    changed = list(dict.fromkeys(change for of in found.values() for change in of["changed"]))
    more = f" and {len(changed) - 2} more" if len(changed) > 2 else ""
    what = f" ({'; '.join(changed[:2])}{more})" if changed else " (arms or code)"
    names = ("runs", "asked", "missing", "seconds")
    runs, asked, missing, seconds = (sum(of.get(name, 0) for of in found.values()) for name in names)
    line = f"This rests on {runs} runs of {', '.join(found)} that were made with other settings than today's{what}."
    if not missing:
        return line
    lacking = " ".join(name for name, of in found.items() if of.get("missing"))
    cure = f'`make runs PANEL="{lacking}"` makes them'
    return f"{line} {missing} of today's {asked} are missing: {cure}, {in_words(seconds)}."


def in_words(seconds: float) -> str:
    """`about 2.4 h of one core`, `about 12 min of one core`."""
    if seconds > 5400:
        return f"about {seconds / 3600:.1f} h of one core"
    return f"about {max(1, round(seconds / 60))} min of one core"


def baseline() -> str:
    """The arm that the design's panels are compared with, whatever the study's own is."""
    return read_mapping(paths.DESIGN)["baseline"]


def declared(names: Sequence[str]) -> str:
    """One line: the commits in which panels were declared, of those that say it, and which runs they take over."""
    known = read_mapping(paths.DESIGN)["panels"]
    commits = list(dict.fromkeys(known[name]["declared"] for name in names if known[name].get("declared")))
    if not commits:
        return ""
    taken = taken_over([name for name in names if known[name].get("declared")])
    whose = f", but for {len(taken)} that it shares with {' and '.join(taken['of'].unique())}" if len(taken) else ""
    return f"Declared in commit {' and '.join(commits)}, before the first run{whose}."


def taken_over(names: Sequence[str]) -> pd.DataFrame:
    """With column of: those runs of the panels that one above in the design has too, such as the baseline's."""
    order = {name: place for place, name in enumerate(in_order())}
    runs = load("runs").reindex(columns=["run", "panel", "asks", "computes"])
    runs = runs.sort_values("panel", key=lambda panel: panel.map(order), kind="stable")
    runs["of"] = runs.groupby(["asks", "computes"])["panel"].transform("first")
    return runs[runs["of"].notna() & (runs["of"] != runs["panel"]) & runs["panel"].isin(names)]


def in_order() -> list[str]:
    """The panels as the design lists them."""
    return list(read_mapping(paths.DESIGN).get("panels", {})) if paths.DESIGN.exists() else []


def sections_of(panel: str) -> dict[str, dict[str, Any]]:
    """The sections of the settings that a panel's runs were made with, where they vary nothing of them."""
    folder = _in_place(paths.PANELS / panel, None)
    return read_stored(folder / "settings.json", "git checkout it", MADE_WITH)["sections"]


def engine_of(panel: str) -> dict[str, Any]:
    """The section `engine` of them."""
    return sections_of(panel)["engine"]


def _of_panel(table: str, folder: Path, columns: Sequence[str] = ()) -> pd.DataFrame | None:
    """A panel's table, of all shards; None where none has been made. Unreadable, a ValueError, names the first run
    that has not as many rows as `runs` says, or that is there twice."""
    cure = "git checkout runs/panels"
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
        cures = f"`git checkout runs/panels`, or `make runs PANEL={panels[0]}`"
        raise NoRuns(f"runs/panels has no run of panel {panels[0]}: {cures}")
    return runs.drop(columns=list(KEY), errors="ignore")  # the tables that are made of them say nothing of keys


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
    raise Unreadable(f"runs/panels: {run} does not say its {key}: `git checkout runs/panels`")


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
        raise Unreadable(f"panel {panel} has no run of {arm} with seed {seed}: `make runs PANEL={panel}`")
    rows = load(NAMES.get(table, table), panel).set_index("run")
    names = made.loc[wanted]
    if names.duplicated().any() or not names.isin(rows.index).all():
        raise Unreadable(f"panel {panel} has runs twice, or without {table}: `git checkout runs/panels`")
    frame = rows.loc[names].reset_index()
    key = names.reset_index().set_index("run")
    frame.insert(0, "arm", frame["run"].map(key["arm"]))
    frame.insert(1, "seed", frame["run"].map(key["seed"]))
    return widened(frame.drop(columns="run"))


def as_stored(frame: pd.DataFrame) -> pd.DataFrame:
    """In the precision of git: single, but for FLOPs."""
    return frame.astype({name: "float32" for name in frame.select_dtypes("float64") if not name.startswith("flops")})


def widened(frame: pd.DataFrame) -> pd.DataFrame:
    """The same values in double precision, to be computed with."""
    return frame.astype(dict.fromkeys(frame.select_dtypes("float32"), "float64"))
