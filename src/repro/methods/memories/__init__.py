"""Memories: which groups are remembered beyond their step, and which of them train again.

A memory is a function `(rewards_N, group_N, age_Q, rng, *, parameters) -> Remembered` in a module of the same name. It
sees the groups of the step, of age 0, those that passed the filter, and then those it holds, of the age in steps of
their rollouts.

A rollout that trains again keeps the log-probabilities with which it was drawn, so nothing is scored again, and its
ratio is taken to the policy of then:

    ρ_t = π(y_t) / π_then(y_t),

which is 1 only as long as the policy has not moved. An objective that clips, clips the steps in between too: a token
whose probability has since moved by more than the clip, in the direction of its advantage, has no gradient, so what is
old enough teaches nothing. An objective that weighs by the ratio (`cispo`) counts such a token more, up to its clip.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Remembered:
    """train_Q   bool    the groups that train in this step
    hold_Q    bool    the groups that are held for the next
    """

    train_Q: np.ndarray
    hold_Q: np.ndarray
