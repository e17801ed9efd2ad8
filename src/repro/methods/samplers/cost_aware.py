"""Cost-aware sampling: draw rollouts with probability proportional to signal / √cost."""

import numpy as np

from repro.methods.rollouts import Rollouts
from repro.methods.selection.importance import Beta, Budget, Recentre, Resampling, distribution, draw


def probabilities(rollouts: Rollouts, beta: float = 0.0) -> np.ndarray:
    """p_N: p_i = (|A_i|/√c_i) / Σ_j |A_j|/√c_j, smoothed to (1−β) p + β/N. Sums to 1. NoSignal if every A is 0."""
    return distribution(np.abs(rollouts.advantages_N) / np.sqrt(rollouts.costs_N), beta)


def cost_aware(
    rollouts: Rollouts,
    progress: float,
    rng: np.random.Generator,
    *,
    beta: Beta = 0.0,
    recentre: Recentre = "constant",
    tokens: Budget = None,
    resampling: Resampling = "independent",
) -> Rollouts:
    """Cost-Aware GRPO (Cost-Aware Learning, Algorithm 2; eq. 5 with |A| for the gradient norm; weights of eq. 22).

        p_i = (|A_i| / √c_i) / Σ_j (|A_j| / √c_j),   p^β = (1−β) p + β/N,   c_i = prompt + response tokens

    N draws with replacement fill as many mini-batches as the whole batch would have. A draw of i has the weight
    1/(N p_i), divided by its expectation E_p[1/(N p_i)] = #{p_i > 0}/N so that weights average 1 (App. G.2). That
    divisor is a constant of the batch, so the mean weighted gradient estimates the full-batch mean gradient times
    N/#{p_i > 0}: its direction is unbiased, its norm is not that of the full-batch gradient, as in the paper. Adam
    almost cancels this factor; it matters when the gradient norm is clipped.

    recentre "mean": divide the weights by their mean over the whole draw instead (not over each mini-batch, since the
    engine forms those later); the gradient is then self-normalised and biased by O(1/N).
    tokens: instead of N draws, draw until they cost this fraction of the batch's tokens, the last draw included. Their
    number is then random, and the weights get a factor that keeps the direction unbiased (selection.importance.draw).

    resampling "systematic": the same p and weights, but a row is drawn ⌊N p_i⌋ or ⌈N p_i⌉ times, N p_i on average: as
    unbiased, with less variance (selection.importance.draw). Not together with `tokens`.
    beta 1: uniform with replacement, the baseline of the paper's theory.

    Deviations: none known at the defaults, but Algorithm 2 is missing from our copy: N draws with replacement and
    re-centring by E_p are our reading of §5.2 and App. G.2. `tokens` and `resampling` are ours. The paper's β values
    were not available to us; ours are parameters.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 0, 0], rewards_N=[1, 0, 0, 0], advantages_N=[1.7, -0.6, -0.6, -0.6],
    ...     prompt_tokens_N=[8, 8, 8, 8], response_tokens_N=[10, 44, 16, 53],
    ... )
    >>> taken = cost_aware(batch, 0.0, np.random.default_rng(0))
    >>> taken.row_N
    array([1, 0, 0, 0])
    >>> taken.weights_N.round(2)
    array([2.05, 0.43, 0.43, 0.43])
    """
    return draw(rollouts, probabilities(rollouts, beta), rng, recentre=recentre, tokens=tokens, resampling=resampling)
