"""The comparison for the same FLOPs as one table: a function of the panels' runs and of params.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from repro.paths import DESIGN
from repro.settings import Settings
from repro.settings.text import read_mapping
from repro.stats import panels
from repro.stats.answers import answered
from repro.stats.outcomes import reached
from repro.stats.tables import intervals

ALIKE, OWN, AGAIN = "one rate for all", "each at its best rate", "each at its best rate, again"
PANELS = {ALIKE: ["budget"], OWN: ["tuned", "tuned-objectives"], AGAIN: ["answers"]}
# Headings of the groups in the design.
FAMILIES = {"Primaries": "primaries", "Controls": "controls-to-tune", "Objectives": "objectives"}
SHOWN = ("Primaries", "Controls")  # on the front page
ALSO = ("grpo-token-mean",)  # there too: what D³S changes apart from its choice
MEASURE = "at_1"  # accuracy when the budget is spent, by the question of panel `budget`


@dataclass(frozen=True)
class Comparison:
    """Runs and answers by study: ALIKE, OWN, and AGAIN, which has other seeds, more base policies and not every arm;
    `titles` of all arms; `families`: their arms, the design's; `areas`: the answers by the area under the curve."""

    runs: Mapping[str, pd.DataFrame]
    answers: Mapping[str, pd.DataFrame]
    areas: Mapping[str, pd.DataFrame]
    families: Mapping[str, list[str]]
    titles: Mapping[str, str]


def compare(settings: Settings, rate: float, best: Mapping[str, float]) -> Comparison:
    """The comparison by MEASURE. `rate`: the one for all. `best`: each arm's own."""
    groups = read_mapping(DESIGN)["groups"]
    families = {name: groups[group] for name, group in FAMILIES.items()}
    shared = reached(PANELS[ALIKE], rate)
    own = at_best(shared, reached(PANELS[OWN], rate), best)
    studies = {ALIKE: shared, OWN: own, AGAIN: reached(PANELS[AGAIN], rate)}
    runs = {name: on_every_policy(of, panels.baseline()) for name, of in studies.items()}
    by_measure = {
        measure: {
            name: answered(of, measure, families, panels.baseline(), settings.statistics) for name, of in runs.items()
        }
        for measure in (MEASURE, "area")
    }
    arms = pd.concat(runs.values())["arm"].unique()
    return Comparison(runs, by_measure[MEASURE], by_measure["area"], families, settings.titles_of(arms))


def at_best(shared: pd.DataFrame, own: pd.DataFrame, best: Mapping[str, float]) -> pd.DataFrame:
    """The runs of each arm at its best rate, from either table; arms without any are left out."""
    both = pd.concat([shared, own], ignore_index=True)
    return both[both["rate"] == both["arm"].map(best)]


def on_every_policy(table: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """The runs of arms that have some on every base policy of the baseline's; the others are still being made."""
    on = table.groupby("arm")["policy"].agg(set)
    return table[table["arm"].isin([arm for arm, own in on.items() if own >= on[baseline]])]


def latest(answers: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Those of AGAIN, and of OWN for arms that AGAIN does not have, in the order of OWN; `study` says which."""
    own, again = (answers[name].assign(study=name) for name in (OWN, AGAIN))
    both = pd.concat([again, own.drop(index=again.index, errors="ignore")])
    return both.loc[own.index.union(again.index, sort=False)]


def said(answers: pd.DataFrame) -> pd.Series:
    """Interval and answer of each arm, as in a table."""
    return pd.Series(intervals(answers, "difference", "+.3f"), answers.index) + " " + answers["answer"]


def table(comparison: Comparison, baseline: str) -> pd.DataFrame:
    """The arms of the front page: at their best rate accuracy, where AGAIN has it, and the differences by both
    measures; then that at the rate for all."""
    last = latest(comparison.answers)
    last = last[last["family"].isin(SHOWN) | last.index.isin(ALSO)]
    mean = comparison.runs[AGAIN].groupby("arm")[MEASURE].mean()
    rates = pd.concat([comparison.runs[AGAIN], comparison.runs[OWN]]).groupby("arm")["rate"].first()
    arms = [baseline, *last.index]
    rows = {
        "arm": [comparison.titles[arm] for arm in arms],
        "learning rate": rates.loc[arms].map("{:g}".format),
        "accuracy": mean.reindex(arms).map("{:.3f}".format, na_action="ignore").fillna("–"),
        "difference at the budget": said(last).reindex(arms).fillna("baseline"),
        "by the area under the curve": said(latest(comparison.areas)).reindex(arms).fillna("baseline"),
        "at the budget, at one rate": said(comparison.answers[ALIKE]).reindex(arms).fillna("–"),
    }
    return pd.DataFrame(rows)
