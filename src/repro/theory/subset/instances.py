"""Instances to choose subsets of: random families, and those that make a rule look as bad as it can.

An instance is norms G and costs c, (B, n) a stack of them. The families are OUR ASSUMPTION: the paper has none.
"""

from collections.abc import Callable

import numpy as np

from repro.theory.sgd import Array, positive

NORM_RANGE, COST_RANGE = (0.1, 1.0), (1.0, 100.0)  # as in the validation of cost-aware SGD

Shape = tuple[int, int]


def draw(family: str, shape: Shape, tail: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Norms and costs (B, n) of a family of FAMILIES. `tail`: exponent of its Pareto draws; below 2 the variance is
    infinite, below 1 the mean."""
    if family not in FAMILIES:
        raise ValueError(f"there is no family {family!r}; known: {', '.join(FAMILIES)}")
    return FAMILIES[family](shape, positive("tail", tail), rng)


def _independent(shape: Shape, tail: float, rng: np.random.Generator) -> tuple[Array, Array]:
    return rng.uniform(*NORM_RANGE, shape), rng.uniform(*COST_RANGE, shape)


def _heavy_costs(shape: Shape, tail: float, rng: np.random.Generator) -> tuple[Array, Array]:
    return rng.uniform(*NORM_RANGE, shape), 1 + rng.pareto(tail, shape)


def _heavy_norms(shape: Shape, tail: float, rng: np.random.Generator) -> tuple[Array, Array]:
    return 1 + rng.pareto(tail, shape), rng.uniform(*COST_RANGE, shape)


def _large_and_dear(shape: Shape, tail: float, rng: np.random.Generator) -> tuple[Array, Array]:
    norms_B_n = 1 + rng.pareto(tail, shape)
    return norms_B_n, norms_B_n * rng.uniform(0.5, 2.0, shape)


def _large_and_cheap(shape: Shape, tail: float, rng: np.random.Generator) -> tuple[Array, Array]:
    norms_B_n = 1 + rng.pareto(tail, shape)
    return norms_B_n, rng.uniform(0.5, 2.0, shape) / norms_B_n


def _nearly_equal_costs(shape: Shape, tail: float, rng: np.random.Generator) -> tuple[Array, Array]:
    return 1 + rng.pareto(tail, shape), rng.uniform(1.0, 1.01, shape)


FAMILIES: dict[str, Callable] = {
    "independent": _independent,
    "heavy-tailed costs": _heavy_costs,
    "heavy-tailed norms": _heavy_norms,
    "large is dear": _large_and_dear,
    "large is cheap": _large_and_cheap,
    "nearly equal costs": _nearly_equal_costs,
}


def draw_coverage(norms_B_n: Array, rng: np.random.Generator) -> Array:
    """R between 5% and 95% of the sum of norms, uniform, one for each instance."""
    return rng.uniform(0.05, 0.95, len(norms_B_n)) * norms_B_n.sum(axis=-1)


def three_components(size: float) -> tuple[Array, Array, float]:
    """(G, c, R) on which the cheapest-first rule takes a component of norm `size` where one of norm 1 would do.

    G = (1, size, 1), c = (1, 1.01, 1.02), R = 1.5: the rule weighs 1 + size·√1.01, the optimum 1 + √1.02.
    """
    return np.array([1.0, positive("size", size), 1.0]), np.array([1.0, 1.01, 1.02]), 1.5


def two_components(size: float) -> tuple[Array, Array, float]:
    """(G, c, R), the shortest counter-example: G = (size, 1), c = (1, 1.01), R = 1; the rule takes the first alone."""
    return np.array([positive("size", size), 1.0]), np.array([1.0, 1.01]), 1.0


def tight_for_two(delta: float) -> tuple[Array, Array, float]:
    """(G, c, R) on which even the greedy of Csirik et al. approaches twice the optimum as δ → 0, pruned or not.

    G = (1 − 2δ, 1 − δ, δ), c = (1, 1 + δ, 1 + 2δ), R = 1. The first is kept, the second completes it, and neither can
    go; the third completes nothing. The last two would do at about half the weight.
    """
    if not 0 < delta < 0.25:
        raise ValueError(f"delta is {delta}: give one between 0 and 0.25")
    return np.array([1 - 2 * delta, 1 - delta, delta]), np.array([1.0, 1 + delta, 1 + 2 * delta]), 1.0
