"""Knapsack RL: the rollouts of a step go where their groups are worth most."""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.plans import PlannedGroup, Queries, epochs


class knapsack:
    """Shuffled epochs, each step's rollouts divided among its Q queries so that they are worth most by their latest
    success rates p:

        max Σ_q v(p_q, G_q),   v(p, G) = (1 − p^G − (1 − p)^G) · p (1 − p)²,   Σ_q G_q = rollouts of a step,

    G_q from `smallest` to `largest`: the probability of a gradient times the gain in p that one brings. A query with
    p = 0 or 1 has the smallest group, one that was not drawn yet `group_size`. What the others do not need to have a
    gradient with probability `confidence`, C_q = ⌊ln(1 − confidence) / ln max(p, 1 − p)⌋ rollouts each, goes in equal
    parts to those with p = 0 or, if there are none, to the others that are not in the sum.

    Source: Knapsack RL (Li et al., 2025, arXiv:2509.25849), of which we have the abstract, and its public code, whose
    sizes of 2 upwards and confidence of 0.9 these are. ValueError as `uniform`.
    Deviations: greedy in place of the code's dynamic programme, whose optimum it has, v being concave in G; the largest
    group is ours; p is the mean training reward of the latest group, clipped to [0, 1].

    >>> plan = knapsack(Queries(np.full(3, 8)), 24, np.random.default_rng(0), group_size=8)
    >>> plan.rate_Q[:] = [0.25, 0.75, 1.0]
    >>> plan.sizes(np.arange(3))
    array([12,  8,  4])
    """

    def __init__(
        self,
        queries: Queries,
        rollouts_per_step: int,
        rng: np.random.Generator,
        *,
        group_size: Annotated[int, Field(ge=2)] = 8,
        smallest: Annotated[int, Field(ge=2)] = 2,
        largest: Annotated[int, Field(ge=2)] = 32,
        confidence: Annotated[float, Field(gt=0, lt=1)] = 0.9,
    ):
        self.groups = queries.groups_per_step("knapsack", rollouts_per_step, group_size)
        if not smallest <= group_size <= largest:
            raise ValueError(f"knapsack: groups from {smallest} to {largest} leave out {group_size}, of new queries")
        self.rng, self.budget, self.size, self.confidence = rng, rollouts_per_step, group_size, confidence
        self.sizes_G = np.arange(smallest, largest + 1)
        self.rate_Q = np.full(len(queries), np.nan)

    def __iter__(self) -> Iterator[PlannedGroup]:
        order = epochs(len(self.rate_Q), self.rng)
        while True:
            step = list(islice(order, self.groups))
            yield from map(PlannedGroup, step, self.sizes(np.array(step)).tolist())

    def sizes(self, step_E: np.ndarray) -> np.ndarray:
        """G of each of a step's queries."""
        from repro.methods.group_sizes.allocation import allocate  # it imports scipy

        rate_E, smallest = self.rate_Q[step_E], int(self.sizes_G[0])
        size_E = np.where(np.isnan(rate_E), self.size, smallest)
        open_E = (rate_E > 0) & (rate_E < 1)
        rate_O_1, left = rate_E[open_E][:, None], self.budget - int(size_E.sum())
        if open_E.any():
            need_O = np.log(1 - self.confidence) / np.log(np.maximum(rate_O_1, 1 - rate_O_1)[:, 0])
            need = int(np.minimum(need_O, self.sizes_G[-1]).astype(int).sum())
            spend = min(left, need) if (~open_E).any() else left
            value_O_G = (1 - rate_O_1**self.sizes_G - (1 - rate_O_1) ** self.sizes_G) * rate_O_1 * (1 - rate_O_1) ** 2
            size_E[open_E] = allocate(value_O_G, self.sizes_G, spend + smallest * len(rate_O_1), drop=False)
        some_E = next((each_E for each_E in (rate_E == 0, ~open_E) if each_E.any()), np.ones(len(size_E), bool))
        share, rest = divmod(self.budget - int(size_E.sum()), int(some_E.sum()))
        size_E[some_E] += share + (np.arange(some_E.sum()) < rest)
        return size_E

    def observe(self, query: int, rewards_G: np.ndarray, costs_G: np.ndarray) -> None:
        self.rate_Q[query] = np.clip(rewards_G.mean(), 0, 1)
