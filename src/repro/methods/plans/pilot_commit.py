"""Pilot-Commit: a pilot of every group tells which groups get the rest of the step's rollouts."""

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.plans import PlannedGroup, Queries, epochs


class pilot_commit:
    """Shuffled epochs; each group begins with `pilot` rollouts, and the step's others, as many as `group_size` leaves
    them, go in equal parts to the share `committed` of the groups whose pilots' rewards vary most:

        v_q = Var(r_1, …, r_pilot),   the ⌈committed · Q⌉ groups of largest v_q > 0.

    Source: Pilot-Commit (Kim et al., 2026, arXiv:2605.26606), of which we have the abstract: a pilot on a part of the
    budget, the rest to prompts of high reward variance. ValueError as `uniform`, or if the pilot is the whole group.
    Deviations: sizes and the share are ours; the paper's eviction of solved prompts and its buffer are left out; groups
    that are not committed to stay in the batch with their pilots.

    >>> plan = pilot_commit(Queries(np.full(4, 8)), 16, np.random.default_rng(0), group_size=8, pilot=2)
    >>> plan.more([2, 0, 1], [np.array([0, 1]), np.zeros(2), np.array([1, 0])], 18)
    [9, 0, 9]
    """

    def __init__(
        self,
        queries: Queries,
        rollouts_per_step: int,
        rng: np.random.Generator,
        *,
        group_size: Annotated[int, Field(ge=3)] = 8,
        pilot: Annotated[int, Field(ge=2)] = 4,
        committed: Annotated[float, Field(gt=0, le=1)] = 0.5,
    ):
        queries.groups_per_step("pilot_commit", rollouts_per_step, group_size)
        if pilot >= group_size:
            raise ValueError(f"pilot_commit: a pilot of {pilot} leaves nothing of groups of {group_size}: lower it")
        self.queries, self.rng, self.pilot, self.rest = len(queries), rng, pilot, group_size - pilot
        self.committed = committed

    def __iter__(self) -> Iterator[PlannedGroup]:
        for query in epochs(self.queries, self.rng):
            yield PlannedGroup(query, self.pilot, self.rest)

    def more(self, queries_Q: list[int], rewards_Q: list[np.ndarray], room: int) -> list[int]:
        variance_Q = np.array([rewards_G.var() for rewards_G in rewards_Q])
        chosen = np.argsort(-variance_Q, kind="stable")[: int(np.ceil(self.committed * len(variance_Q)))]
        chosen = chosen[variance_Q[chosen] > 0]
        more_Q = np.zeros(len(variance_Q), int)
        if len(chosen) and max(map(len, rewards_Q)) == self.pilot:
            more_Q[chosen] = room // len(chosen)
        return more_Q.tolist()
