"""Significance when many arms are compared with one baseline: paired t-tests, corrected for their number."""

from collections.abc import Sequence

import numpy as np

from repro.stats.intervals import mean_and_error

LEAST_SEEDS = 3  # t intervals hold their level from here on (repro.stats.intervals), though at 4.3 standard errors


def paired_p_values(differences_A_S: np.ndarray) -> np.ndarray:
    """p_A: two-sided paired t-test of each arm's differences over S seeds; NaN for one seed, 1 for no difference.

    The t of repro.stats.intervals: p < 1 − confidence exactly where the interval excludes 0. Seeds that all differ by
    one and the same amount leave no doubt: p = 0.
    """
    from scipy.special import stdtr  # scipy.stats, which holds the test itself, costs a report a second of imports

    mean_A, error_A = mean_and_error(differences_A_S)
    with np.errstate(divide="ignore", invalid="ignore"):
        p_A = 2 * stdtr(max(np.shape(differences_A_S)[1] - 1, 1), -np.abs(mean_A / error_A))
    return np.where((mean_A == 0) & (error_A == 0), 1.0, p_A)


def holm(p_M: Sequence[float]) -> np.ndarray:
    """adjusted_M: Holm's (1979) step-down p-values; below α, a null is rejected with P(any false rejection) ≤ α.

        adjusted_(i) = max over j ≤ i of min(1, (M − j + 1)·p_(j)),   p_(1) ≤ … ≤ p_(M)

    It needs no assumption on how the M tests depend on each other, which here they do: all share the baseline.
    ValueError for a number that is no probability.
    """
    p_M = np.asarray(p_M, float)
    if not ((p_M >= 0) & (p_M <= 1)).all():
        raise ValueError(f"holm: {p_M[~((p_M >= 0) & (p_M <= 1))][0]} is no p-value; leave out what was not tested")
    order_M = np.argsort(p_M, kind="stable")
    steps_M = np.minimum(1.0, (len(p_M) - np.arange(len(p_M))) * p_M[order_M])
    adjusted_M = np.empty_like(p_M)
    adjusted_M[order_M] = np.maximum.accumulate(steps_M)
    return adjusted_M


def significance(
    differences_A_S: np.ndarray, arms: Sequence[str], baseline: str, family: Sequence[str], confidence: float
) -> dict[str, list]:
    """Columns over `arms`: p_value, p_holm, resolved.

    `family`: the arms that were declared to be compared with the baseline. A table that lacks one of them cannot know
    the corrected value: p_holm is NaN there, and resolved "not tested". Otherwise resolved is "more" or "less" where
    p_holm < 1 − confidence and there are at least LEAST_SEEDS seeds, else "not resolved"; "baseline" for the baseline.
    """
    n_seeds = differences_A_S.shape[1]
    p_value = dict(zip(arms, map(float, paired_p_values(differences_A_S)), strict=True))
    p_holm = dict.fromkeys(arms, float("nan"))
    resolved = dict.fromkeys(arms, "not tested")
    if set(family) <= set(arms) and n_seeds > 1:
        p_holm |= dict(zip(family, map(float, holm([p_value[arm] for arm in family])), strict=True))
        for arm, mean in zip(arms, differences_A_S.mean(1), strict=True):
            if arm in family:
                significant = n_seeds >= LEAST_SEEDS and p_holm[arm] < 1 - confidence
                resolved[arm] = ("more" if mean > 0 else "less") if significant else "not resolved"
    p_value[baseline], resolved[baseline] = float("nan"), "baseline"
    columns = {"p_value": p_value, "p_holm": p_holm, "resolved": resolved}
    return {name: [values[arm] for arm in arms] for name, values in columns.items()}
