"""Subset selection: which components to leave out, and SGD on the rest (Cost-Aware Learning, appendices C, D.3, D.4).

SGD on f_S = (1/n) Σ_{i∈S} f_i queries the components of S alone and has a bias. Keeping that bias within a budget at
the least cost is a min-knapsack: component i weighs G_i√c_i, covers G_i, and R must be covered (eq. 12). Here are the
exact solvers of that knapsack and what the runs of SGD need; the rules and bounds to compare with them are in
notebooks/theory/subset.ipynb.

A set S is an array `chosen_n` of booleans. Axes: n components, B instances, M all 2ⁿ sets, F the frontier of one
instance; of runs, S budgets, M horizons, K trials, T iterations, B = 1 + resamples (row 0 the whole sample).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from repro.stats.intervals import resample_counts
from repro.theory.sgd import (
    Array,
    LeastSquares,
    Measured,
    convex_step,
    draw_problem,
    norms_and_costs,
    optimal_sampling,
    positive,
    second_moment,
)

Chosen = NDArray[np.bool_]

# A sum taken in another order may fall short of R by rounding alone, so a shortfall of this share of R is allowed.
ROUNDING = 1e-12
BLOCK_ELEMENTS = 2**21  # of the (instances, sets) arrays: bounds memory
BITS = 63

# As in the validation of Cost-Aware SGD, whose constants the paper does not give either: OUR ASSUMPTION.
CONSTANTS = dict(norm_low=0.1, norm_high=1.0, cost_low=1.0, cost_high=100.0, radius=1.0)
TIED_LENGTH = 0.7  # of the two solutions; the radius is 1
UNRELATED, TIED = "costs unrelated to content", "expensive components differ"


def weights(norms_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """G_i √c_i, what component i adds to the knapsack (Theorem C.1). Shape (..., n)."""
    norms_n, costs_n = norms_and_costs(norms_n, costs_n)
    return norms_n * np.sqrt(costs_n)


def covering(norms_n: ArrayLike, costs_n: ArrayLike, coverage: ArrayLike) -> tuple[Array, Array, Array]:
    """Both as floats, and the sum of norms that counts as covering R, shape (...); ValueError if all components do not
    cover it together."""
    norms_n, costs_n = norms_and_costs(norms_n, costs_n)
    needed = np.broadcast_to(positive("coverage", coverage), norms_n.shape[:-1]) * (1 - ROUNDING)
    if (short := norms_n.sum(axis=-1) < needed).any():
        worst = np.ravel(needed)[np.ravel(short).argmax()]
        raise ValueError(f"coverage {worst:.6g} exceeds the sum of its norms: no set of components covers it")
    return norms_n, costs_n, needed


def all_sets(n_components: int) -> Chosen:
    """Every set of n components, shape (2ⁿ, n); set m holds i if bit i of m is set."""
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
    """The sets that no other one beats, that is, covers as much at no greater weight: coverage and weight, both rising,
    and the members as bits. One frontier answers all bias budgets."""

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
    norms_n, costs_n = norms_and_costs(norms_n, costs_n)
    if len(norms_n) > BITS:
        raise ValueError(f"{len(norms_n)} components: a set of at most {BITS} has room in its bits")
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


def draw_cases(n_points: int, dimension: int, seed: int) -> dict[str, LeastSquares]:
    """Two problems with the same rows, costs and residuals: costs independent of the points' targets, as in the paper;
    and an expensive half whose targets come from another solution, at right angles to that of the cheap half."""
    problem = draw_problem(n_points=n_points, dimension=dimension, seed=seed, **CONSTANTS)
    residuals_n = problem.targets_n - problem.rows_n_d @ problem.minimiser_d
    solutions_2_d = TIED_LENGTH * np.eye(2, dimension)
    expensive_n = problem.costs_n > np.median(problem.costs_n)
    targets_n = (problem.rows_n_d * solutions_2_d[expensive_n.astype(int)]).sum(axis=1) + residuals_n
    return {UNRELATED: problem, TIED: LeastSquares(problem.rows_n_d, targets_n, problem.costs_n, problem.radius)}


def restrict(problem: LeastSquares, chosen_n: Chosen) -> LeastSquares:
    """The points of S alone. Its mean is over |S|, where f_S = (1/n) Σ_S f_i has n: the factor |S|/n cancels in every
    step that theory sets, so the iterates are those of SGD on f_S."""
    parts = (problem.rows_n_d[chosen_n], problem.targets_n[chosen_n], problem.costs_n[chosen_n])
    try:
        return LeastSquares(*parts, problem.radius)
    except ValueError as error:  # with too few points the minimiser may leave the ball, or not be unique
        raise ValueError(
            f"{chosen_n.sum()} of {len(chosen_n)} points: {error}, more points or a smaller budget"
        ) from error


def strong_convexity(problem: LeastSquares) -> float:
    """μ, the smallest eigenvalue of ∇²f."""
    return float(np.linalg.eigvalsh(problem.hessian_d_d)[0])


def moment(problem: LeastSquares) -> Array:
    """V(p*), the second moment of the gradient estimate under optimal sampling."""
    return second_moment(problem.norms_n, optimal_sampling(problem.norms_n, problem.costs_n))


def steps_and_averaging(kind: str, problem: LeastSquares, horizon: int) -> tuple[Array, Array]:
    """(steps, averaging weights), each (T,). Convex: D/√(TV), equal weights. Strongly convex: 2/(μ(t + 1)), weights t
    (Lacoste-Julien, Schmidt and Bach 2012), whose error is at most 2V/(μ(T + 1))."""
    if kind == "convex":
        return np.full(horizon, convex_step(moment(problem), problem.diameter, horizon)), np.ones(horizon)
    place_T = np.arange(1, horizon + 1)
    return 2 / (strong_convexity(problem) * (place_T + 1)), place_T.astype(np.float64)


def measure(trials: pd.DataFrame, seed: int, n_resamples: int = 1000) -> dict[tuple[str, str], Measured]:
    """{(case, kind): bootstrapped means, budgets on axis S in rising order}; trials resampled jointly for all.

    `trials`: a row per run, with case, kind, budget, iteration (the horizon), trial, cost, error.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(6,)))
    n_trials = trials["trial"].nunique()
    weights_B_K = resample_counts(n_trials, n_resamples, rng) / n_trials
    measured = {}
    for key, rows in trials.groupby(["case", "kind"], sort=False):
        rows = rows.sort_values(["budget", "iteration", "trial"])
        iterations_M = np.sort(rows["iteration"].unique())
        shape = (rows["budget"].nunique(), len(iterations_M), n_trials)
        means = [
            np.tensordot(weights_B_K, rows[name].to_numpy().reshape(shape), axes=(1, 2)) for name in ("error", "cost")
        ]
        measured[key] = Measured(*means, iterations_M)
    return measured


def savings(measured: Measured) -> Array:
    """What leaving components out saves (B, S, M): the cost at which all components reach the error that a budget has
    at a horizon, over that budget's cost there. Budget 0 comes first; below 1, leaving out costs more.

    The cost with all components is interpolated between horizons, log to log. Beyond the longest it continues as
    1/error, the fastest decrease of such a run; before the shortest it is constant, so that the saving is an upper
    bound there.
    """
    error_B_S_M, cost_B_S_M = np.log(measured.error_B_S_M), np.log(measured.cost_B_S_M)
    # By chance a longer run may end worse; the error that a shorter one reached still counts as reached.
    all_error_B_M = np.minimum.accumulate(error_B_S_M[:, 0], axis=-1)[:, ::-1]
    rows = zip(error_B_S_M, all_error_B_M, cost_B_S_M[:, 0, ::-1], strict=True)
    reached_B_S_M = np.array([np.interp(target_S_M, error_M, cost_M) for target_S_M, error_M, cost_M in rows])
    beyond_B_S_M = np.maximum(all_error_B_M[:, None, :1] - error_B_S_M, 0.0)
    return np.exp(reached_B_S_M + beyond_B_S_M - cost_B_S_M)
