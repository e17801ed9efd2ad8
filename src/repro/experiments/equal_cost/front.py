"""The comparison for the same FLOPs as one table and one figure, for the report and the front page: a function of the
atlas's runs and of params.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from repro.experiments.equal_cost import compared, plot
from repro.paths import ATLAS_DESIGN
from repro.settings import Settings
from repro.settings.text import read_mapping
from repro.stats.tables import intervals

ALIKE, OWN = "one rate for all", "each at its best rate"
PANELS = {ALIKE: ["budget"], OWN: ["tuned", "tuned-objectives"]}
# Headings of the groups in the design.
FAMILIES = {"Primaries": "primaries", "Controls": "controls-to-tune", "Objectives": "objectives"}
SHOWN = ("Primaries", "Controls")  # on the front page
ALSO = ("grpo-token-mean",)  # there too: what D³S changes beside its choice
MEASURE = "at_1"  # accuracy when the budget is spent, by the question of panel `budget`


@dataclass(frozen=True)
class Comparison:
    """Runs and answers by rate, ALIKE and OWN; `titles` of all arms; `families`: their arms, the design's."""

    runs: Mapping[str, pd.DataFrame]
    answers: Mapping[str, pd.DataFrame]
    families: Mapping[str, list[str]]
    titles: Mapping[str, str]


def compare(settings: Settings, rate: float, best: Mapping[str, float]) -> Comparison:
    """The comparison by MEASURE. `rate`: the one for all. `best`: each arm's own."""
    groups = read_mapping(ATLAS_DESIGN)["groups"]
    families = {name: groups[group] for name, group in FAMILIES.items()}
    shared = compared.runs(PANELS[ALIKE], rate)
    own = compared.at_best(shared, compared.runs(PANELS[OWN], rate), best)
    shared, own = (compared.on_every_policy(runs, settings.baseline) for runs in (shared, own))
    answers = {
        name: compared.answers(runs, MEASURE, families, settings.baseline, settings.statistics)
        for name, runs in ((ALIKE, shared), (OWN, own))
    }
    arms = pd.concat([shared, own])["arm"].unique()
    known = {arm: settings.arm(arm).title if arm in settings.all_arms else arm for arm in arms}
    return Comparison({ALIKE: shared, OWN: own}, answers, families, known)


def table(comparison: Comparison, baseline: str) -> pd.DataFrame:
    """The arms of the front page: accuracy and difference at their best rate, the answer, the difference at the rate
    for all."""
    alike, own = (comparison.answers[name] for name in (ALIKE, OWN))
    own = own[_on_front_page(own)]
    mean = comparison.runs[OWN].groupby("arm")[["rate", MEASURE]].mean()
    said = {name: pd.Series(intervals(of, "difference", "+.3f"), of.index) for name, of in comparison.answers.items()}
    arms = [baseline, *own.index]
    rows = {
        "arm": [comparison.titles[arm] for arm in arms],
        "learning rate": mean.loc[arms, "rate"].map("{:g}".format),
        "accuracy": mean.loc[arms, MEASURE].map("{:.3f}".format),
        "difference": said[OWN].reindex(arms).fillna("baseline"),
        "answer": own["answer"].reindex(arms).fillna(""),
        "difference at one rate": said[ALIKE].reindex(arms).fillna("–"),
        "answer there": alike["answer"].reindex(arms).fillna(""),
    }
    return pd.DataFrame(rows)


def _on_front_page(answers: pd.DataFrame) -> pd.Series:
    return answers["family"].isin(SHOWN) | answers.index.isin(ALSO)


def figure(comparison: Comparison, baseline: str, front_page: bool = False) -> Figure:
    """The answers at both rates, base policies as dots; of the arms of the front page, or of all."""
    drawn = {name: of[_on_front_page(of)] if front_page else of for name, of in comparison.answers.items()}
    title = "Which methods end higher for the same FLOPs?"
    return plot.answers(drawn, comparison.titles, comparison.titles[baseline], title)
