"""Rewards less the mean of the others in the group."""

import numpy as np

from repro.methods.advantages import deviations, equal_rewards


def rloo(rewards_N: np.ndarray, group_N: np.ndarray) -> np.ndarray:
    """A_N: the reward less that of the group's other rollouts, on average (RLOO: Kool et al., 2019; Ahmadian et al.,
    2024); in units of the reward.

        A_i = r_i − 1/(G−1) Σ_{j ≠ i} r_j = G/(G−1) (r_i − mean_group)

    The baseline does not depend on the rollout's own reward, so the gradient is unbiased. For groups of one size it is
    `centred` times a constant, which Adam almost cancels; of unequal groups the small ones count for more, by a factor
    of 2 for two rollouts and of nearly 1 for many. A rollout alone in its group, which has no others, gets 0, and so
    does a group whose rewards are all equal. ValueError on a reward that is not finite.

    Deviations: RLOO is REINFORCE, with the whole response as one action; here it is the advantage of whichever
    objective the arm has, by default the token ratios of GRPO, equal to it in the gradient of a batch's first update.

    >>> rloo(np.array([1, 0, 0, 0]), np.array([0, 0, 0, 0])).round(3)
    array([ 1.   , -0.333, -0.333, -0.333])
    """
    deviation_N, index_N = deviations(rewards_N, group_N)
    size_N = np.bincount(index_N)[index_N]
    silent_N = equal_rewards(rewards_N, group_N)[index_N]
    return np.where(silent_N, 0.0, deviation_N * size_N / np.maximum(size_N - 1, 1))
