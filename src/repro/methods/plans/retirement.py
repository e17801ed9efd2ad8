"""Retirement: a query that the policy has learnt to solve is drawn no more."""

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.plans import PlannedGroup, Queries, epochs


class retirement:
    """Shuffled epochs without the queries whose mean reward, in their latest group, was above `solved`.

        retired(q) = 1[ (1/G) Σ_i r_i > s ]

    Once too few queries are left to fill a step, all return. Source: Polaris (An et al., 2025), which removes queries
    with a success rate above 0.9 between stages of training; open-instruct stops drawing them during training, as here
    (`no_resampling_pass_rate`). ValueError as `uniform`.
    Deviations: one group decides, so at G = 8 a query retires when all of it was solved; that all return is ours.

    >>> plan = retirement(Queries(np.full(3, 8)), 4, np.random.default_rng(0), group_size=2)
    >>> plan.observe(2, np.ones(2), np.full(2, 20))
    >>> groups = iter(plan)
    >>> [next(groups).query for _ in range(4)]
    [0, 1, 1, 0]
    """

    def __init__(
        self,
        queries: Queries,
        rollouts_per_step: int,
        rng: np.random.Generator,
        *,
        group_size: Annotated[int, Field(ge=2)] = 8,
        solved: Annotated[float, Field(ge=0, le=1)] = 0.9,
    ):
        self.groups = queries.groups_per_step("retirement", rollouts_per_step, group_size)
        self.rng, self.size, self.solved = rng, group_size, solved
        self.retired_Q = np.zeros(len(queries), bool)

    def __iter__(self) -> Iterator[PlannedGroup]:
        for query in epochs(len(self.retired_Q), self.rng):
            if not self.retired_Q[query]:
                yield PlannedGroup(query, self.size)

    def observe(self, query: int, rewards_G: np.ndarray, costs_G: np.ndarray) -> None:
        self.retired_Q[query] = rewards_G.mean() > self.solved
        if (~self.retired_Q).sum() < self.groups:
            self.retired_Q[:] = False
