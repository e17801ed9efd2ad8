"""Kimi k1.5's length reward: of right responses the shorter are worth more."""

from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.lengths import Lengths


def shorter_better(
    rewards_N: np.ndarray,
    group_N: np.ndarray,
    lengths: Lengths,
    *,
    weight: Annotated[float, Field(gt=0, lt=2)] = 0.5,
) -> np.ndarray:
    """A_N: the group-normalised advantage of the reward and a length reward (Kimi k1.5: Kimi Team, 2025, §2.3.3).

        A = group_normalised(r + weight · ℓ),   λ_i = 1/2 − (T_i − min_group T) / (max_group T − min_group T)
        ℓ_i = λ_i if response i is right, min(0, λ_i) if not;   0 if all of the group have one length

    T in tokens. Right means r_i > 0. Below a weight of 2 a right response stays above every wrong one where rewards are
    0 and 1. A group whose answers are all right, or all wrong, gets advantages by its lengths; what goes by rewards
    (`zero_variance`, the share of groups without signal) counts it as silent nevertheless. ValueError on a reward that
    is not finite.

    Deviations: the paper subtracts the mean and does not divide by the standard deviation; it raises the weight during
    training, and does not give it: ours is constant. The paper was known to us second-hand.

    >>> lengths = Lengths(np.array([10, 20, 30, 30]), np.zeros(4, bool), 40)
    >>> shorter_better(np.array([1, 1, 1, 0]), np.zeros(4, int), lengths).round(3)
    array([ 0.988,  0.549,  0.11 , -1.646])
    """
    _, index_N = np.unique(group_N, return_inverse=True)
    low_Q, high_Q = np.full(index_N.max() + 1, np.inf), np.zeros(index_N.max() + 1)
    np.minimum.at(low_Q, index_N, lengths.tokens_N)
    np.maximum.at(high_Q, index_N, lengths.tokens_N)
    spread_N = (high_Q - low_Q)[index_N]
    bonus_N = np.where(spread_N > 0, 0.5 - (lengths.tokens_N - low_Q[index_N]) / np.maximum(spread_N, 1), 0.0)
    bonus_N = np.where(np.asarray(rewards_N) > 0, bonus_N, np.minimum(bonus_N, 0.0))
    return group_normalised(rewards_N + weight * bonus_N, group_N)
