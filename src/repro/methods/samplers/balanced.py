"""Balanced: of each group as many rollouts above the mean as below, as far as there are."""

from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.rollouts import Rollouts


def balanced(
    rollouts: Rollouts, progress: float, rng: np.random.Generator, *, keep: Annotated[int, Field(ge=2)] = 8
) -> Rollouts:
    """Of each group of G at most n (`keep`) rollouts: of those with A > 0 and of the others n/2 each, the first drawn

        P = clip(⌊n/2⌋, n − #{A ≤ 0}, #{A > 0}) with A > 0,   min(n, G) − P of the others,

    so that a side that is short leaves its place to the other. Advantages stay those of the whole group, a baseline
    of more rollouts than train, and weights 1. Source: Reinforce-Ada (Xiong et al., 2025, arXiv:2510.04996), the groups
    of fixed size after adaptive sampling.
    Deviation: that the first drawn of each side are taken is ours; which these are is random already.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0] * 6, rewards_N=[1, 1, 1, 1, 0, 0], advantages_N=[0.7, 0.7, 0.7, 0.7, -1.4, -1.4],
    ...     prompt_tokens_N=[8] * 6, response_tokens_N=[10, 44, 16, 53, 20, 30],
    ... )
    >>> balanced(batch, 0.0, np.random.default_rng(0), keep=4).row_N
    array([0, 1, 4, 5])
    """
    rows = []
    for group in np.unique(rollouts.group_N):
        own = np.flatnonzero(rollouts.group_N == group)
        above, others = own[rollouts.advantages_N[own] > 0], own[rollouts.advantages_N[own] <= 0]
        count = min(max(keep // 2, keep - len(others)), len(above))
        rows += [*above[:count], *others[: keep - count]]
    return rollouts.take(np.sort(np.array(rows)))
