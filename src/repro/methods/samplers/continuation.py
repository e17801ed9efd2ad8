"""Continuation: the rollouts that decided whether a group is drawn to its end do not train."""

from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.rollouts import Rollouts


def continuation(
    rollouts: Rollouts, progress: float, rng: np.random.Generator, *, screening: Annotated[int, Field(ge=1)] = 4
) -> Rollouts:
    """The rollouts of each group after its first `screening`, with the advantages of the whole group: those whose
    rewards no choice has seen. Groups that are not longer than their screening are left out. First in its chain, since
    it goes by the order in which rollouts were drawn. NoSignal if no group was continued.

    Source: ours, for plans that draw in stages (`speed_rl`, `pilot_commit`), which train on both parts as published.
    Deviations: none, since the papers have no such rule.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 0, 0, 1, 1], rewards_N=[1, 0, 1, 0, 0, 0], advantages_N=[1.0, -1.0, 1.0, -1.0, 0.0, 0.0],
    ...     prompt_tokens_N=[8] * 6, response_tokens_N=[10, 44, 16, 53, 20, 30],
    ... )
    >>> continuation(batch, 0.0, np.random.default_rng(0), screening=2).row_N
    array([2, 3])
    """
    _, first_Q, index_N = np.unique(rollouts.group_N, return_index=True, return_inverse=True)
    return rollouts.take(np.arange(len(rollouts)) - first_Q[index_N] >= screening)
