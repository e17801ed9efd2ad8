"""Differences to the baseline for the same FLOPs, over base policies and seeds: at one learning rate for all, and at a
rate of each arm's own."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from repro.settings import Statistics
from repro.stats import atlas
from repro.stats.atlas import NoRuns
from repro.stats.multiplicity import holm
from repro.stats.nested import Nested
from repro.stats.outcomes import at_shares, compare, reached

MARGIN = 0.01  # differences within it count as none
REPEATED = 5  # seeds of the study that a prediction interval is about


def runs(panels: Sequence[str], rate: float) -> pd.DataFrame:
    """A row per run, as `repro.stats.outcomes.reached` has it. NoRuns where none has been made."""
    table = reached(panels, rate)
    if table.empty:
        raise NoRuns(f"atlas/data has no run of panel {panels[0]}: `make atlas PANEL={panels[0]}`")
    return table


def at_best(shared: pd.DataFrame, own: pd.DataFrame, best: Mapping[str, float]) -> pd.DataFrame:
    """The runs of each arm at its best rate, from either table; arms without any are left out."""
    both = pd.concat([shared, own], ignore_index=True)
    return both[both["rate"] == both["arm"].map(best)]


def on_every_policy(table: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """The runs of arms that have some on every base policy of the baseline's; the others are still being made."""
    on = table.groupby("arm")["policy"].agg(set)
    return table[table["arm"].isin([arm for arm, own in on.items() if own >= on[baseline]])]


def answers(
    table: pd.DataFrame, measure: str, families: Mapping[str, Sequence[str]], baseline: str, statistics: Statistics
) -> pd.DataFrame:
    """A row per arm (the index) of `families`, of those that `table` has:

    family                            its key in `families`. Arms of the first are corrected by Holm, so that one false
                                      answer among them is unlikely; of each other, by the false discovery rate
    difference, _low, _high           arm less baseline, mean over base policies and seeds, and its interval
    adjusted                          p of no difference, corrected within the family
    predicted_low, predicted_high     where a study of REPEATED seeds on another base policy will find it
    detectable                        the least difference found four times in five, uncorrected
    seeds                             on each base policy, at which the answer would not be open, were estimates and
                                      variances to stay; inf where no number of seeds would do. Corrected for as many
                                      tests as the family has arms
    by_policy                         list of the differences on each base policy, in alphabetical order
    agree                             base policies on which the difference has the sign of the mean
    answer                            higher or lower, where `adjusted` says so; equal, where the interval lies within
                                      ±MARGIN; else open
    """
    made = set(table["arm"])
    arms = {arm: family for family, members in families.items() for arm in members if arm in made}
    fit = compare(table, measure, list(arms), baseline)
    low_A, high_A = fit.interval(statistics.confidence)
    predicted = fit.prediction(statistics.confidence, REPEATED)
    rows = pd.DataFrame(
        {
            "family": list(arms.values()),
            "difference": fit.estimate_A,
            "difference_low": low_A,
            "difference_high": high_A,
            "adjusted": _adjusted(fit, list(arms.values())),
            "predicted_low": predicted[0],
            "predicted_high": predicted[1],
            "detectable": fit.detectable(statistics.confidence, 0.8),
            "seeds": _seeds(fit, list(arms.values()), statistics.confidence),
            "by_policy": list(map(list, fit.own_A_P)),
            "agree": (np.sign(fit.own_A_P) == np.sign(fit.estimate_A)[:, None]).sum(1),
        },
        index=pd.Index(arms, name="arm"),
    )
    return rows.assign(answer=[_answer(row, statistics.confidence) for row in rows.itertuples()])


def along(
    of: pd.DataFrame, arms: Sequence[str], baseline: str, shares: Sequence[float], confidence: float
) -> pd.DataFrame:
    """Arm, share, difference, _low, _high: the difference from the baseline when each share of the budget is spent.
    `of`: rows of `runs`."""
    curves = pd.concat([atlas.load("curves", panel) for panel in of["panel"].unique()], ignore_index=True)
    accuracy = at_shares(curves[curves["run"].isin(of["run"])], shares)
    wide = of[["run", "policy", "arm", "seed"]].join(accuracy, on="run")
    rows = []
    for share in shares:
        fit = compare(wide, share, arms, baseline)
        low_A, high_A = fit.interval(confidence)
        named = {"difference": fit.estimate_A, "difference_low": low_A, "difference_high": high_A}
        rows.append(pd.DataFrame({"arm": list(arms), "share": share, **named}))
    return pd.concat(rows, ignore_index=True)


def _adjusted(fit: Nested, families: Sequence[str]) -> np.ndarray:
    from scipy.stats import false_discovery_control  # a second of imports

    p_A, adjusted_A = fit.p_values(), np.empty(len(families))
    for place, family in enumerate(dict.fromkeys(families)):
        own_A = np.array(families) == family
        adjusted_A[own_A] = holm(p_A[own_A]) if place == 0 else false_discovery_control(p_A[own_A])
    return adjusted_A


def _seeds(fit: Nested, families: Sequence[str], confidence: float) -> np.ndarray:
    counts = pd.Series(families).map(pd.Series(families).value_counts())
    return np.array([fit.seeds_to_tell(confidence, MARGIN, tests)[place] for place, tests in enumerate(counts)])


def _answer(row, confidence: float) -> str:
    if row.adjusted < 1 - confidence:
        return "higher" if row.difference > 0 else "lower"
    return "equal" if row.difference_low >= -MARGIN and row.difference_high <= MARGIN else "open"
