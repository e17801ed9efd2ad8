"""−LEN: draw rollouts with probability proportional to 1/√cost, whatever the advantage."""

import numpy as np

from repro.methods.rollouts import Rollouts
from repro.methods.selection.importance import Beta, Budget, Recentre, distribution, draw


def length_only(
    rollouts: Rollouts,
    progress: float,
    rng: np.random.Generator,
    *,
    beta: Beta = 0.0,
    recentre: Recentre = "constant",
    tokens: Budget = None,
) -> Rollouts:
    """−LEN (Cost-Aware Learning, App. G.6): cost-aware sampling with every gradient norm taken as equal.

        p_i = (1/√c_i) / Σ_j (1/√c_j),   p^β = (1−β) p + β/N,   c_i = prompt + response tokens

    Rollouts with zero advantage are drawn too. Every p_i > 0, so the weights 1/(N p_i) already average 1, and the mean
    weighted gradient is an unbiased estimate of the full-batch mean, norm included (`recentre: constant`, N draws).
    `recentre: mean` divides by the mean weight of the whole draw instead, biased by O(1/N). `tokens` draws until that
    fraction of the batch's tokens is reached instead of N times. See `repro.methods.selection.importance.draw`.

    Deviations: none known. The paper's −LEN has neither β nor a budget; nor have our defaults.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 0, 0], rewards_N=[1, 0, 0, 0], advantages_N=[1.7, -0.6, -0.6, -0.6],
    ...     prompt_tokens_N=[8, 8, 8, 8], response_tokens_N=[10, 44, 16, 53],
    ... )
    >>> taken = length_only(batch, 0.0, np.random.default_rng(0))
    >>> taken.row_N
    array([2, 0, 0, 0])
    >>> taken.weights_N.round(2)
    array([0.87, 0.75, 0.75, 0.75])
    """
    p_N = distribution(1.0 / np.sqrt(rollouts.costs_N), beta)
    return draw(rollouts, p_N, rng, recentre=recentre, tokens=tokens)
