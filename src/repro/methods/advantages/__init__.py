"""Advantages: how good a reward is relative to the others in its group.

An advantage is a function `(rewards_N, group_N, *, parameters) -> advantages_N` in a module of the same name.
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


def groups_without_signal(rewards_N: np.ndarray, group_N: np.ndarray) -> float:
    """Fraction of groups whose raw rewards are all equal: 1 minus D³S's sample usefulness rate of the whole batch."""
    return float(equal_rewards(rewards_N, group_N).mean())
