"""sGPO as its method section has it: three clusters of queries by success rate, trained one after the other.

Sudalairaj, Xu, Srivastava and Giannone (2026), "sGPO: Trading Inference FLOPs for Training Efficiency in RLVR",
arXiv:2606.08854. The method section was known to us second-hand, from a public re-implementation that cites its
sections and equations; the plan `sgpo` is a reading of the abstract alone. They differ:

                        `sgpo_published`                          `sgpo`
    trivial             p̂ > ¾                                     p̂ = 1
    unsolved (p̂ = 0)    a fixed tenth of them, in every phase     a quarter of them, drawn anew for every epoch
    group size          2, 4 or 8                                 ⌈1/p̃⌉ from 2 to 32, p̃ the posterior mean
    of an unsolved one  that of the phase                         by its posterior mean, or the largest
    order               clusters in sequence, random within       every epoch from easy to hard
"""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.plans import PlannedGroup, Queries
from repro.methods.plans.sgpo import whole


def sgpo_published(
    queries: Queries,
    rollouts_per_step: int,
    rng: np.random.Generator,
    *,
    trivial: Annotated[float, Field(gt=0, le=1)] = 0.75,
    unsolved_share: Annotated[float, Field(ge=0, le=1)] = 0.1,
    passes: Annotated[int, Field(ge=1)] = 1,
) -> Iterator[PlannedGroup]:
    """Queries with 0 < p̂ ≤ `trivial` in clusters by group size, one phase for each: G = 2, then 4, then 8 (§4.3, eq. 7
    to 13).

        G = 2 if p̂ > 1/4,  4 if 1/8 < p̂ ≤ 1/4,  8 if 0 < p̂ ≤ 1/8:   2^⌊log₂(1/p̂)⌋ in [2, 8]

    p̂ is the success rate in the profile, of 8 samples in the paper; G in rollouts. `unsolved_share` of the queries with
    p̂ = 0, rounded, at least one unless the share is 0, is drawn once; these queries join every phase, with its group
    size. A phase goes through its queries `passes` times, each time in a new random order; the last one has no end. A
    cluster without queries has no phase.

    ValueError without a profile, if no query has 0 < p̂ ≤ `trivial`, or if a group exceeds a step's rollouts.

    Deviations: the paper trains each cluster to convergence, which a plan cannot see; `passes` stands for it, and the
    run ends within the last cluster. Where a phase ends, one step may hold groups of two sizes.

    >>> profile = Queries(np.full(5, 9), successes_Q=np.array([8, 4, 2, 1, 0]), samples_Q=np.full(5, 8))
    >>> plan = sgpo_published(profile, 32, np.random.default_rng(0))
    >>> [(group.query, group.size) for group, _ in zip(plan, range(8))]
    [(1, 2), (4, 2), (2, 4), (4, 4), (3, 8), (4, 8), (4, 8), (3, 8)]
    """
    rate_Q = queries.rate_Q
    unsolved_U = np.flatnonzero(rate_Q == 0)
    mixed_in = rng.choice(unsolved_U, whole(unsolved_share, len(unsolved_U)), replace=False)
    size_Q = np.select([rate_Q > 1 / 4, rate_Q > 1 / 8], [2, 4], 8)
    learnable_Q = (rate_Q > 0) & (rate_Q <= trivial)
    if not learnable_Q.any():
        raise ValueError(
            f"sgpo_published: none of {len(queries)} queries has a success rate above 0 and at most {trivial}; raise "
            "trivial, or train on other queries"
        )
    if (largest := size_Q[learnable_Q].max()) > rollouts_per_step:
        raise ValueError(
            f"sgpo_published: a group of {largest} does not fit the {rollouts_per_step} rollouts of a step; raise "
            "engine.rollouts_per_step"
        )
    clusters = {
        size: np.concatenate([np.flatnonzero(learnable_Q & (size_Q == size)), mixed_in])
        for size in np.unique(size_Q[learnable_Q]).tolist()
    }
    return _phases(clusters, passes, rng)


def _phases(clusters: Mapping[int, np.ndarray], passes: int, rng: np.random.Generator) -> Iterator[PlannedGroup]:
    """The clusters' queries, by their group size in rising order."""
    last = max(clusters)
    for size, cluster in clusters.items():
        for _ in count() if size == last else range(passes):
            for query in rng.permutation(cluster).tolist():
                yield PlannedGroup(query, size)
