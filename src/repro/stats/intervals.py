"""Bootstrap intervals. The only module that draws resamples: of training seeds with a fixed random state and the same
draws for everything, of a simulation's trials with the simulation's generator."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from repro.settings import Statistics

ENDS = ("", "_low", "_high")  # of a column's name: the estimate, the bounds of its interval


def draws(n_seeds: int, statistics: Statistics) -> np.ndarray:
    """draws_B_S: which seeds each resample takes. Row 0 takes every seed once: the estimate; the rest its uncertainty.

    The same draws serve every arm and every figure, so that arms are resampled in pairs.
    """
    return _draws(n_seeds, statistics.resamples, statistics.seed)


@lru_cache(maxsize=8)
def _draws(n_seeds: int, resamples: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).integers(n_seeds, size=(resamples, n_seeds))
    draws_B_S = np.vstack([np.arange(n_seeds), drawn])
    draws_B_S.flags.writeable = False  # it is shared
    return draws_B_S


def bounds(estimates_B: np.ndarray, n_seeds: int, statistics: Statistics) -> tuple[float, float, float]:
    """(estimate, low, high) from the estimate and its resamples, in the order of `draws`: the percentile interval.

    Undefined resamples are left out; bounds are NaN where the estimate is undefined and where there is one seed.
    """
    estimate = float(estimates_B[0])
    if n_seeds == 1 or not np.isfinite(estimate):
        return estimate, float("nan"), float("nan")
    tails = 50 * (1 - statistics.confidence), 50 * (1 + statistics.confidence)
    resampled_B = estimates_B[1:]
    low, high = np.percentile(resampled_B[~np.isnan(resampled_B)], tails)
    return estimate, float(low), float(high)


def mean_intervals(values: Mapping[str, np.ndarray], statistics: Statistics) -> dict[str, tuple[float, float, float]]:
    """{name: (mean, low, high)} of each array over its S seeds, by the percentile bootstrap of the mean.

    This is rliable's stratified bootstrap (Agarwal et al., 2021) for one task, where the strata are the arms: runs are
    resampled within an arm, or as pairs when `values` are paired differences. A test compares it with rliable; here the
    draws are made once for all. With S seeds the percentile interval is too narrow by about √((S−1)/S) and more in its
    tails: five seeds show a direction and a size, not significance. A single seed gives NaN bounds; an array with a NaN
    (an undefined ratio, say) gives NaN throughout.
    """
    arrays = {name: np.asarray(array, float) for name, array in values.items()}
    return {
        name: bounds(array[draws(len(array), statistics)].mean(1), len(array), statistics)
        for name, array in arrays.items()
    }


def over_seeds(
    table: pd.DataFrame, by: str | Sequence[str], statistics: Statistics, columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """One row per value of the column or columns `by` (the index, in the order of `table`): of every other column but
    `seed`, or of `columns`, the mean over seeds with its interval in <column>_low and <column>_high.

    A seed with several rows counts once, by their mean. Bounds are NaN for a single seed; see `mean_intervals`.
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


def resample_counts(n_trials: int, n_resamples: int, rng: np.random.Generator) -> np.ndarray:
    """counts_B_K: how often each of B bootstrap resamples takes each of K trials; every row adds up to K."""
    return rng.multinomial(n_trials, np.full(n_trials, 1 / n_trials), size=n_resamples)


def interquartile_mean(final_A_S: np.ndarray, statistics: Statistics) -> np.ndarray:
    """iqm_A_B: mean of the middle half of the runs, for each resample; scipy's trimmed mean at a quarter, which is
    rliable's `aggregate_iqm`. NaN below four runs, where nothing would be trimmed."""
    n_arms, n_seeds = final_A_S.shape
    draws_B_S = draws(n_seeds, statistics)
    if n_seeds < 4:
        return np.full((n_arms, len(draws_B_S)), np.nan)
    cut = n_seeds // 4  # as scipy's trim_mean(…, 0.25) does, without a second of imports in every report
    return np.sort(final_A_S[:, draws_B_S], axis=2)[:, :, cut : n_seeds - cut].mean(2)


def improvement(final_A_S: np.ndarray, baseline_S: np.ndarray, statistics: Statistics) -> np.ndarray:
    """improvement_A_B: P(X > Y) + P(X = Y)/2 over all pairs of an arm's run X with a baseline's run Y: rliable's
    probability of improvement (the Mann–Whitney statistic over S²). Resampled in pairs, as everything here."""
    above_A_S_S = np.sign(final_A_S[:, :, None] - baseline_S[None, None, :]) / 2 + 0.5
    draws_B_S = draws(len(baseline_S), statistics)
    counts_B_S = (draws_B_S[:, :, None] == np.arange(len(baseline_S))).sum(1).astype(float)
    return np.einsum("bx,axy,by->ab", counts_B_S, above_A_S_S, counts_B_S, optimize=True) / len(baseline_S) ** 2
