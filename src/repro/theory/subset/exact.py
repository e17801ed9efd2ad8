"""The lightest set that covers R, exactly, in three independent ways: enumeration, dynamic programming, and a MILP.

Names as in `repro.theory.subset.closed_forms`; M is the axis of all 2ⁿ sets, F that of the frontier.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from repro.theory.sgd import Array
from repro.theory.subset.closed_forms import ROUNDING, Chosen, covering, instance, weights

ENUMERABLE = 16
BLOCK_ELEMENTS = 2**21  # of the (instances, sets) arrays: bounds memory
BITS = 63


def all_sets(n_components: int) -> Chosen:
    """Every set of n components, shape (2ⁿ, n); set m holds i if bit i of m is set."""
    if not 1 <= n_components <= ENUMERABLE:
        raise ValueError(f"{n_components} components: enumeration takes 1 to {ENUMERABLE}")
    return (np.arange(2**n_components)[:, None] >> np.arange(n_components) & 1).astype(bool)


def least_over_sets(objective: Callable, *arrays: Array) -> Array:
    """Per instance, the least of `objective(*arrays)` over all sets; it gets blocks of rows and returns (rows, M)."""
    rows = max(1, BLOCK_ELEMENTS // 2 ** np.shape(arrays[0])[-1])
    blocks = range(0, len(arrays[0]), rows)
    return np.concatenate([objective(*(a[start : start + rows] for a in arrays)).min(axis=-1) for start in blocks])


def enumerated_weight(norms_B_n: ArrayLike, costs_B_n: ArrayLike, coverage_B: ArrayLike) -> Array:
    """The least weight Σ_S G√c of a set that covers R, by trying all; instances (B, n) with their R (B,)."""
    norms_B_n, costs_B_n, needed_B = covering(norms_B_n, costs_B_n, coverage_B)
    sets_n_M = all_sets(norms_B_n.shape[-1]).T.astype(np.float64)

    def weight_where_covered(norms_b_n: Array, weights_b_n: Array, needed_b: Array) -> Array:
        return np.where(norms_b_n @ sets_n_M >= needed_b[:, None], weights_b_n @ sets_n_M, np.inf)

    return least_over_sets(weight_where_covered, norms_B_n, weights(norms_B_n, costs_B_n), needed_B)


@dataclass(frozen=True, eq=False)
class Frontier:
    """The sets that no other one beats, covering as much at no greater weight: coverage and weight, both rising, and
    the members as bits. One frontier answers all bias budgets."""

    coverage_F: Array
    weight_F: Array
    members_F: NDArray[np.uint64]
    n_components: int

    def lightest(self, coverage: float) -> tuple[float, Chosen]:
        """(weight, set) of the lightest set that covers R."""
        place = int(np.searchsorted(self.coverage_F, coverage * (1 - ROUNDING)))
        if place == len(self.coverage_F):
            raise ValueError(f"coverage {coverage:.6g} exceeds the sum of the norms {self.coverage_F[-1]:.6g}")
        bits_n = self.members_F[place] >> np.arange(self.n_components, dtype=np.uint64) & np.uint64(1)
        return float(self.weight_F[place]), bits_n.astype(bool)


def frontier(norms_n: ArrayLike, costs_n: ArrayLike) -> Frontier:
    """Dynamic programming over components on the non-dominated sets (Nemhauser and Ullmann 1969), one instance."""
    norms_n, costs_n = instance(norms_n, costs_n)
    if norms_n.ndim != 1 or len(norms_n) > BITS:
        raise ValueError(f"norms have shape {norms_n.shape}: give one instance of at most {BITS} components")
    coverage_F, weight_F, members_F = np.zeros(1), np.zeros(1), np.zeros(1, dtype=np.uint64)
    for i, (norm, weight) in enumerate(zip(norms_n, weights(norms_n, costs_n), strict=True)):
        coverage_F = np.concatenate([coverage_F, coverage_F + norm])
        weight_F = np.concatenate([weight_F, weight_F + weight])
        members_F = np.concatenate([members_F, members_F | np.uint64(1 << i)])
        order_F = np.lexsort((-coverage_F, weight_F))
        coverage_F, weight_F, members_F = coverage_F[order_F], weight_F[order_F], members_F[order_F]
        better_F = np.append(True, coverage_F[1:] > np.maximum.accumulate(coverage_F)[:-1])
        coverage_F, weight_F, members_F = coverage_F[better_F], weight_F[better_F], members_F[better_F]
    return Frontier(coverage_F, weight_F, members_F, len(norms_n))


def milp_set(norms_n: ArrayLike, costs_n: ArrayLike, coverage: float) -> Chosen:
    """The lightest set that covers R by scipy's branch and bound, one instance of any size; no optimality gap."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    norms_n, costs_n, needed = covering(norms_n, costs_n, coverage)
    weights_n = weights(norms_n, costs_n)
    # Scaled to R = 1 and a largest weight of 1, because the solver's tolerances are absolute.
    found = milp(
        weights_n / weights_n.max(),
        constraints=LinearConstraint(norms_n[None] / needed, lb=1.0),
        integrality=np.ones(len(norms_n)),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0.0},
    )
    if not found.success:
        raise RuntimeError(f"the solver gave up on {len(norms_n)} components: {found.message}")
    return found.x > 0.5
