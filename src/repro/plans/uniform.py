"""Every query alike: shuffled epochs, one group size."""

from typing import Annotated

import numpy as np
from pydantic import Field

from repro.plans import Plan, PlannedGroup


def uniform(
    n_queries: int,
    rollouts_per_step: int,
    steps: int,
    rng: np.random.Generator,
    *,
    group_size: Annotated[int, Field(ge=2)] = 8,
) -> Plan:
    """rollouts_per_step // group_size queries a step; each epoch visits every query once, in an order of its own.

    No query comes twice in an epoch and none is lost: an epoch's tail opens the next step. Raises ValueError when the
    budget is not a multiple of the group size, or holds more groups than there are queries.
    """
    groups, rest = divmod(rollouts_per_step, group_size)
    if rest or groups == 0:
        raise ValueError(
            f"uniform: {rollouts_per_step} rollouts a step cannot be split into groups of {group_size}; "
            "make engine.rollouts_per_step a multiple of the group size"
        )
    epochs = -(-groups * steps // n_queries)
    order = np.concatenate([rng.permutation(n_queries) for _ in range(epochs)]).tolist()
    return [
        [PlannedGroup(query, group_size) for query in order[step * groups : (step + 1) * groups]]
        for step in range(steps)
    ]
