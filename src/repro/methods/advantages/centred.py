"""Rewards centred within the group, without dividing by their standard deviation."""

import numpy as np

from repro.methods.advantages import equal_rewards


def centred(rewards_N: np.ndarray, group_N: np.ndarray) -> np.ndarray:
    """A_N: A_i = r_i − mean_group, Dr. GRPO's advantage (Liu et al., 2025); in units of the reward.

    Without the division by the standard deviation, groups that are nearly solved or nearly unsolvable are no longer
    magnified. Dr. GRPO's other change, not dividing the loss by the response length, is `aggregation: constant-length`.
    A group whose rewards are all equal gets exactly 0. ValueError on a reward that is not finite.
    """
    rewards_N = np.asarray(rewards_N, float)
    if not np.isfinite(rewards_N).all():
        where = int(np.flatnonzero(~np.isfinite(rewards_N))[0])
        raise ValueError(f"advantages: rewards_N[{where}] is {rewards_N[where]}; mend the verifier, rewards are finite")
    _, index_N = np.unique(group_N, return_inverse=True)
    mean_Q = np.bincount(index_N, rewards_N) / np.bincount(index_N)
    return np.where(equal_rewards(rewards_N, group_N)[index_N], 0.0, rewards_N - mean_Q[index_N])
