"""Zero-variance filtering: drop groups without a learning signal."""

import numpy as np

from repro.methods.advantages import equal_rewards
from repro.methods.rollouts import NoSignal, Rollouts


def zero_variance(rollouts: Rollouts, progress: float, rng: np.random.Generator) -> Rollouts:
    """Zero-variance filtering (DAPO, Yu et al., 2025; ZVF in Cost-Aware Learning §5.3): drop every group whose raw
    rewards are all equal.

    Equal means exactly equal: the group's largest raw reward is its smallest
    (`repro.methods.advantages.equal_rewards`). There is no threshold on a standard deviation, and advantages are not
    consulted; rewards that differ by rounding count as different. Every weight is 1. NoSignal if no group is left.

    Deviations: no refill. DAPO and Cost-Aware Learning generate further groups until the batch is full (as does
    `repro.methods.filters.zero_variance`); here the batch shrinks, and the rest is spread over as many optimiser steps
    as the whole batch would get.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 1, 1], rewards_N=[1, 0, 1, 1],
    ...     advantages_N=[1.0, -1.0, 0.0, 0.0],
    ...     prompt_tokens_N=[8, 8, 8, 8], response_tokens_N=[10, 44, 16, 53],
    ... )
    >>> zero_variance(batch, 0.0, np.random.default_rng(0)).row_N
    array([0, 1])
    """
    _, index_N = np.unique(rollouts.group_N, return_inverse=True)
    mixed_N = ~equal_rewards(rollouts.rewards_N, rollouts.group_N)[index_N]
    if not mixed_N.any():
        raise NoSignal("every group's raw rewards are equal, so the filter leaves none; skip the update")
    return rollouts.take(mixed_N)
