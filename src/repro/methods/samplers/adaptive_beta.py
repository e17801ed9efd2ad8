"""Smoothed cost-aware sampling with β set at every step from the effective sample size."""

import numpy as np

from repro.methods.rollouts import Rollouts
from repro.methods.samplers.cost_aware import probabilities
from repro.methods.selection import Share
from repro.methods.selection.importance import Budget, Recentre, beta_for_ess, draw, smoothed


def adaptive_beta(
    rollouts: Rollouts,
    progress: float,
    rng: np.random.Generator,
    *,
    target: Share = 0.5,
    recentre: Recentre = "constant",
    tokens: Budget = None,
) -> Rollouts:
    """Cost-aware sampling with the least smoothing at which the weights' effective sample size reaches a target.

        p^β = (1−β) p + β/N,   p_i ∝ |A_i|/√c_i,   β = min{β : s(p^β) ≥ target},   s(p) = S²/Σ_{p_i>0} (1/p_i)

    s is the expected Kish effective sample size per draw: weights w = 1/(S p_i), S = #{p_i > 0}, have E_p[w] = 1 and
    E_p[w²] = 1/s, so that E(Σw)²/E Σw² = 1 + (M−1) s for M draws: s + (1−s)/M of M. (A ratio of expectations; the
    expected ratio differs from it by O(1/M).) On (0, 1] s increases with β up to 1, so β is computed by bisection.

    β > 0 also draws rollouts with zero advantage, which count in s although their gradient is zero, so β jumps from 0
    to a value large enough for them. Put `zero_variance` first to smooth over groups with a signal only.

    Source: ours; the paper mentions setting β during training as future work. `recentre` and `tokens` as in
    `repro.methods.selection.importance.draw`. NoSignal if every advantage is 0.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 0, 0], rewards_N=[1, 0, 0, 0], advantages_N=[1.7, -0.6, -0.6, -0.6],
    ...     prompt_tokens_N=[8, 8, 8, 8], response_tokens_N=[10, 44, 16, 53],
    ... )
    >>> taken = adaptive_beta(batch, 0.0, np.random.default_rng(0), target=0.9)
    >>> taken.row_N
    array([2, 0, 0, 0])
    >>> taken.weights_N.round(2)
    array([1.16, 0.61, 0.61, 0.61])
    """
    p_N = probabilities(rollouts)
    return draw(rollouts, smoothed(p_N, beta_for_ess(p_N, target)), rng, recentre=recentre, tokens=tokens)
