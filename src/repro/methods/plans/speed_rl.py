"""SPEED-RL: a few rollouts of a query tell whether the rest of its group is worth drawing."""

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.plans import PlannedGroup, Queries, epochs

Count = Annotated[int, Field(ge=2)]


class speed_rl:
    """Shuffled epochs; each group begins with `screening` rollouts and is drawn to `group_size` only if these differ:

        N_cont = G − N_init   if 0 < (1/N_init) Σ_i r_i < 1,   else 0.

    Both parts train, their advantages taken together; sampler `continuation` leaves the screening out. Source: SPEED
    (Zhang, Arora, Mei and Zanette, 2025, arXiv:2506.09016), with its thresholds 0 and 1. ValueError as `uniform`, or if
    the screening is the whole group.
    Deviations: a group is screened and drawn in the same step, where the paper screens the next batch meanwhile;
    rewards that differ stand for a rate between 0 and 1; sizes are smaller than the paper's.

    >>> plan = speed_rl(Queries(np.full(4, 8)), 16, np.random.default_rng(0))
    >>> next(iter(plan)).largest
    16
    >>> plan.more([2, 0], [np.array([0, 1, 0, 0]), np.zeros(4)], 24)
    [12, 0]
    """

    def __init__(
        self,
        queries: Queries,
        rollouts_per_step: int,
        rng: np.random.Generator,
        *,
        group_size: Count = 16,
        screening: Count = 4,
    ):
        queries.groups_per_step("speed_rl", rollouts_per_step, group_size)
        if screening >= group_size:
            raise ValueError(f"speed_rl: screening {screening} leaves nothing of groups of {group_size}: lower it")
        self.queries, self.rng, self.first, self.rest = len(queries), rng, screening, group_size - screening

    def __iter__(self) -> Iterator[PlannedGroup]:
        for query in epochs(self.queries, self.rng):
            yield PlannedGroup(query, self.first, self.rest)

    def more(self, queries_Q: list[int], rewards_Q: list[np.ndarray], room: int) -> list[int]:
        return [self.rest if len(r_G) == self.first and r_G.min() < r_G.max() else 0 for r_G in rewards_Q]
