"""Group sizes from a profile: sGPO's rule and the alternatives it is compared with.

scipy is imported late: importing it is slow, and equal sizes do not need it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from repro.methods.plans import Queries

Allocation = Literal["inverse", "shrunken", "informative", "equal"]


@dataclass(frozen=True)
class Bounds:
    """The smallest and largest group size, the common size for allocation "equal", and that of a query with p̂ = 0 where
    it is not the allocation's; rollouts."""

    smallest: int
    largest: int
    equal: int
    unsolvable: int | None = None


def group_sizes(queries: Queries, allocation: Allocation, bounds: Bounds) -> Callable[[np.ndarray], np.ndarray]:
    """A function from an epoch's queries order_E (indices) to their group sizes_E, in rollouts; 0 leaves one out.

    Only "informative" depends on the rest of the epoch. ValueError if "shrunken" or "informative" cannot fit the
    population of difficulties: numbers of samples that differ between queries, or a single sample of each.
    """
    if allocation == "informative":
        return _informative(queries, bounds)
    if allocation == "equal":
        sizes_Q = np.full(len(queries), bounds.equal)
    else:
        sizes_Q = {"inverse": _inverse, "shrunken": _shrunken}[allocation](queries, bounds)
        if bounds.unsolvable is not None:
            sizes_Q = np.where(queries.rate_Q == 0, bounds.unsolvable, sizes_Q)
    return lambda order_E: sizes_Q[order_E]


def _inverse(queries: Queries, bounds: Bounds) -> np.ndarray:
    """clip(⌈1/p̂⌉, smallest, largest)."""
    from repro.methods.group_sizes.rule import rule_size

    return rule_size(queries.rate_Q, bounds.smallest, bounds.largest)


def _shrunken(queries: Queries, bounds: Bounds) -> np.ndarray:
    """The same with the posterior mean (α+s)/(α+β+K) in place of p̂ = s/K; α, β by maximum likelihood."""
    from repro.methods.group_sizes.posterior import posterior
    from repro.methods.group_sizes.rule import rule_size

    a_Q, b_Q = posterior(queries.successes_Q, _samples(queries), *_population(queries))
    return rule_size(a_Q / (a_Q + b_Q), bounds.smallest, bounds.largest)


def _informative(queries: Queries, bounds: Bounds) -> Callable[[np.ndarray], np.ndarray]:
    """The most informative groups in expectation for the number of rollouts that "shrunken" would spend on the epoch.

    The population is fitted to all queries, not only to those that pass a filter, whose rates are a biased sample.
    """
    from repro.methods.group_sizes.allocation import allocate_profile

    samples, population, shrunken_Q = _samples(queries), _population(queries), _shrunken(queries, bounds)
    successes_Q, sizes_G = np.asarray(queries.successes_Q), range(bounds.smallest, bounds.largest + 1)

    def sizes(order_E: np.ndarray) -> np.ndarray:
        budget = int(shrunken_Q[order_E].sum())
        return allocate_profile(successes_Q[order_E], samples, sizes_G, budget, population=population)

    return sizes


def _samples(queries: Queries) -> int:
    """K."""
    few, many = np.min(queries.samples_Q), np.max(queries.samples_Q)
    if few != many:
        raise ValueError(
            f"sgpo: from {few} to {many} samples of a query, but its posterior is fitted to equally many of each: "
            "profile all alike, or use allocation inverse"
        )
    return int(few)


def _population(queries: Queries) -> tuple[float, float]:
    from repro.methods.group_sizes.posterior import fit_population

    return fit_population(queries.successes_Q, _samples(queries))
