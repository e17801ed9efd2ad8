"""What an arm spends to be as accurate as the baseline, over what the baseline spends: read off fitted curves.

The first crossing of a curve of noisy evaluations is early by luck, and its error is that of one or two of them. A
saturating curve (repro.stats.saturation) is fitted to all: of the atlas's arms with five seeds, twice as many then have
an interval with two ends, and its logarithm is 0.6 times as wide (docs/LOG.md).
"""

from collections.abc import Sequence

import numpy as np

from repro.stats.intervals import ROUNDING, leave_one_out, ratio_interval
from repro.stats.saturation import Saturation, fit

Ratios = dict[str, list]


def cost_ratios(
    costs_A_S_E: np.ndarray, accuracies_A_S_E: np.ndarray, base: int, shares: Sequence[float], confidence: float
) -> dict[float, Ratios]:
    """{share: {"": ratio, "_low", "_high", "_reached", "_open"}}, each over A arms: an arm's cost to reach the level
    over that of arm `base`. The level is start + share · (end − start) of the baseline's fitted curve.

    Curves are fitted to means over seeds; the steepness is the baseline's, since a dozen evaluations do not tell an
    arm's own from its asymptote. The interval is `ratio_interval`'s: each seed left out in turn, of arm and baseline
    together, and the level taken again. Where the arm's curve is not at the level when its runs end, `_reached` is
    False and the ratio a lower bound, what it spent: no curve is read beyond its runs. Where that is so without one of
    the seeds, or where the interval reaches past all that the arm spent, `_open` is True, and `_high`, at most what it
    spent, a lower bound. All is NaN where the baseline's curve does not rise.
    """
    leave_J_S = leave_one_out(accuracies_A_S_E.shape[1])
    costs_A_J_E, accuracies_A_J_E = leave_J_S @ costs_A_S_E, leave_J_S @ accuracies_A_S_E
    spent_A_J = costs_A_J_E[:, :, -1]
    bases_J = _fits(costs_A_J_E[base], accuracies_A_J_E[base])
    steepness_J = [fitted.steepness for fitted in bases_J]
    curves_A_J = [
        bases_J if arm == base else _fits(costs_A_J_E[arm], accuracies_A_J_E[arm], steepness_J)
        for arm in range(len(costs_A_J_E))
    ]
    return {share: _ratios(curves_A_J, spent_A_J, base, share, confidence) for share in shares}


def _fits(
    costs_J_E: np.ndarray, accuracies_J_E: np.ndarray, steepness_J: Sequence[float] | None = None
) -> list[Saturation]:
    """A curve without each seed in turn, found near that of all seeds, the first."""
    fixed_J = steepness_J or [None] * len(costs_J_E)
    whole = fit(costs_J_E[0], accuracies_J_E[0], fixed_J[0])
    rest = zip(costs_J_E[1:], accuracies_J_E[1:], fixed_J[1:], strict=True)
    return [whole, *(fit(*without, near=whole) for without in rest)]


def _ratios(
    curves_A_J: Sequence[Sequence[Saturation]], spent_A_J: np.ndarray, base: int, share: float, confidence: float
) -> Ratios:
    start_J = np.array([curve.start for curve in curves_A_J[base]])
    end_J = np.array([float(curve(spent)) for curve, spent in zip(curves_A_J[base], spent_A_J[base], strict=True)])
    level_J = start_J + share * (end_J - start_J)
    cost_A_J = np.array(
        [[curve.cost_of(level) for curve, level in zip(curves_J, level_J, strict=True)] for curves_J in curves_A_J]
    )
    base_cost_J = np.where(end_J > start_J + ROUNDING, cost_A_J[base], np.nan)
    reached_A_J = cost_A_J <= spent_A_J * (1 + ROUNDING)
    rows = []
    for cost_J, spent_J, reached_J in zip(cost_A_J, spent_A_J, reached_A_J, strict=True):
        ratio, low, high = ratio_interval(np.minimum(cost_J, spent_J) / base_cost_J, confidence)
        spent = float(spent_J[0] / base_cost_J[0])
        is_open = bool(not reached_J.all() or high > spent)
        rows.append((ratio, low, min(high, spent) if is_open else high, bool(reached_J[0]), is_open))
    return dict(zip(("", "_low", "_high", "_reached", "_open"), map(list, zip(*rows, strict=True)), strict=True))
