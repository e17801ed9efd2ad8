"""Intervals of the study's figures.

**Over training seeds**, which are few: Student's t. For a mean, over its seeds; a difference of two arms is first taken
seed by seed, because a seed gives both the same initial weights and random streams, and because paired differences need
no assumption that both arms scatter alike. The p-values of repro.stats.multiplicity are those of the same t. For a
ratio, over the logarithms of the ratios that leave one seed out (the jackknife): logarithms, so that the intervals of
A/B and B/A agree; for a cost to reach a level, Fieller's (repro.stats.cost_ratios). For an interquartile mean, Tukey
and McLaughlin's t (1963). How often a 95% interval contains the truth, by simulation, and how often that of a
percentile bootstrap over seeds does:

    seeds                                    3            5            10
    mean of normal seeds                     95% / 75%    95% / 84%    95% / 89%
    mean of skewed ones (log-normal, 0.75)   89% / 69%    88% / 77%    89% / 84%
    ratio of means                           96% / 76%    95% / 83%    95% / 89%
    cost to 90% of the baseline's rise       95% / 68%    96% / 81%    95% / 89%

**Over queries and a simulation's trials**, of which there are hundreds: percentile bootstraps. Resamples are drawn only
here: with a fixed random state and the same draws for everything, or with the simulation's generator.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from repro.settings import Statistics

Interval3 = tuple[float, float, float]  # estimate, low, high
ENDS = ("", "_low", "_high")  # of a column's name: the estimate, the bounds of its interval
ROUNDING = 1e-12  # logarithms closer than this are equal


def mean_and_error(values_A_S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(mean_A, error_A) over the last axis: s/√S, exactly 0 where all values are alike, NaN for a single one."""
    values_A_S = np.asarray(values_A_S, float)
    n_seeds = values_A_S.shape[-1]
    if n_seeds < 2:
        return values_A_S.mean(-1), np.full(values_A_S.shape[:-1], np.nan)
    scatter_A = np.where(np.ptp(values_A_S, axis=-1) == 0, 0.0, values_A_S.std(-1, ddof=1))
    return values_A_S.mean(-1), scatter_A / np.sqrt(n_seeds)


def t_quantile(freedom: int, confidence: float) -> float:
    """How many standard errors a two-sided t interval extends to either side."""
    from scipy.special import stdtrit  # scipy.stats, which has the distribution, costs a report a second of imports

    return float(stdtrit(freedom, (1 + confidence) / 2))


def t_intervals(values_A_S: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean_A, low_A, high_A) over the S seeds of the last axis; NaN bounds for one seed, all NaN where a value is."""
    mean_A, error_A = mean_and_error(values_A_S)
    half_A = error_A * (t_quantile(np.shape(values_A_S)[-1] - 1, confidence) if np.shape(values_A_S)[-1] > 1 else 1)
    return mean_A, mean_A - half_A, mean_A + half_A


def predicted(values_A_S: np.ndarray, repeats: int, confidence: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean_A, low_A, high_A): where the mean over `repeats` new seeds will be, from S seeds: Student's prediction
    interval, mean ± t · s · √(1/S + 1/repeats)."""
    mean_A, error_A = mean_and_error(values_A_S)
    n_seeds = np.shape(values_A_S)[-1]
    wider = np.sqrt(1 + n_seeds / repeats)
    half_A = error_A * (t_quantile(n_seeds - 1, confidence) * wider if n_seeds > 1 else 1)
    return mean_A, mean_A - half_A, mean_A + half_A


def mean_intervals(values: Mapping[str, np.ndarray], statistics: Statistics) -> dict[str, Interval3]:
    """{name: (mean, low, high)} of each array over its seeds: `t_intervals`."""
    return {
        name: tuple(float(end) for end in t_intervals(array, statistics.confidence)) for name, array in values.items()
    }


def over_seeds(
    table: pd.DataFrame, by: str | Sequence[str], statistics: Statistics, columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """One row per value of the column or columns `by` (the index, in the order of `table`): of every other column but
    `seed`, or of `columns`, the mean over seeds with its interval in <column>_low and <column>_high.

    A seed with several rows counts once, by their mean. Bounds are NaN for a single seed; see `t_intervals`.
    """
    by = [by] if isinstance(by, str) else list(by)
    columns = [name for name in table if name not in (*by, "seed")] if columns is None else list(columns)
    rows = {}
    for key, group in table.groupby(by, sort=False):
        by_seed = group.groupby("seed")[columns].mean()
        spans = mean_intervals({name: by_seed[name].to_numpy(float) for name in columns}, statistics)
        rows[key] = {f"{name}{end}": spans[name][place] for name in columns for place, end in enumerate(ENDS)}
    index = pd.MultiIndex.from_tuples(rows, names=by)
    ends = [f"{name}{end}" for name in columns for end in ENDS]
    return pd.DataFrame(list(rows.values()), index.get_level_values(0) if len(by) == 1 else index, ends)


def leave_one_out(n_seeds: int) -> np.ndarray:
    """weights_J_S of means over seeds: row 0 takes all S, row 1 + s all but seed s. One seed has row 0 alone."""
    all_S = np.full((1, n_seeds), 1 / n_seeds)
    return all_S if n_seeds == 1 else np.vstack([all_S, (1 - np.eye(n_seeds)) / (n_seeds - 1)])


def ratio_interval(ratio_J: np.ndarray, confidence: float) -> Interval3:
    """(ratio, low, high) from a ratio and those that leave one seed out, in the order of `leave_one_out`: the jackknife
    with Student's t, on the logarithms.

    NaN bounds for one seed or an undefined ratio; 0 and ∞, which say nothing, where it rests on a single seed: without
    that seed it is undefined or 0.
    """
    ratio, without_S = float(ratio_J[0]), np.asarray(ratio_J[1:], float)
    if len(without_S) == 0 or np.isnan(ratio):
        return ratio, float("nan"), float("nan")
    if not (ratio > 0 and (without_S > 0).all()):
        return ratio, 0.0, float("inf")
    log_S = np.log(without_S)
    if np.ptp(log_S) < ROUNDING:
        return ratio, ratio, ratio
    error = np.sqrt((len(log_S) - 1) * log_S.var())
    factor = float(np.exp(t_quantile(len(log_S) - 1, confidence) * error))
    return ratio, ratio / factor, ratio * factor


def interquartile_means(final_A_S: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(iqm_A, low_A, high_A): the mean of the middle half of the runs, scipy's trimmed mean at a quarter, which is
    rliable's `aggregate_iqm`. NaN below four runs, where nothing would be trimmed.

    Tukey and McLaughlin's interval: with h runs left after trimming, the error is that of the winsorised runs, their
    sum of squares over h (h − 1), and t has h − 1 degrees of freedom.
    """
    n_arms, n_seeds = final_A_S.shape
    if n_seeds < 4:
        return tuple(np.full((3, n_arms), np.nan))
    cut = n_seeds // 4  # as scipy's trim_mean(…, 0.25) does, without a second of imports in every report
    left, sorted_A_S = n_seeds - 2 * cut, np.sort(final_A_S, axis=1)
    middle_A_H = sorted_A_S[:, cut : n_seeds - cut]
    winsorised_A_S = np.clip(sorted_A_S, middle_A_H[:, :1], middle_A_H[:, -1:])
    error_A = np.sqrt(n_seeds * winsorised_A_S.var(1) / (left * (left - 1)))
    mean_A, half_A = middle_A_H.mean(1), t_quantile(left - 1, confidence) * error_A
    return mean_A, mean_A - half_A, mean_A + half_A


def improvement(final_A_S: np.ndarray, baseline_S: np.ndarray) -> np.ndarray:
    """improvement_A: P(X > Y) + P(X = Y)/2 over all pairs of an arm's run X with a baseline's run Y: rliable's
    probability of improvement (the Mann–Whitney statistic over S²).

    Without an interval: where every run of one arm is above every run of the other, as happens with five, the
    runs hold no scatter from which to take one.
    """
    return (np.sign(final_A_S[:, :, None] - baseline_S[None, None, :]) / 2 + 0.5).mean((1, 2))


def draws(n: int, statistics: Statistics) -> np.ndarray:
    """draws_B_N: which of n queries (or runs) each resample takes. Row 0 takes each once: the estimate."""
    return _draws(n, statistics.resamples, statistics.seed)


@lru_cache(maxsize=8)
def _draws(n: int, resamples: int, seed: int) -> np.ndarray:
    draws_B_N = resample_rows(n, resamples, np.random.default_rng(seed))
    draws_B_N.flags.writeable = False  # it is shared
    return draws_B_N


def resample_rows(n: int, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """rows_B_N: which of n each resample takes. Row 0 takes each once: the estimate."""
    return np.vstack([np.arange(n), rng.integers(n, size=(resamples, n))])


def percentiles(estimates_B: np.ndarray, n: int, statistics: Statistics) -> Interval3:
    """(estimate, low, high) from the estimate and its resamples, in the order of `draws`: the percentile interval.

    Undefined resamples are left out; bounds are NaN where the estimate is undefined and where n = 1.
    """
    estimate = float(estimates_B[0])
    if n == 1 or not np.isfinite(estimate):
        return estimate, float("nan"), float("nan")
    tails = 50 * (1 - statistics.confidence), 50 * (1 + statistics.confidence)
    resampled_B = estimates_B[1:]
    low, high = np.percentile(resampled_B[~np.isnan(resampled_B)], tails)
    return estimate, float(low), float(high)


def resample_counts(n_trials: int, n_resamples: int, rng: np.random.Generator) -> np.ndarray:
    """counts_B_K: how often each resample takes each of K trials; every row adds up to K. Row 0 takes each once."""
    counts_B_K = rng.multinomial(n_trials, np.full(n_trials, 1 / n_trials), size=n_resamples)
    return np.vstack([np.ones(n_trials, counts_B_K.dtype), counts_B_K])


def estimate(estimates_B: np.ndarray) -> tuple[float, tuple[float, float]]:
    """(estimate, its 95% percentile interval) of a simulation: row 0 is the whole sample, the others are resamples."""
    low, high = np.quantile(estimates_B[1:], [0.025, 0.975])
    return float(estimates_B[0]), (float(low), float(high))
