"""What an arm spends to be as accurate as the baseline, over what the baseline spends: read off fitted curves.

The first crossing of a curve of noisy evaluations is early by luck, and its error is that of one or two of them. A
saturating curve (repro.stats.saturation) is fitted to all, and read no further than its runs go: there a dozen
evaluations tell its height well, although they do not tell its asymptote from its steepness.
"""

from collections.abc import Sequence

import numpy as np

from repro.stats.intervals import leave_one_out, t_quantile
from repro.stats.saturation import Saturation, fit

Ratios = dict[str, list]
POINTS = 1001  # ratios at which a curve is held against the level
EQUAL = 1e-6  # accuracies closer than this are equal


def cost_ratios(
    costs_A_S_E: np.ndarray, accuracies_A_S_E: np.ndarray, base: int, shares: Sequence[float], confidence: float
) -> dict[float, Ratios]:
    """{share: {"": ratio, "_low", "_high", "_reached", "_open"}}, each over A arms: an arm's cost to reach the level
    over that of arm `base`. The level is start + share · (end − start) of the baseline's fitted curve.

    Curves are fitted to means over seeds. Where the arm's curve is not at the level when its runs end, `_reached` is
    False and the ratio what it spent, a lower bound. The interval is Fieller's: the ratios at which the arm's curve is
    not distinguishable from the level, by Student's t with an error that leaves out each seed in turn, of arm and
    baseline together. So an arm that never gets there may have an interval, from where it might have been there. Where
    it is not distinguishable when its runs end, `_open` is True, and `_high`, what it spent, a lower bound. All is NaN
    where the baseline's curve does not rise, bounds also with a single seed. The baseline's own is 1, without scatter.
    """
    leave_J_S = leave_one_out(accuracies_A_S_E.shape[1])
    costs_A_J_E, accuracies_A_J_E = leave_J_S @ costs_A_S_E, leave_J_S @ accuracies_A_S_E
    spent_A_J = costs_A_J_E[:, :, -1]
    curves_A_J = [_fits(*of_arm) for of_arm in zip(costs_A_J_E, accuracies_A_J_E, strict=True)]
    return {share: _ratios(curves_A_J, spent_A_J, base, share, confidence) for share in shares}


def _fits(costs_J_E: np.ndarray, accuracies_J_E: np.ndarray) -> list[Saturation]:
    """A curve without each seed in turn, looked for near that of all seeds, the first."""
    whole = fit(costs_J_E[0], accuracies_J_E[0])
    rest = zip(costs_J_E[1:], accuracies_J_E[1:], strict=True)
    return [whole, *(fit(*without, near=whole) for without in rest)]


def _ratios(
    curves_A_J: Sequence[Sequence[Saturation]], spent_A_J: np.ndarray, base: int, share: float, confidence: float
) -> Ratios:
    ends = zip(curves_A_J[base], spent_A_J[base], strict=True)
    start_J, end_J = np.array([(curve.start, float(curve(spent))) for curve, spent in ends]).T
    level_J = start_J + share * (end_J - start_J)
    cost_J = np.array([curve.cost_of(level) for curve, level in zip(curves_A_J[base], level_J, strict=True)])
    cost_J = np.where(end_J > start_J + EQUAL, np.minimum(cost_J, spent_A_J[base]), np.nan)
    rows = [
        _ratio(curves_J, spent_J[0], cost_J, level_J, confidence)
        for curves_J, spent_J in zip(curves_A_J, spent_A_J, strict=True)
    ]
    if np.isfinite(cost_J[0]):
        rows[base] = (1.0, 1.0, 1.0, True, False)
    return dict(zip(("", "_low", "_high", "_reached", "_open"), map(list, zip(*rows, strict=True)), strict=True))


def _ratio(
    curves_J: Sequence[Saturation], spent: float, base_cost_J: np.ndarray, level_J: np.ndarray, confidence: float
) -> tuple[float, float, float, bool, bool]:
    """(ratio, low, high, reached, open) of an arm."""
    most = spent / base_cost_J[0]
    if np.isnan(most):
        return np.nan, np.nan, np.nan, False, True
    reached = bool(curves_J[0](spent) > level_J[0] - EQUAL)
    ratio = min(curves_J[0].cost_of(level_J[0]) / base_cost_J[0], most) if reached else most
    ratio_R = np.union1d(np.linspace(0, most, POINTS), ratio)
    seen_J_R = np.stack([curve(cost * ratio_R) for curve, cost in zip(curves_J, base_cost_J, strict=True)])
    above_J_R = seen_J_R - level_J[:, None]
    n_seeds = len(curves_J) - 1
    if n_seeds < 1:  # of a single seed there is the whole alone
        return ratio, np.nan, np.nan, reached, not reached
    half_R = t_quantile(n_seeds - 1, confidence) * np.sqrt(n_seeds - 1) * above_J_R[1:].std(0)
    low, high = (_first(ratio_R, above_J_R[0] + side * half_R) for side in (1, -1))
    known = not np.isnan(half_R).any()  # else the baseline does not rise without some seed
    low = 0.0 if not known else most if low is None else min(low, ratio)
    return ratio, low, most if high is None else max(high, ratio), reached, high is None or not reached


def _first(ratio_R: np.ndarray, above_R: np.ndarray) -> float | None:
    """The first ratio at which a curve is not below the level, linear in between."""
    there_R = above_R > -EQUAL
    if not there_R.any():
        return None
    after = int(there_R.argmax())
    before = max(after - 1, 0)
    return float(np.interp(0, above_R[[before, after]], ratio_R[[before, after]]))
