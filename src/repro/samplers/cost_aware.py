"""Cost-aware sampling: draw rollouts in proportion to signal per root of cost."""

from typing import Annotated

import numpy as np
from pydantic import Field

from repro.rollouts import NoSignal, Rollouts


def probabilities(rollouts: Rollouts, beta: float = 0.0) -> np.ndarray:
    """p_N: p_i = (|A_i|/√c_i) / Σ_j |A_j|/√c_j, smoothed to (1−β) p + β/N. Sums to 1. NoSignal if every A is 0."""
    signal_N = np.abs(rollouts.advantages_N) / np.sqrt(rollouts.costs_N)
    if not signal_N.any():
        raise NoSignal("every advantage in the batch is zero, so p ∝ |A|/√c is undefined; skip the update")
    return (1.0 - beta) * signal_N / signal_N.sum() + beta / len(rollouts)


def cost_aware(
    rollouts: Rollouts,
    progress: float,
    rng: np.random.Generator,
    *,
    beta: Annotated[float, Field(ge=0, le=1)] = 0.0,
) -> Rollouts:
    """Cost-Aware GRPO (Cost-Aware Learning, Algorithm 2; eq. 5 with |A| for the gradient norm; weights of eq. 22).

        p_i = (|A_i| / √c_i) / Σ_j (|A_j| / √c_j),   p^β = (1−β) p + β/N,   c_i = prompt + response tokens

    N draws with replacement fill as many mini-batches as the whole batch would have. A draw of i carries the weight
    1/(N p_i), divided by its expectation E_p[1/(N p_i)] = #{p_i > 0}/N so that weights average 1 (App. G.2). That
    divisor is a constant of the batch, so the mean weighted gradient estimates the full-batch mean gradient times
    N/#{p_i > 0}: its direction is unbiased, its length is not that of the full-batch gradient, as in the paper. Under
    Adam this factor all but cancels; it matters where the gradient norm is clipped.

    Deviations: none known. The paper's β values were stripped from our text; ours are parameters.
    """
    p_N = probabilities(rollouts, beta)
    n = len(rollouts)
    drawn_N = rng.choice(n, size=n, p=p_N)
    return rollouts.take(drawn_N, 1.0 / (np.count_nonzero(p_N) * p_N[drawn_N]))
