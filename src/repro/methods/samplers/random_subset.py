"""A control: as many tokens as cost-aware sampling would train on, chosen at random."""

import numpy as np

from repro.methods.rollouts import Rollouts
from repro.methods.samplers.cost_aware import probabilities


def random_subset(rollouts: Rollouts, progress: float, rng: np.random.Generator) -> Rollouts:
    """A uniform draw with the same expected cost as `cost_aware`'s draw from this batch.

    The budget is B = N Σ_i p_i c_i tokens, with `cost_aware`'s p at β = 0. A number m of rollouts, E[m] = B / mean(c),
    is drawn, so the expected number of tokens is exactly B and every rollout is equally likely whatever its length. If
    B exceeds the whole batch, every rollout trains once and the remainder is drawn in addition. Every weight is 1. The
    number of mini-batches is that of the whole batch, as for `cost_aware`: the two arms differ in *which* rollouts
    train (and, through the weights, in the scale of the gradient; see `cost_aware`).
    Source: ours; a control that none of the papers has. NoSignal if every advantage is 0, and, where the budget is less
    than the mean cost of a rollout, as often as m is 0: one rollout each time would spend more than B.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 0, 0], rewards_N=[1, 0, 0, 0], advantages_N=[1.7, -0.6, -0.6, -0.6],
    ...     prompt_tokens_N=[8, 8, 8, 8], response_tokens_N=[10, 44, 16, 53],
    ... )
    >>> random_subset(batch, 0.0, np.random.default_rng(0)).row_N
    array([0, 3, 1])
    """
    costs_N = rollouts.costs_N
    n = len(rollouts)
    exact = n * float(probabilities(rollouts) @ costs_N) / costs_N.mean()
    size = int(exact) + int(rng.random() < exact - int(exact))
    whole, rest = divmod(size, n)
    return rollouts.take(np.concatenate([np.tile(np.arange(n), whole), rng.choice(n, size=rest, replace=False)]))
