"""Rewards centred within the group and normalised over the batch."""

from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.advantages import deviations, equal_rewards


def batch_normalised(
    rewards_N: np.ndarray, group_N: np.ndarray, *, delta: Annotated[float, Field(ge=0)] = 1e-6
) -> np.ndarray:
    """A_N: A_i = (r_i − mean_group) / (std_batch + δ), of REINFORCE++ (Hu et al., 2025) the variant with a group
    baseline, for several responses to a query.

        std_batch = √(1/N Σ_i (r_i − mean_group(i))²)

    One scale for the whole batch: a group that is nearly solved or unsolvable is not magnified. The paper also
    subtracts the batch's mean of the centred rewards, which is 0. A group whose rewards are all equal gets exactly 0,
    and counts in N. ValueError on a reward that is not finite.

    Deviations: the other variant, without groups and with the KL divergence in the reward, is not this one. Nor is its
    KL term, k2 in the loss: `engine.kl` is k3. verl's mean and variance run over tokens, so that a long response counts
    for more; ours over rollouts. The paper was known to us second-hand.

    >>> batch_normalised(np.array([1, 0, 1, 1]), np.array([0, 0, 1, 1])).round(3)
    array([ 1.414, -1.414,  0.   ,  0.   ])
    """
    deviation_N, index_N = deviations(rewards_N, group_N)
    deviation_N = np.where(equal_rewards(rewards_N, group_N)[index_N], 0.0, deviation_N)
    scale = np.sqrt(np.mean(deviation_N**2)) + delta
    return deviation_N / scale if deviation_N.any() else deviation_N
