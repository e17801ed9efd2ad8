"""A control for max-variance subsets: equally many rollouts of each group, chosen at random."""

import numpy as np

from repro.methods.rollouts import Rollouts
from repro.methods.selection import Share
from repro.methods.selection.max_variance import group_quotas


def random_quarter(rollouts: Rollouts, progress: float, rng: np.random.Generator, *, share: Share = 0.25) -> Rollouts:
    """From each group, as many rollouts as `d1s` and `pods` keep (`group_quotas`: share · size rounded half up, at
    least 2), every subset of that size equally likely. Every weight is 1 and advantages are those of the whole group,
    so the mean gradient is an unbiased estimate of the whole batch's. Source: ours.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 0, 0, 1, 1, 1, 1], rewards_N=[1, 0, 0, 0, 1, 1, 0, 1],
    ...     advantages_N=[1.7, -0.6, -0.6, -0.6, 0.6, 0.6, -1.7, 0.6],
    ...     prompt_tokens_N=[8, 8, 8, 8, 8, 8, 8, 8], response_tokens_N=[10, 44, 16, 53, 20, 30, 12, 40],
    ... )
    >>> random_quarter(batch, 0.0, np.random.default_rng(0)).row_N
    array([2, 3, 6, 7])
    """
    keep_Q = group_quotas(rollouts.group_N, share)
    _, index_N = np.unique(rollouts.group_N, return_inverse=True)
    order_N = np.lexsort((rng.random(len(rollouts)), index_N))  # by group, random order within
    start_Q = np.searchsorted(index_N[order_N], np.arange(len(keep_Q)))
    place_N = np.empty(len(rollouts), int)
    place_N[order_N] = np.arange(len(rollouts)) - start_Q[index_N[order_N]]
    return rollouts.take(place_N < keep_Q[index_N])
