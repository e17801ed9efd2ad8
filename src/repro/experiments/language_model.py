"""The language model trained by some arms, and the same arms on the base policies that were made here."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from repro.paths import DESIGN
from repro.settings import Statistics
from repro.settings.text import read_mapping
from repro.stats import outcomes, panels
from repro.stats.answers import answered
from repro.stats.panels import NoRuns

PANEL = "language-model"
BATCHES = "language-model-batches"  # the baseline on batches of as many rollouts as a quarter keeps
SMALL = "grpo-small"  # what its runs are called here
HERE = "answers"  # the panel of base policies that were made here, each arm at its best rate
MEASURES = {"at_1": "when the budget is spent", "area": "area under the curve"}
FAMILIES = {"Primaries": "primaries", "Controls": "controls-to-tune", "Objectives": "objectives"}


@dataclass(frozen=True)
class Trained:
    """runs: of seeds that every arm has. answers: a row per measure and arm, the columns of
    `repro.stats.answers.answered`, and each, the list of its differences by seed. here: the same of panel HERE."""

    runs: pd.DataFrame
    answers: pd.DataFrame
    here: pd.DataFrame


def load() -> pd.DataFrame:
    """A row per run, as `repro.stats.outcomes.reached` has it, of seeds that are whole; NoRuns where that is one,
    which has no interval."""
    return _seeds(panels.whole(outcomes.reached([PANEL], _rate()), ["seed"]), PANEL)


def compare(baseline: str, statistics: Statistics) -> Trained:
    """Every arm of the panel less the baseline, by each of MEASURES, here and there."""
    groups, runs, here = read_mapping(DESIGN)["groups"], load(), outcomes.reached([HERE])
    families = {
        name: [arm for arm in groups[group] if arm in set(runs["arm"]) & set(here["arm"])]
        for name, group in FAMILIES.items()
    }
    there, study = (
        pd.concat(
            [answered(of, measure, families, baseline, statistics).assign(measure=measure) for measure in MEASURES]
        ).reset_index()
        for of in (runs, here)
    )
    arms = [arm for members in families.values() for arm in members]
    each = [list(by_seed) for measure in MEASURES for by_seed in outcomes.paired(runs, measure, arms, baseline)[:, 0]]
    return Trained(runs, there.assign(each=each), study)


def with_small_batches(runs: pd.DataFrame) -> pd.DataFrame:
    """`runs`, and those of panel BATCHES with the same seeds, whose arm is called SMALL. NoRuns for a single seed."""
    small = outcomes.reached([BATCHES], _rate())
    own = _seeds(small[small["seed"].isin(runs["seed"])], BATCHES)
    return pd.concat([runs, own.assign(arm=SMALL)], ignore_index=True)


def differences(runs: pd.DataFrame, pairs: Sequence[tuple[str, str]], statistics: Statistics) -> pd.DataFrame:
    """arm, reference, measure, difference, difference_low, difference_high, p (uncorrected): arm less reference, of
    each of `pairs` and by each of MEASURES, over seeds."""
    rows = []
    for arm, reference in pairs:
        for measure in MEASURES:
            fit = outcomes.compare(runs, measure, [arm], reference)
            ends = (fit.estimate_A, *fit.interval(statistics.confidence), fit.p_values())
            names = ("difference", "difference_low", "difference_high", "p")
            known = {"arm": arm, "reference": reference, "measure": measure}
            rows.append(known | {name: float(end[0]) for name, end in zip(names, ends, strict=True)})
    return pd.DataFrame(rows)


def by_family(runs: pd.DataFrame, arms: Sequence[str]) -> pd.DataFrame:
    """arm, family, seed, accuracy: the share of right answers at the end of each of `runs`, by kind of query."""
    asked = panels.load("questions", PANEL).merge(runs[["run", "arm", "seed"]], on="run")
    sums = asked[asked["arm"].isin(list(arms))].groupby(["arm", "family", "seed"])[["successes", "samples"]].sum()
    return (sums["successes"] / sums["samples"]).rename("accuracy").reset_index()


def work(panel: str, runs: pd.DataFrame) -> pd.DataFrame:
    """A row per arm (the index), means over `runs` of the panel when they end: steps, rollouts, trained_tokens;
    updates, the share of its FLOPs that updates take; response_tokens of held-out queries; silent, the share of groups
    without signal, over the whole run; kl to the base policy, in nats per token, at the last step that was probed."""
    known = runs[["run", "arm"]]
    curves = known.merge(panels.load("curves", panel), on="run").sort_values("step", kind="stable")
    steps = known.merge(panels.load("steps", panel), on="run").sort_values("step", kind="stable")
    ends, probed = curves.groupby("run").last(), steps.groupby("run")
    table = ends[["rollouts", "trained_tokens", "response_tokens"]].assign(
        steps=ends["step"],
        updates=ends["flops_train"] / ends["flops"],
        silent=probed["groups_without_signal"].mean(),
        kl=probed["kl"].last(),
    )
    return table.groupby(known.set_index("run")["arm"]).mean()


def _rate() -> float:
    """The learning rate of both panels, which vary none."""
    return read_mapping(DESIGN)["panels"][PANEL]["settings"]["engine"]["learning_rate"]


def _seeds(runs: pd.DataFrame, panel: str) -> pd.DataFrame:
    """`runs`, of two seeds or more."""
    if runs["seed"].nunique() < 2:
        raise NoRuns(f"panel {panel} is whole for one seed alone: `git checkout runs/panels/{panel}`")
    return runs
