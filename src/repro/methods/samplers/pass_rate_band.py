"""A band of pass rates: groups that the policy neither nearly always nor hardly ever solves."""

import numpy as np

from repro.methods.filters.pass_rate import Rate, pass_rate
from repro.methods.rollouts import NoSignal, Rollouts


def pass_rate_band(
    rollouts: Rollouts, progress: float, rng: np.random.Generator, *, low: Rate = 0.2, high: Rate = 0.8
) -> Rollouts:
    """The groups of the batch whose mean raw reward lies in a band (balanced online difficulty filtering: Bae et al.,
    2025).

        Q̂ = {q : low ≤ p̂_q ≤ high},   p̂_q = 1/G Σ_{i ∈ q} r_i

    With rewards of 0 and 1, p̂ is the pass rate of the policy that is trained, of as few samples as a group has: of
    eight, 0.2 to 0.8 are two to six. Every weight is 1; the rest is spread over as many optimiser steps as the whole
    batch would get. ValueError if low is above high, NoSignal if no group is left.

    Deviations: no refill; the paper samples further queries until the batch is full, here it shrinks. The paper was
    known to us second-hand; its thresholds are parameters, and these defaults are of common use.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 0, 0, 1, 1, 1, 1], rewards_N=[1, 0, 0, 0, 1, 1, 1, 1],
    ...     advantages_N=[1.7, -0.6, -0.6, -0.6, 0.0, 0.0, 0.0, 0.0],
    ...     prompt_tokens_N=[8, 8, 8, 8, 8, 8, 8, 8], response_tokens_N=[10, 44, 16, 53, 20, 30, 12, 40],
    ... )
    >>> pass_rate_band(batch, 0.0, np.random.default_rng(0)).row_N
    array([0, 1, 2, 3])
    """
    if low > high:
        raise ValueError(f"pass_rate_band: low {low} is above high {high}, so no group can pass; exchange them")
    _, index_N = np.unique(rollouts.group_N, return_inverse=True)
    kept_N = pass_rate(rollouts.rewards_N, rollouts.group_N, low=low, high=high)[index_N]
    if not kept_N.any():
        raise NoSignal(f"no group's mean reward lies between {low} and {high}; skip the update")
    return rollouts.take(kept_N)
