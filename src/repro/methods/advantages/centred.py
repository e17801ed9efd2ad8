"""Rewards centred within the group, without dividing by their standard deviation."""

import numpy as np

from repro.methods.advantages import deviations, equal_rewards


def centred(rewards_N: np.ndarray, group_N: np.ndarray) -> np.ndarray:
    """A_N: A_i = r_i − mean_group, Dr. GRPO's advantage (Liu et al., 2025); in units of the reward.

    Without the division by the standard deviation, groups that are nearly solved or nearly unsolvable are no longer
    magnified. Dr. GRPO's other change, not dividing the loss by the response length, is `aggregation: constant-length`.
    A group whose rewards are all equal gets exactly 0. ValueError on a reward that is not finite.

    >>> centred(np.array([1, 0, 0, 0]), np.array([0, 0, 0, 0]))
    array([ 0.75, -0.25, -0.25, -0.25])
    """
    deviation_N, index_N = deviations(rewards_N, group_N)
    return np.where(equal_rewards(rewards_N, group_N)[index_N], 0.0, deviation_N)
