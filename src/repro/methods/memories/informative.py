"""Informative: groups without a signal are replaced by groups of earlier steps that have one."""

from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.advantages import deviations, equal_rewards
from repro.methods.memories import Remembered

Count = Annotated[int, Field(ge=1)]


def informative(
    rewards_N: np.ndarray,
    group_N: np.ndarray,
    age_Q: np.ndarray,
    rng: np.random.Generator,
    *,
    capacity: Count = 32,
    oldest: Count = 4,
) -> Remembered:
    """In place of each of the step's groups whose rewards are all equal, one that is held, drawn without replacement by

        p_q ∝ s_q = Σ_{i ∈ q} |A_i| · σ_q = Σ_{i ∈ q} |r_i − r̄_q|,

    its advantages group-normalised; while there are any. The `capacity` groups of largest s_q > 0 are held, the younger
    of equal ones, and none longer than for `oldest` steps. Source: TRL's GRPO with a replay buffer (pull request 4060).
    Deviations: an age limit, and that the probabilities are those of s_q whatever the arm's advantage.

    >>> rewards_N, group_N = np.array([0, 0, 1, 0, 1, 0, 1, 1]), np.repeat([0, 1, 2, 3], 2)
    >>> found = informative(rewards_N, group_N, np.array([0, 0, 1, 2]), np.random.default_rng(0), capacity=2)
    >>> found.train_Q, found.hold_Q
    (array([False,  True,  True, False]), array([False,  True,  True, False]))
    """
    deviation_N, index_N = deviations(rewards_N, group_N)
    score_Q = np.bincount(index_N, np.abs(deviation_N))
    fresh_Q, silent_Q = age_Q == 0, equal_rewards(rewards_N, group_N)
    silent, held = np.flatnonzero(fresh_Q & silent_Q), np.flatnonzero(~fresh_Q & ~silent_Q)
    train_Q, count = fresh_Q.copy(), min(len(silent), len(held))
    if count:
        train_Q[silent[:count]] = False
        train_Q[rng.choice(held, count, replace=False, p=score_Q[held] / score_Q[held].sum())] = True
    order = np.lexsort((age_Q, -score_Q))
    best = order[(~silent_Q & (age_Q < oldest))[order]][:capacity]
    return Remembered(train_Q, np.isin(np.arange(len(age_Q)), best))
