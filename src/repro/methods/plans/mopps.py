"""MoPPS: a posterior of every query's success rate chooses the queries that are neither too easy nor too hard."""

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.plans import PlannedGroup, Queries


class mopps:
    """In each step the queries whose drawn success rates lie nearest to a target (Thompson sampling):

        p_q ~ Beta(a_q, b_q),   the B queries of least |p_q − p*|,
        (a_q, b_q) ← λ (a_q, b_q) + (1 − λ) (1, 1) + (s, G − s)   after a group of G rollouts with s successes,

    with the target p* (`target`) and the memory λ (`memory`): at 1 every group counts alike, at 0 the last alone.

    Source: MoPPS (Qu et al., 2025, arXiv:2507.04632), with its uniform prior and its target 0.5; λ depends on the data
    there, 0.5 here. ValueError as `uniform`.
    Deviations: all queries are candidates, where the paper may draw a larger batch first; s is the sum of the training
    rewards, clipped to [0, G].

    >>> plan = mopps(Queries(np.full(3, 8)), 4, np.random.default_rng(0), group_size=4)
    >>> plan.observe(2, np.array([1.0, 0.0, 0.0, 0.0]), np.full(4, 20))
    >>> plan.counts_Q_2.tolist()
    [[1.0, 1.0], [1.0, 1.0], [2.0, 4.0]]
    """

    def __init__(
        self,
        queries: Queries,
        rollouts_per_step: int,
        rng: np.random.Generator,
        *,
        group_size: Annotated[int, Field(ge=2)] = 8,
        target: Annotated[float, Field(gt=0, lt=1)] = 0.5,
        memory: Annotated[float, Field(ge=0, le=1)] = 0.5,
    ):
        self.groups = queries.groups_per_step("mopps", rollouts_per_step, group_size)
        self.rng, self.size, self.target, self.memory = rng, group_size, target, memory
        self.counts_Q_2 = np.ones((len(queries), 2))  # a, b

    def __iter__(self) -> Iterator[PlannedGroup]:
        while True:
            distance_Q = np.abs(self.rng.beta(*self.counts_Q_2.T) - self.target)
            for query in np.argsort(distance_Q, kind="stable")[: self.groups].tolist():
                yield PlannedGroup(query, self.size)

    def observe(self, query: int, rewards_G: np.ndarray, costs_G: np.ndarray) -> None:
        solved = np.clip(rewards_G.sum(), 0, len(rewards_G))
        kept_2 = self.memory * self.counts_Q_2[query] + 1 - self.memory
        self.counts_Q_2[query] = kept_2 + np.array([solved, len(rewards_G) - solved])
