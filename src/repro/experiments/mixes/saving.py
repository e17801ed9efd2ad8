"""How many tokens an arm needs for the same accuracy, measured: one factor for its whole curve."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import linregress

from repro.experiments.mixes.made import WHERE
from repro.stats.intervals import ratio_interval, t_intervals, t_quantile
from repro.stats.saturation import scaled


def measured(curves: pd.DataFrame, arms: Sequence[str], base: str, cost: str, confidence: float) -> pd.DataFrame:
    """A row per mix, base policy and arm: mix, policy, arm, factor, factor_low, factor_high.

    factor: what the arm spends of `cost`, a column of `curves`, over what `base` spends, to be as accurate, wherever
    on their curves: see `repro.stats.saturation.scaled`. Its interval leaves out one seed at a time, of both arms
    together (jackknife on logarithms).
    """
    rows = []
    for place, own in curves.groupby(WHERE, sort=False):
        own = own[own["arm"].isin([base, *arms])]
        seeds = sorted(own["seed"].unique())
        kept = [own, *(own[own["seed"] != seed] for seed in seeds if len(seeds) > 1)]
        factors_J_A = np.array([_factors(part, [base, *arms], cost) for part in kept])
        for arm, factor_J in zip(arms, factors_J_A[:, 1:].T, strict=True):
            ends = ratio_interval(factor_J, confidence)
            rows.append((*place, arm, *ends))
    return pd.DataFrame(rows, columns=[*WHERE, "arm", "factor", "factor_low", "factor_high"])


def _factors(curves: pd.DataFrame, arms: Sequence[str], cost: str) -> np.ndarray:
    start = curves.loc[curves["step"] == 0, "accuracy"].mean()
    later = curves[curves["step"] > 0]
    arm_N = pd.Categorical(later["arm"], arms).codes
    return scaled(later[cost], later["accuracy"], arm_N, start, later["samples"])


def beside(measured: pd.DataFrame, described: pd.DataFrame, drawn: Sequence[str]) -> pd.DataFrame:
    """`measured` with the column `predicted`: of `made.described` for the arms that draw by |A|/√c, else 1."""
    rows = measured.merge(described[[*WHERE, "factor"]].rename(columns={"factor": "predicted"}), on=WHERE)
    return rows.assign(predicted=rows["predicted"].where(rows["arm"].isin(drawn), 1.0))


def over_places(factors: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """A row per arm of `factors`, of `beside`: arm; predicted and factor, geometric means over mixes and base policies;
    slope, of log factor on the logarithm of the prediction, NaN where that is the same everywhere; factor and slope
    with _low and _high, Student's t over these places."""
    rows = []
    for arm, own in factors.groupby("arm", sort=False):
        x_P, y_P = np.log(own["predicted"].to_numpy(float)), np.log(own["factor"].to_numpy(float))
        mean, low, high = np.exp(np.array(t_intervals(y_P[None], confidence))[:, 0])
        rows.append((arm, np.exp(x_P.mean()), mean, low, high, *_slope(x_P, y_P, confidence)))
    ends = ["factor", "factor_low", "factor_high", "slope", "slope_low", "slope_high"]
    return pd.DataFrame(rows, columns=["arm", "predicted", *ends])


def _slope(x_P: np.ndarray, y_P: np.ndarray, confidence: float) -> tuple[float, float, float]:
    """Least squares, with Student's interval; NaN with fewer than three places, or where x does not vary."""
    if len(x_P) < 3 or np.ptp(x_P) == 0:
        return (float("nan"),) * 3
    fit = linregress(x_P, y_P)
    half = t_quantile(len(x_P) - 2, confidence) * fit.stderr
    return fit.slope, fit.slope - half, fit.slope + half
