"""Advantages relative to the group."""

import numpy as np


def group_advantages(rewards_N: np.ndarray, group_N: np.ndarray, delta: float = 1e-6) -> np.ndarray:
    """A_N: A_i = (r_i − mean_group) / (std_group + δ), GRPO's advantage (Shao et al., 2024; Cost-Aware Learning §5.2).

    The standard deviation is the population's (divides by G). A group whose rewards are all equal gets exactly 0, not
    rounding noise divided by δ. Raises ValueError on a reward that is not finite.
    """
    rewards_N = np.asarray(rewards_N, float)
    if not np.isfinite(rewards_N).all():
        where = int(np.flatnonzero(~np.isfinite(rewards_N))[0])
        raise ValueError(f"advantages: rewards_N[{where}] is {rewards_N[where]}; mend the verifier, rewards are finite")
    _, index_N = np.unique(group_N, return_inverse=True)
    size_Q = np.bincount(index_N)
    centred_N = rewards_N - (np.bincount(index_N, rewards_N) / size_Q)[index_N]
    std_Q = np.sqrt(np.bincount(index_N, centred_N**2) / size_Q)
    return np.where(_equal_rewards(rewards_N, index_N, len(size_Q))[index_N], 0.0, centred_N / (std_Q[index_N] + delta))


def groups_without_signal(rewards_N: np.ndarray, group_N: np.ndarray) -> float:
    """Share of groups whose raw rewards are all equal; 1 minus D³S's sample usefulness rate of the whole batch."""
    _, index_N = np.unique(group_N, return_inverse=True)
    return float(_equal_rewards(np.asarray(rewards_N, float), index_N, index_N.max() + 1).mean())


def _equal_rewards(rewards_N: np.ndarray, index_N: np.ndarray, n_groups: int) -> np.ndarray:
    """Zero variance, exactly: the group's largest raw reward equals its smallest."""
    low_Q, high_Q = np.full(n_groups, np.inf), np.full(n_groups, -np.inf)
    np.minimum.at(low_Q, index_N, rewards_N)
    np.maximum.at(high_Q, index_N, rewards_N)
    return low_Q == high_Q
