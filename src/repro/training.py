"""Train arms: the function behind every stage, tutorial and notebook cell that asks for runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from repro.plots import live
from repro.policy.shipped import policy_for
from repro.runs import store
from repro.runs.key import Asked, every_seed
from repro.runs.store import Need
from repro.settings import Settings
from repro.stats.panels import in_words
from repro.stats.runs import last_of
from repro.stops import Interrupted
from repro.verl.papers import SCALES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from repro.engine.progress import Watch

TABLES = ("steps", "evaluations", "questions", "rollouts", "selection", "seconds")


class Tables(dict[str, pd.DataFrame]):
    """The tables of runs, by name. A notebook shows how each arm ends; `plot` draws how it got there."""

    def __init__(self, tables: Mapping[str, pd.DataFrame], settings: Settings):
        super().__init__(tables)
        self.settings = settings

    @property
    def ends(self) -> pd.DataFrame:
        """A row per arm: seeds, and means over them when the runs end: accuracy, and what was spent."""
        arms = last_of(self["evaluations"]).groupby("arm", sort=False)
        table = arms[["accuracy", "trained_tokens", "flops"]].mean()
        table.insert(0, "seeds", arms.size())
        return table.rename(index=self.settings.titles_of(table.index))

    def plot(self, title: str = "How accurate for which cost?") -> "Figure":
        """Learning curves over trained tokens and FLOPs, every seed thin."""
        from repro.plots.training import accuracy_curves  # matplotlib, a second

        evaluations = self["evaluations"]
        arms = [name for name in dict.fromkeys(evaluations["arm"]) if name != self.settings.baseline]
        return accuracy_curves(evaluations, arms, self.settings, ["trained_tokens", "flops"], title)

    def _repr_html_(self) -> str:
        rows = ", ".join(f"{name} ({len(table)} rows)" for name, table in self.items())
        return f"<p>Tables: {rows}</p>{self.ends.round(3).to_html() if 'evaluations' in self else ''}"


def asked(settings: Settings, names: Sequence[str] | None = None, policy: Path | None = None) -> list[Asked]:
    """Every seed of the arms `names` (default: those that are trained here) from the base policy of the settings."""
    return every_seed(settings, settings.arms if names is None else names, policy or policy_for(settings))


def made_ready(
    runs: Sequence[Asked], need: Need, say: Callable[[str], Any], watch: "Watch | None" = None
) -> store.Found:
    """Where all of the runs are; those that are missing are made."""
    found = store.find(runs, need, say)
    if found.absent:
        from repro.runs import make  # torch, which what only reads need not wait for

        found = make.made_ready(runs, need, say, watch)
    return found


def train(
    settings: Settings,
    names: Sequence[str] | None = None,
    *,
    tables: Sequence[str] = TABLES,
    snapshots: bool = False,
    here: bool = False,
    policy: Path | None = None,
    say: Callable[[str], Any] = print,
    watch: "Watch | None" = None,
) -> Tables:
    """Every seed of the arms `names` (default: all arms of the settings): their tables, column `arm` in front.

    Runs that the store has are read (repro.runs.store); the others are trained, `engine.workers` at a time, and kept
    there, so that the same call reads them the next time, and one that was cut off goes on. An arm's parts are names or
    functions: see `Settings.with_arms`. At a paper scale they are those that verl has finished.

    tables: of steps, evaluations, questions, rollouts, selection, seconds. snapshots: weights during training, too, of
    the arms that a study of them names (repro.engine.snapshots). here: runs of this machine alone, in full precision.
    policy: the folder of the base policy; by default that of the settings. say, watch: are given progress, in lines
    and in events (`repro.engine.runs.train_runs`); by default a terminal prints lines and a cell draws curves
    (repro.plots.live). SettingsError before the first step if an arm cannot be built.
    """
    names = list(settings.arms if names is None else names)
    if settings.scale in SCALES:
        return Tables(_on_verl(settings, names, tables), settings)
    if say is print and watch is None and live.in_a_cell():
        watch = live.LiveCurves(settings.titles_of(names))
        say = watch.say
    wanted = asked(settings, names, policy)
    kept = tuple(name for name in tables if name not in store.PLAIN)
    try:
        found = made_ready(wanted, Need(kept, snapshots, here), say, watch)
    except KeyboardInterrupt as stop:
        raise (Interrupted() if live.in_a_cell() else stop) from None
    return Tables(store.tables([(one, found.places[one]) for one in wanted], tables), settings)


def weights(settings: Settings, names: Sequence[str], say: Callable[[str], Any] = print) -> dict[tuple[str, int], Path]:
    """{(arm, seed): the folder with its snapshots}; runs without are made."""
    wanted = asked(settings, names)
    found = made_ready(wanted, Need(snapshots=True), say)
    return {(one.arm, one.seed): found.places[one].folder for one in wanted}


@dataclass(frozen=True)
class Study:
    """What is compared across arms. settings: those given, `more_arms` less those without runs. in_git: arms whose runs
    are all in git. lacking: one line, which runs are missing and how long they take; empty if there are none."""

    settings: Settings
    tables: dict[str, pd.DataFrame]
    in_git: list[str]
    lacking: str


def study(
    settings: Settings,
    names: Sequence[str] | None = None,
    *,
    tables: Sequence[str] = store.PLAIN,
    say: Callable[[str], Any] = print,
) -> Study:
    """Tables of the arms that are trained here, made where they are missing, and of those of `more_arms` whose runs are
    there: compared arms first, then those with seeds of their own. `names`: of these arms alone."""
    wanted = list(settings.all_arms if names is None else names)
    if settings.scale in SCALES:
        alone = settings.model_copy(update={"more_arms": {}})
        return Study(alone, train(alone, [name for name in wanted if name in alone.arms], tables=tables), [], "")
    more = [name for name in settings.more_arms if name in wanted]
    absent = store.find(asked(settings, more), say=say).absent
    known = {name: settings.more_arms[name] for name in more if name not in {one.arm for one in absent}}
    settings = settings.model_copy(update={"more_arms": known})
    compared = [name for name in settings.compared_arms if name in wanted]
    runs = asked(settings, [*compared, *(name for name in settings.arms if name in wanted and name not in compared)])
    places = made_ready(runs, store.ANY, say).places
    here = {one.arm for one, place in places.items() if place.folder}
    in_git = [name for name in dict.fromkeys(one.arm for one in runs) if name not in here]
    return Study(settings, store.tables([(one, places[one]) for one in runs], tables), in_git, _lacking(absent))


def where(settings: Settings) -> pd.DataFrame:
    """A row per run of the arms that are trained here: arm, seed, layer (a panel in git, or here), and when and on what
    it was made (cpu, torch, commit, dirty, date). Runs that are missing are left out."""
    rows = []
    for one, place in store.find(asked(settings)).places.items():
        made = store.made(place)
        kept = {name: made.get(name) for name in ("cpu", "torch", "commit", "dirty", "date")}
        rows.append({"arm": one.arm, "seed": one.seed, "layer": place.panel or "here", **kept})
    return pd.DataFrame(rows)


def sample(settings: Settings) -> list[str]:
    """The arms whose runs are made on this machine even where git has them, since a study needs them here: their
    weights during training, or what another engine is compared with. They tell whether the machine agrees with git."""
    studied = (settings.baseline, *settings.fidelity.arms, *settings.drift.arms, *settings.parity.arms)
    return [name for name in settings.compared_arms if name in studied]


def _lacking(absent: Sequence[Asked]) -> str:
    if not absent:
        return ""
    missing = dict.fromkeys(one.arm for one in absent)
    takes = in_words(sum(map(store.seconds_of, absent)))
    return (
        f"{len(missing)} arms of more_arms have no runs at these settings and are left out: "
        f"`python -m repro.runs train --more` makes the {len(absent)} that are missing, {takes}."
    )


def _on_verl(settings: Settings, names: Sequence[str], tables: Sequence[str]) -> dict[str, pd.DataFrame]:
    from repro.verl.seeds import finished_tables

    parts = {name: finished_tables(name, settings) for name in names}
    whole = {}
    for table in tables:
        frames = [part[table] for part in parts.values()]
        for name, frame in zip(parts, frames, strict=True):
            frame.insert(0, "arm", name)
        whole[table] = pd.concat(frames, ignore_index=True)
    return whole
