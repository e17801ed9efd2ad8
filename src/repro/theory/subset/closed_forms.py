"""Which components to leave out, and what it costs in bias (Cost-Aware Learning, appendices C, D.3 and D.4).

SGD on f_S = (1/n) Σ_{i∈S} f_i queries the components of S alone and is off by a bias. Keeping that bias within a budget
at the least cost is a min-knapsack: component i weighs G_i√c_i, covers G_i, and R must be covered (eq. 12).

A set S is an array `chosen_n` of booleans. Every function also takes stacks of instances, shape (..., n), and then
returns one value, or one set, per instance. Units as in `repro.theory.sgd`; coverage in those of G.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from repro.theory.sgd import Array, positive

Chosen = NDArray[np.bool_]

# A sum taken in another order may fall short of R by rounding alone: so much of R counts as covered.
ROUNDING = 1e-12


def weights(norms_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """G_i √c_i, what component i adds to the knapsack (Theorem C.1). Shape (..., n)."""
    norms_n, costs_n = instance(norms_n, costs_n)
    return norms_n * np.sqrt(costs_n)


def bias(norms_n: ArrayLike, chosen_n: ArrayLike) -> Array:
    """Δ_S = (1/n) Σ_{i∉S} G_i: bounds ‖∇f − ∇f_S‖ everywhere (appendix C); error per distance."""
    norms_n = positive("norms", norms_n)
    return np.where(chosen_n, 0.0, norms_n).sum(axis=-1) / norms_n.shape[-1]


def coverage_for(norms_n: ArrayLike, budget: ArrayLike) -> Array:
    """R = ΣG − nB, the sum of G that a set of bias at most B must hold (Theorem D.2); zero or less asks for nothing."""
    norms_n = positive("norms", norms_n)
    return norms_n.sum(axis=-1) - norms_n.shape[-1] * np.asarray(budget, dtype=np.float64)


def strongly_convex_budget(strong_convexity: float, suboptimality: ArrayLike) -> Array:
    """B = √(2μτ), the bias at which the minimiser of f_S has f within τ of f* (Theorem D.3): ‖∇f‖² ≤ 2μτ."""
    return np.sqrt(2 * positive("strong_convexity", strong_convexity) * positive("suboptimality", suboptimality))


def mean_weight(norms_n: ArrayLike, costs_n: ArrayLike, chosen_n: ArrayLike) -> Array:
    """(1/n) Σ_{i∈S} G_i √c_i: its square is the least C(p)V(p) of a distribution on S (Theorem 4.1 restricted to S)."""
    weights_n = weights(norms_n, costs_n)
    return np.where(chosen_n, weights_n, 0.0).sum(axis=-1) / weights_n.shape[-1]


def convex_subset_cost(mean_weight: ArrayLike, bias: ArrayLike, diameter: float, epsilon: ArrayLike) -> Array:
    """D² w²/(ε − DΔ)², the cost to reach error ε of f by querying S alone (appendix C), w the mean weight; cost.

    It has the *square* of the knapsack's objective: a set twice as heavy as need be costs four times as much. Infinite
    where the bias alone takes ε.
    """
    left = positive("epsilon", epsilon) - positive("diameter", diameter) * np.asarray(bias)
    return _cost(diameter**2 * np.asarray(mean_weight) ** 2, np.sign(left) * left**2)


def strongly_convex_subset_cost(
    mean_weight: ArrayLike, bias: ArrayLike, strong_convexity: float, epsilon: ArrayLike
) -> Array:
    """w²/(μ (ε − Δ²/(2μ))): eq. 4 on S with what the bias of Theorem D.3 leaves of ε, w the mean weight; cost.

    As the paper has it, f_S is taken to be as strongly convex as f, and its error and the bias to add up. Neither
    follows: see `strongly_convex_error_bound`.
    """
    strong_convexity = positive("strong_convexity", strong_convexity)
    left = positive("epsilon", epsilon) - np.asarray(bias) ** 2 / (2 * strong_convexity)
    return _cost(np.asarray(mean_weight) ** 2, strong_convexity * left)


def strongly_convex_error_bound(error_on_subset: ArrayLike, bias: ArrayLike, strong_convexity: float) -> Array:
    """f(x) − f* ≤ (√a + √(a + δ))², a = Δ²/(2μ), where f_S(x) is within δ of its minimum. Derived here.

    With e the left side and r the distance to x*: e ≤ δ + Δr and μr²/2 ≤ e, a quadratic inequality in √e. At δ = 0 that
    is 4a; Theorem D.3's a holds at the exact minimiser of f_S alone.
    """
    floor = np.asarray(bias) ** 2 / (2 * positive("strong_convexity", strong_convexity))
    return (np.sqrt(floor) + np.sqrt(floor + np.asarray(error_on_subset))) ** 2


def cheapest_first(norms_n: ArrayLike, costs_n: ArrayLike, coverage: ArrayLike) -> Chosen:
    """The rule of appendix C: in order of cost, until R is covered. Of equal costs, the first comes first.

    No 2-approximation, nor one of any factor: on G = (M, 1), c = (1, 1 + δ), R = 1 it takes M, the optimum 1. It weighs
    at most the optimum and the heaviest component together (the last one it takes completes the LP's optimum).
    """
    norms_n, costs_n, needed = covering(norms_n, costs_n, coverage)
    order_n = np.argsort(costs_n, axis=-1, kind="stable")
    sorted_n = np.take_along_axis(norms_n, order_n, axis=-1)
    return _unsorted(_sums_before(sorted_n) < needed[..., None], order_n)


def csirik(norms_n: ArrayLike, costs_n: ArrayLike, coverage: ArrayLike) -> Chosen:
    """The greedy of Csirik, Frenk, Labbé and Zhang (1991), which is a 2-approximation: at most twice the optimum.

    In order of cost, a component that would cover R together with those kept so far is not kept but *completes* them:
    one candidate. The others are kept. The lightest candidate wins; the first one is what `cheapest_first` takes.

    Why 2: the kept ones never cover R, so an optimal set O holds a completing component; let j be its first. j weighs
    no more than O. The ones kept before j cover less than O does, and whichever of them are not in O are cheaper per
    coverage than what O has instead: together they weigh less than O as well.
    """
    norms_n, costs_n, needed = covering(norms_n, costs_n, coverage)
    order_n = np.argsort(costs_n, axis=-1, kind="stable")
    norms_n = np.take_along_axis(norms_n, order_n, axis=-1)
    weights_n = norms_n * np.sqrt(np.take_along_axis(costs_n, order_n, axis=-1))
    covered, weight = np.zeros(needed.shape), np.zeros(needed.shape)
    lightest, last = np.full(needed.shape, np.inf), np.zeros(needed.shape, dtype=int)
    kept_n = np.zeros(norms_n.shape, dtype=bool)
    for i in range(norms_n.shape[-1]):
        completes = covered + norms_n[..., i] >= needed
        better = completes & (weight + weights_n[..., i] < lightest)
        lightest, last = np.where(better, weight + weights_n[..., i], lightest), np.where(better, i, last)
        kept_n[..., i] = ~completes
        covered = covered + np.where(completes, 0.0, norms_n[..., i])
        weight = weight + np.where(completes, 0.0, weights_n[..., i])
    place_n = np.arange(norms_n.shape[-1])
    last = last[..., None]
    return _unsorted((kept_n & (place_n < last)) | (place_n == last), order_n)


def prune(norms_n: ArrayLike, costs_n: ArrayLike, coverage: ArrayLike, chosen_n: ArrayLike) -> Chosen:
    """The set without what it does not need: from the heaviest down, each component that the rest covers R without."""
    norms_n, costs_n, needed = covering(norms_n, costs_n, coverage)
    order_n = np.argsort(-norms_n * np.sqrt(costs_n), axis=-1, kind="stable")
    sorted_n = np.take_along_axis(norms_n, order_n, axis=-1)
    kept_n = np.take_along_axis(np.array(chosen_n, dtype=bool), order_n, axis=-1)
    for i in range(sorted_n.shape[-1]):
        without_n = kept_n.copy()
        without_n[..., i] = False
        kept_n[..., i] &= np.where(without_n, sorted_n, 0.0).sum(axis=-1) < needed
    return _unsorted(kept_n, order_n)


def fractional_weight(norms_n: ArrayLike, costs_n: ArrayLike, coverage: ArrayLike) -> Array:
    """The optimum of the LP relaxation: cheapest first, of the last one as much as is needed (Theorem D.3).

    No set that covers R is lighter.
    """
    norms_n, costs_n, needed = covering(norms_n, costs_n, coverage)
    order_n = np.argsort(costs_n, axis=-1, kind="stable")
    sorted_n = np.take_along_axis(norms_n, order_n, axis=-1)
    taken_n = np.clip(needed[..., None] - _sums_before(sorted_n), 0.0, sorted_n)
    return (taken_n * np.sqrt(np.take_along_axis(costs_n, order_n, axis=-1))).sum(axis=-1)


def prefixes(costs_n: ArrayLike) -> Chosen:
    """The n + 1 sets that hold the k cheapest components, k = 0 … n, shape (..., n + 1, n)."""
    costs_n = positive("costs", costs_n)
    rank_n = np.argsort(np.argsort(costs_n, axis=-1, kind="stable"), axis=-1, kind="stable")
    return rank_n[..., None, :] < np.arange(costs_n.shape[-1] + 1)[:, None]


def best_prefix(norms_n: ArrayLike, costs_n: ArrayLike, cost: Callable) -> tuple[Chosen, Array]:
    """(set, its cost): the cheapest components, as many as make `cost(mean_weight, bias)` least, arrays (..., P).

    With `convex_subset_cost` at a given ε this is exact over ALL sets, though only prefixes in cost order are tried.
    Derived here. With K = ΣG − nε/D the cost is λ(S)², λ(S) = Σ_S G√c/(Σ_S G − K). At the least λ every S has
    Σ_S G√c − λ(Σ_S G − K) ≥ 0, with equality at the optimum; the left side is least for {i: √c_i < λ}, a prefix. So
    component i belongs in exactly if a single query of it costs less than the whole run, c_i < λ², and a knapsack
    arises only when a budget is fixed before the target. Empty, at no cost, where ε exceeds D times the mean of G.
    """
    norms_n, costs_n = instance(norms_n, costs_n)
    sets_P_n = prefixes(costs_n)
    weight_P = mean_weight(norms_n[..., None, :], costs_n[..., None, :], sets_P_n)
    cost_P = cost(weight_P, bias(norms_n[..., None, :], sets_P_n))
    sets_P_n = np.broadcast_to(sets_P_n, (*cost_P.shape, norms_n.shape[-1]))
    best = np.expand_dims(cost_P.argmin(axis=-1), (-1, -2))
    return np.take_along_axis(sets_P_n, best, axis=-2)[..., 0, :], cost_P.min(axis=-1)


def instance(norms_n: ArrayLike, costs_n: ArrayLike) -> tuple[Array, Array]:
    """Both as floats, positive and of one shape; ValueError if they are not."""
    norms_n, costs_n = positive("norms", norms_n), positive("costs", costs_n)
    if norms_n.shape != costs_n.shape or norms_n.ndim == 0:
        raise ValueError(f"norms have shape {norms_n.shape}, costs {costs_n.shape}: give one of each per component")
    return norms_n, costs_n


def covering(norms_n: ArrayLike, costs_n: ArrayLike, coverage: ArrayLike) -> tuple[Array, Array, Array]:
    """`instance`, and the sum of norms that counts as covering R; ValueError if all components together do not."""
    norms_n, costs_n = instance(norms_n, costs_n)
    needed = np.broadcast_to(positive("coverage", coverage), norms_n.shape[:-1]) * (1 - ROUNDING)
    if (short := norms_n.sum(axis=-1) < needed).any():
        worst = np.ravel(needed)[np.ravel(short).argmax()]
        raise ValueError(f"coverage {worst:.6g} exceeds the sum of its norms: no set of components covers it")
    return norms_n, costs_n, needed


def _sums_before(values_n: Array) -> Array:
    return np.concatenate([np.zeros_like(values_n[..., :1]), np.cumsum(values_n, axis=-1)[..., :-1]], axis=-1)


def _unsorted(sorted_n: Chosen, order_n: NDArray[np.intp]) -> Chosen:
    chosen_n = np.empty_like(sorted_n)
    np.put_along_axis(chosen_n, order_n, sorted_n, axis=-1)
    return chosen_n


def _cost(numerator: Array, left: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(left > 0, numerator / left, np.inf)
