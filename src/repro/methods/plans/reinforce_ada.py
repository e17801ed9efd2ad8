"""Reinforce-Ada: a query is sampled in rounds until it has enough successes and failures."""

from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from repro.methods.plans import PlannedGroup, Queries, epochs


class reinforce_ada:
    """Shuffled epochs; a group is drawn in up to `rounds` rounds of `group_size` = n rollouts, and ends with the first

        balance    min(#{r_i > 0}, #{r_i ≤ 0}) ≥ n/2        both signs fill half of the n that train
        positive   #{r_i > 0} ≥ 1

    Advantages are relative to all rollouts of a group; sampler `balanced` chooses the n that train. Source:
    Reinforce-Ada (Xiong et al., 2025, arXiv:2510.04996), Algorithm 1, with its two rules (`until`). ValueError as
    `uniform`, or if the rounds of a group do not fit a step.
    Deviations: n and the number of rounds; a step holds as many groups as fit its rollouts, which those that end early
    leave to further ones, where the paper has a fixed number of prompts; advantages are the arm's.

    >>> plan = reinforce_ada(Queries(np.full(4, 8)), 16, np.random.default_rng(0), group_size=4)
    >>> plan.more([2, 0], [np.array([0, 1, 0, 0]), np.array([0, 1, 1, 0])], 12)
    [4, 0]
    """

    def __init__(
        self,
        queries: Queries,
        rollouts_per_step: int,
        rng: np.random.Generator,
        *,
        group_size: Annotated[int, Field(ge=2)] = 8,
        rounds: Annotated[int, Field(ge=1)] = 4,
        until: Literal["balance", "positive"] = "balance",
    ):
        queries.groups_per_step("reinforce_ada", rollouts_per_step, group_size)
        if rounds * group_size > rollouts_per_step:
            raise ValueError(
                f"reinforce_ada: {rounds} rounds of {group_size} exceed the {rollouts_per_step} rollouts of a step; "
                "lower them or raise engine.rollouts_per_step"
            )
        self.queries, self.rng, self.size, self.rounds, self.until = len(queries), rng, group_size, rounds, until

    def __iter__(self) -> Iterator[PlannedGroup]:
        for query in epochs(self.queries, self.rng):
            yield PlannedGroup(query, self.size, (self.rounds - 1) * self.size)

    def more(self, queries_Q: list[int], rewards_Q: list[np.ndarray], room: int) -> list[int]:
        return [0 if self._ended(rewards_G) else self.size for rewards_G in rewards_Q]

    def _ended(self, rewards_G: np.ndarray) -> bool:
        right = int((rewards_G > 0).sum())
        enough = right >= 1 if self.until == "positive" else 2 * min(right, len(rewards_G) - right) >= self.size
        return enough or len(rewards_G) >= self.rounds * self.size
