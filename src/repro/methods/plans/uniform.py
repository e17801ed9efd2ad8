"""All queries treated alike: shuffled epochs, one group size."""

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.plans import PlannedGroup, Queries, epochs


def uniform(
    queries: Queries,
    rollouts_per_step: int,
    rng: np.random.Generator,
    *,
    group_size: Annotated[int, Field(ge=2)] = 8,
) -> Iterator[PlannedGroup]:
    """rollouts_per_step / group_size queries per step; each epoch visits every query once, in a new random order.

    No query is repeated or lost within an epoch: its tail starts the next step. ValueError if the budget is not a
    multiple of the group size, or holds more groups than there are queries.

    >>> plan = uniform(Queries(np.array([8, 8, 8, 8])), 4, np.random.default_rng(0), group_size=2)
    >>> [next(plan).query for _ in range(4)]
    [2, 0, 1, 3]
    """
    queries.groups_per_step("uniform", rollouts_per_step, group_size)
    return (PlannedGroup(query, group_size) for query in epochs(len(queries), rng))
