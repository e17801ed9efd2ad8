"""Smoothed cost-aware sampling whose β is set at every step from the effective sample size."""

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
    """Cost-aware sampling with the least smoothing for which the weights' effective sample size reaches a target share.

        p^β = (1−β) p + β/N,   p_i ∝ |A_i|/√c_i,   β = min{β : s(p^β) ≥ target},   s(p) = S²/Σ_{p_i>0} (1/p_i)

    s is the expected Kish effective sample size per draw: weights w = 1/(S p_i), S = #{p_i > 0}, have E_p[w] = 1 and
    E_p[w²] = 1/s, so that E(Σw)²/E Σw² = 1 + (M−1) s for M draws: s + (1−s)/M of M. (A ratio of expectations; the
    expected ratio differs from it by O(1/M).) On (0, 1] s rises with β to 1, so β is found by bisection.

    β > 0 also draws rollouts without an advantage, at large weights while β is small, and these count in s although
    their gradient is zero: s falls to 0 as β → 0 where there are any, while at β = 0 they are out of S. So β jumps from
    0 to a value that serves them. Put `zero_variance` before it to smooth over the groups with a signal alone; then β
    is continuous in the target.

    Source: ours; the paper names a β set while training as future work. `recentre` and `tokens` as in
    `repro.methods.selection.importance.draw`. NoSignal if every advantage is 0.
    """
    p_N = probabilities(rollouts)
    return draw(rollouts, smoothed(p_N, beta_for_ess(p_N, target)), rng, recentre=recentre, tokens=tokens)
