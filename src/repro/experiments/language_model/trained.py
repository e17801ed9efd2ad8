"""The language model trained by some arms, and the same arms on the base policies that were made here."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from repro.paths import ATLAS_DESIGN
from repro.settings import Statistics
from repro.settings.text import read_mapping
from repro.stats import atlas
from repro.stats.answers import answered
from repro.stats.atlas import NoRuns
from repro.stats.outcomes import paired, reached

PANEL = "language-model"
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
    """A row per run, as `repro.stats.outcomes.reached` has it, of seeds that are whole; NoRuns where that is
    one, which has no interval."""
    rate = read_mapping(ATLAS_DESIGN)["panels"][PANEL]["settings"]["engine"]["learning_rate"]
    runs = atlas.whole(reached([PANEL], rate), ["seed"])
    if runs["seed"].nunique() < 2:
        raise NoRuns(f"panel {PANEL} is whole for one seed alone: `make extra-vllm atlas PANEL={PANEL}`")
    return runs


def compare(baseline: str, statistics: Statistics) -> Trained:
    """Every arm of the panel less the baseline, by each of MEASURES, here and there."""
    groups, runs, here = read_mapping(ATLAS_DESIGN)["groups"], load(), reached([HERE])
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
    each = [list(by_seed) for measure in MEASURES for by_seed in paired(runs, measure, arms, baseline)[:, 0]]
    return Trained(runs, there.assign(each=each), study)


def by_family(runs: pd.DataFrame, arms: Sequence[str]) -> pd.DataFrame:
    """arm, family, seed, accuracy: the share of right answers at the end of each of `runs`, by kind of query."""
    asked = atlas.load("questions", PANEL).merge(runs[["run", "arm", "seed"]], on="run")
    sums = asked[asked["arm"].isin(list(arms))].groupby(["arm", "family", "seed"])[["successes", "samples"]].sum()
    return (sums["successes"] / sums["samples"]).rename("accuracy").reset_index()
