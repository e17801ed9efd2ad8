"""Cost-aware sampling with a degraded proxy: noise on |A| before p is computed."""

from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.rollouts import NoSignal, Rollouts
from repro.methods.selection.importance import Beta, Budget, Recentre, distribution, draw


def noisy_cost_aware(
    rollouts: Rollouts,
    progress: float,
    rng: np.random.Generator,
    *,
    noise: Annotated[float, Field(ge=0)] = 1.0,
    beta: Beta = 0.0,
    recentre: Recentre = "constant",
    tokens: Budget = None,
) -> Rollouts:
    """The noise ablation (Cost-Aware Learning §5.5, Fig. 5b): cost-aware sampling by a proxy with Gaussian noise.

        p_i ∝ max(0, |A_i| + ξ_i)/√c_i,   ξ_i ~ N(0, σ²),   σ = noise · std(|A|) over the batch

    In units of std(|A|), `noise` sets the quality of the proxy: its Pearson correlation with |A| is 1/√(1 + noise²)
    before the clip at 0 (Theorem D.5). If all |A| are equal, σ is 0. The gradient uses the true advantages, and the
    weights use the p that was drawn from, so given the noise the mean weighted gradient has the direction of the mean
    over the rollouts with p > 0. Those clipped to 0, more often with small |A| than large, are missing from it: a bias
    that `cost_aware` does not have and that β > 0 removes. Rollouts with zero advantage may be drawn. NoSignal if every
    advantage is 0, or every noisy proxy.

    Deviations: the paper states only that the noise has mean zero and a variance, whose values were not available to
    us, and not how |A| is kept non-negative; the Gaussian, its standard deviation in units of std(|A|), and the clip
    are ours. `recentre` and `tokens` as in `repro.methods.selection.importance.draw`.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 0, 0], rewards_N=[1, 0, 0, 0], advantages_N=[1.7, -0.6, -0.6, -0.6],
    ...     prompt_tokens_N=[8, 8, 8, 8], response_tokens_N=[10, 44, 16, 53],
    ... )
    >>> taken = noisy_cost_aware(batch, 0.0, np.random.default_rng(0), noise=0.5)
    >>> taken.row_N
    array([2, 3, 1, 2])
    >>> taken.weights_N.round(2)
    array([1.17, 2.25, 2.28, 1.17])
    """
    proxy_N = np.abs(rollouts.advantages_N)
    if not proxy_N.any():
        raise NoSignal("every advantage in the batch is zero, so p ∝ |A|/√c is undefined; skip the update")
    noisy_N = np.maximum(0.0, proxy_N + noise * proxy_N.std() * rng.standard_normal(len(rollouts)))
    return draw(
        rollouts, distribution(noisy_N / np.sqrt(rollouts.costs_N), beta), rng, recentre=recentre, tokens=tokens
    )
