"""Advantages: how good a reward is relative to the others in its group.

An advantage is a function `(rewards_N, group_N, *, parameters) -> advantages_N` in a module of the same name, or
`(rewards_N, group_N, lengths, *, parameters)` if it goes by the length of responses (`repro.methods.lengths.Lengths`).
"""

import numpy as np


def equal_rewards(rewards_N: np.ndarray, group_N: np.ndarray) -> np.ndarray:
    """equal_Q: whether a group has zero variance: its largest raw reward equals its smallest. Groups in sorted order.

    The comparison is exact, since a threshold on the standard deviation depends on the rewards' scale and on rounding.
    """
    rewards_N = np.asarray(rewards_N, float)
    _, index_N = np.unique(group_N, return_inverse=True)
    low_Q, high_Q = np.full(index_N.max() + 1, np.inf), np.full(index_N.max() + 1, -np.inf)
    np.minimum.at(low_Q, index_N, rewards_N)
    np.maximum.at(high_Q, index_N, rewards_N)
    return low_Q == high_Q


def deviations(rewards_N: np.ndarray, group_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(r_i − mean_group of each rollout, index_N of its group in sorted order). A reward that equals the mean but for
    the rounding of that mean, as 0.2 among 0.1, 0.2 and 0.3, deviates by exactly 0: otherwise it would count as a
    signal. ValueError on a reward that is not finite."""
    rewards_N = np.asarray(rewards_N, float)
    if not np.isfinite(rewards_N).all():
        where = int(np.flatnonzero(~np.isfinite(rewards_N))[0])
        raise ValueError(f"advantages: rewards_N[{where}] is {rewards_N[where]}; mend the verifier, rewards are finite")
    _, index_N = np.unique(group_N, return_inverse=True)
    size_Q = np.bincount(index_N)
    deviation_N = rewards_N - (np.bincount(index_N, rewards_N) / size_Q)[index_N]
    largest_Q = np.zeros(len(size_Q))
    np.maximum.at(largest_Q, index_N, np.abs(rewards_N))
    rounding_Q = size_Q * largest_Q * np.finfo(float).eps
    return np.where(np.abs(deviation_N) <= rounding_Q[index_N], 0.0, deviation_N), index_N


def groups_without_signal(rewards_N: np.ndarray, group_N: np.ndarray) -> float:
    """Fraction of groups whose raw rewards are all equal: 1 minus D³S's sample usefulness rate of the whole batch."""
    return float(equal_rewards(rewards_N, group_N).mean())
