"""Differences from the baseline over base policies and seeds, and whether each is an answer: higher, lower, equal or
inconclusive."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from repro.settings import Statistics
from repro.stats.multiplicity import holm
from repro.stats.nested import Nested
from repro.stats.outcomes import compare

MARGIN = 0.01  # differences within it count as none
REPEATED = 5  # seeds of the study that a prediction interval is about


def answered(
    table: pd.DataFrame, measure: str, families: Mapping[str, Sequence[str]], baseline: str, statistics: Statistics
) -> pd.DataFrame:
    """A row per arm (the index) of `families`, of those that `table` has; of one seed on each policy, predicted_low,
    predicted_high and seeds are NaN:

    family                            its key in `families`. Arms of the first are corrected by Holm, so that one false
                                      answer among them is unlikely; of each other, by the false discovery rate
    difference, _low, _high           arm less baseline, mean over base policies and seeds, and its interval
    adjusted                          p of no difference, corrected within the family
    predicted_low, predicted_high     where a study of REPEATED seeds on another base policy will find it
    detectable                        the least difference found four times in five, uncorrected
    seeds                             on each base policy, at which the answer would not be inconclusive, were estimates
                                      and variances to stay; inf where no number of seeds would do. Corrected for as
                                      many tests as the family has arms
    by_policy                         list of the differences on each base policy, in alphabetical order
    agree                             base policies on which the difference has the sign of the mean
    answer                            higher or lower, where `adjusted` says so; equal, where the interval lies within
                                      ±MARGIN; else inconclusive
    """
    return together([({}, table, measure)], families, baseline, statistics)


def together(
    asked: Sequence[tuple[Mapping[str, Any], pd.DataFrame, str]],
    families: Mapping[str, Sequence[str]],
    baseline: str,
    statistics: Statistics,
) -> pd.DataFrame:
    """`answered` for several questions, (labels, table, measure) each, corrected over all rows: what is printed
    together is judged together. The labels are columns in front."""
    fits, parts = [], []
    for labels, table, measure in asked:
        made = set(table["arm"])
        arms = {arm: family for family, members in families.items() for arm in members if arm in made}
        fits.append(compare(table, measure, list(arms), baseline))
        parts.append(pd.DataFrame({**labels, "family": list(arms.values())}, index=pd.Index(arms, name="arm")))
    tests = pd.concat(parts)["family"].value_counts()
    rows = [_row(*of, tests, statistics.confidence) for of in zip(fits, parts, strict=True)]
    whole = pd.concat(rows)
    p_A = np.concatenate([fit.p_values() for fit in fits])
    whole["adjusted"] = _adjusted(p_A, whole["family"].to_numpy(), first=next(iter(families)))
    return whole.assign(answer=[_answer(row, statistics.confidence) for row in whole.itertuples()])


def _row(fit: Nested, labels: pd.DataFrame, tests: pd.Series, confidence: float) -> pd.DataFrame:
    low_A, high_A = fit.interval(confidence)
    predicted = fit.prediction(confidence, REPEATED)
    told = [
        fit.seeds_to_tell(confidence, MARGIN, count)[place] for place, count in enumerate(labels["family"].map(tests))
    ]
    return labels.assign(
        difference=fit.estimate_A,
        difference_low=low_A,
        difference_high=high_A,
        adjusted=np.nan,
        predicted_low=predicted[0],
        predicted_high=predicted[1],
        detectable=fit.detectable(confidence, 0.8),
        seeds=told,
        by_policy=list(map(list, fit.own_A_P)),
        agree=(np.sign(fit.own_A_P) == np.sign(fit.estimate_A)[:, None]).sum(1),
    )


def told(fit: Nested, confidence: float, corrected: str = "fdr") -> pd.DataFrame:
    """A row per arm of `fit`: difference, difference_low, difference_high; adjusted, p of no difference, `corrected`
    over all of them for their false discovery rate or by "holm"; answer, higher, lower or inconclusive;
    by_policy, the list of its differences."""
    from scipy.stats import false_discovery_control  # a second of imports

    low_A, high_A = fit.interval(confidence)
    adjusted_A = {"fdr": false_discovery_control, "holm": holm}[corrected](fit.p_values())
    sign_A = np.where(fit.estimate_A > 0, "higher", "lower")
    return pd.DataFrame(
        {
            "difference": fit.estimate_A,
            "difference_low": low_A,
            "difference_high": high_A,
            "adjusted": adjusted_A,
            "answer": np.where(adjusted_A < 1 - confidence, sign_A, "inconclusive"),
            "by_policy": list(map(list, fit.own_A_P)),
        }
    )


def _adjusted(p_A: np.ndarray, family_A: np.ndarray, first: str) -> np.ndarray:
    from scipy.stats import false_discovery_control  # a second of imports

    adjusted_A = np.empty(len(family_A))
    for family in dict.fromkeys(family_A):
        own_A = family_A == family
        adjusted_A[own_A] = holm(p_A[own_A]) if family == first else false_discovery_control(p_A[own_A])
    return adjusted_A


def _answer(row, confidence: float) -> str:
    if row.adjusted < 1 - confidence:
        return "higher" if row.difference > 0 else "lower"
    return "equal" if row.difference_low >= -MARGIN and row.difference_high <= MARGIN else "inconclusive"
