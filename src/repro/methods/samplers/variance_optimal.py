"""Variance-optimal sampling: draw rollouts with probability proportional to signal, whatever the cost."""

import numpy as np

from repro.methods.rollouts import Rollouts
from repro.methods.selection.importance import Beta, Budget, Recentre, distribution, draw


def variance_optimal(
    rollouts: Rollouts,
    progress: float,
    rng: np.random.Generator,
    *,
    beta: Beta = 0.0,
    recentre: Recentre = "constant",
    tokens: Budget = None,
) -> Rollouts:
    """Least variance per draw (Cost-Aware Learning §4.3, eq. 9, its "variance" baseline; |A| for the gradient norm).

        p_i = |A_i| / Σ_j |A_j|,   p^β = (1−β) p + β/N

    N draws with replacement, weights 1/(N p_i) re-centred by #{p_i > 0}/N as in `cost_aware`: direction unbiased.
    `recentre: mean` divides by the mean weight of the whole draw instead, biased by O(1/N). `tokens` draws until that
    fraction of the batch's tokens is reached instead of N times. See `repro.methods.selection.importance.draw`.
    NoSignal if every advantage is 0.

    Deviations: the paper uses this distribution for SGD, not in its GRPO runs.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 0, 0], rewards_N=[1, 0, 0, 0], advantages_N=[1.7, -0.6, -0.6, -0.6],
    ...     prompt_tokens_N=[8, 8, 8, 8], response_tokens_N=[10, 44, 16, 53],
    ... )
    >>> taken = variance_optimal(batch, 0.0, np.random.default_rng(0))
    >>> taken.row_N
    array([1, 0, 0, 0])
    >>> taken.weights_N.round(2)
    array([1.46, 0.51, 0.51, 0.51])
    """
    p_N = distribution(np.abs(rollouts.advantages_N), beta)
    return draw(rollouts, p_N, rng, recentre=recentre, tokens=tokens)
