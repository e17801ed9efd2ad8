"""GRESO: a query whose groups keep having equal rewards is mostly skipped, before any rollout is drawn."""

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.plans import PlannedGroup, Queries

Share = Annotated[float, Field(ge=0, le=1)]


class greso:
    """Shuffled epochs in which query q is skipped with the probability

        p_skip(q) = 1 − e^z_q,    e ← e ∓ Δ after each batch,

    where z_q counts the latest groups of q in a row whose rewards are all equal, and e is the exploration of its kind:
    easy, if the last of these was solved, or hard. e falls by Δ (`change`) if the share of such groups in a batch has
    reached its target, and rises if not. The targets are a third of `target` for the easy, two thirds for the hard.

    Source: GRESO (Zheng et al., 2025, arXiv:2506.02177), Algorithm 1; exploration 0.5, target 25% and Δ 1% are the
    paper's. ValueError as `uniform`, whose epochs these are where nothing is skipped.
    Deviations: a batch is as many observed groups as fill a step, whatever the number of refills; an epoch that would
    skip every query skips none; the batch size is not adapted, since the engine generates only what is missing.

    >>> plan = greso(Queries(np.full(2, 8)), 8, np.random.default_rng(0), group_size=4)
    >>> plan.observe(1, np.ones(4), np.full(4, 20))
    >>> plan.observe(1, np.ones(4), np.full(4, 20))  # the second of a batch: all easy, so e falls for these
    >>> [round(1 - plan.kept(query), 4) for query in (0, 1)]
    [0.0, 0.7599]
    """

    def __init__(
        self,
        queries: Queries,
        rollouts_per_step: int,
        rng: np.random.Generator,
        *,
        group_size: Annotated[int, Field(ge=2)] = 8,
        exploration: Share = 0.5,
        target: Share = 0.25,
        change: Share = 0.01,
    ):
        self.groups = queries.groups_per_step("greso", rollouts_per_step, group_size)
        self.rng, self.size, self.change = rng, group_size, change
        self.equal_Q = np.zeros(len(queries), int)  # z
        self.hard_Q = np.zeros(len(queries), int)  # the kind: 0 easy, 1 hard
        self.exploration_K = np.full(2, exploration)
        self.target_K = target * np.array([1, 2]) / 3
        self.batch: list[np.ndarray] = []

    def kept(self, query: int) -> float:
        """1 − p_skip."""
        return float(self.exploration_K[self.hard_Q[query]] ** self.equal_Q[query])

    def __iter__(self) -> Iterator[PlannedGroup]:
        while True:
            order, some = self.rng.permutation(len(self.equal_Q)).tolist(), False
            for query in order:
                if self.kept(query) == 1 or self.rng.random() < self.kept(query):
                    some = True
                    yield PlannedGroup(query, self.size)
            if not some:
                yield from (PlannedGroup(query, self.size) for query in order)

    def observe(self, query: int, rewards_G: np.ndarray, costs_G: np.ndarray) -> None:
        equal = bool(rewards_G.max() == rewards_G.min())
        self.equal_Q[query] = self.equal_Q[query] + 1 if equal else 0
        self.hard_Q[query] = rewards_G.max() <= 0
        self.batch.append(equal * np.eye(2)[self.hard_Q[query]])
        if len(self.batch) == self.groups:
            reached_K = np.mean(self.batch, 0) >= self.target_K
            self.exploration_K = np.clip(self.exploration_K + np.where(reached_K, -1, 1) * self.change, 0, 1)
            self.batch = []
