"""pass@k without bias, from n samples of each query."""

from collections.abc import Sequence
from math import comb

import numpy as np
import pandas as pd

KS = (1, 8, 16)


def pass_at_k(successes: np.ndarray, samples: np.ndarray | int, k: int) -> np.ndarray:
    """The chance that one of k samples is right, 1 − C(n−c, k)/C(n, k) for c successes among n samples (Chen et al.,
    2021, eq. 1): the share of all subsets of k that hold a success, so its mean is the true pass@k.

    `samples`: n, one for all or of the shape of `successes`. Exact to the last bit: integers until one division.
    ValueError if k is not in 1 … n, or the successes not in 0 … n.
    """
    successes, samples = np.broadcast_arrays(np.asarray(successes), np.asarray(samples))
    if successes.size == 0:
        return np.zeros(successes.shape)
    if not 1 <= k <= samples.min():
        raise ValueError(f"pass_at_k: k = {k} with {samples.min()} samples; k must be from 1 to the number of samples")
    if (successes < 0).any() or (successes > samples).any():
        raise ValueError("pass_at_k: a query has more successes than samples, or fewer than none")
    result = np.empty(successes.shape)
    for n in np.unique(samples).tolist():
        by_successes = np.array([(comb(n, k) - comb(n - c, k)) / comb(n, k) for c in range(n + 1)])
        same = samples == n
        result[same] = by_successes[successes[same]]
    return result


def run_means(questions: pd.DataFrame, arms: Sequence[str], seeds: Sequence[int], k: int) -> np.ndarray:
    """pass_A_S: each run's mean pass@k over its queries; all NaN where the runs have fewer than k samples.

    ValueError names a run that has no questions, and an arm that was asked other queries than the first."""
    asked = questions[questions["arm"].isin(list(arms))]
    grid = pd.MultiIndex.from_product([arms, seeds], names=["arm", "seed"])
    queries = asked.groupby(["arm", "seed"])["query"].nunique().reindex(grid)
    if queries.isna().any() or queries.nunique() > 1:
        arm, seed = (queries.isna() | (queries != queries.iloc[0])).idxmax()
        raise ValueError(f"pass@k: {arm} with seed {seed} lacks questions that others answered; train it again")
    if asked["samples"].min() < k:
        return np.full((len(arms), len(seeds)), np.nan)
    rates = asked[["arm", "seed"]].assign(rate=pass_at_k(asked["successes"].to_numpy(), asked["samples"].to_numpy(), k))
    return rates.groupby(["arm", "seed"])["rate"].mean().reindex(grid).to_numpy().reshape(len(arms), len(seeds))
