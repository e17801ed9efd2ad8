"""A control: as many tokens as cost-aware sampling would train on, chosen blindly."""

import numpy as np

from repro.rollouts import Rollouts
from repro.samplers.cost_aware import probabilities


def random_subset(rollouts: Rollouts, progress: float, rng: np.random.Generator) -> Rollouts:
    """A uniform draw without replacement that costs what the `cost_aware` draw of this batch costs in expectation.

    The budget is B = N Σ_i p_i c_i tokens with `cost_aware`'s p at β = 0. Rollouts are taken in random order up to the
    prefix whose cost is nearest to B, at least one; every weight is 1. The number of mini-batches stays that of the
    whole batch, as for `cost_aware`, so the two arms differ in *which* rollouts train and in nothing else.
    Source: ours; a control that none of the papers has. NoSignal if every advantage is 0.
    """
    budget = len(rollouts) * float(probabilities(rollouts) @ rollouts.costs_N)
    order_N = rng.permutation(len(rollouts))
    spent_N = np.cumsum(rollouts.costs_N[order_N])
    nearest = int(np.argmin(np.abs(spent_N - budget)))
    return rollouts.take(order_N[: nearest + 1])
