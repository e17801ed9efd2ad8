"""Closed forms of Cost-Aware SGD (Cost-Aware Learning, sections 3 to 4.3, appendices D.1 and D.2).

f(x) = (1/n) Σ f_i(x); component i has gradients of norm at most G_i > 0 (its Lipschitz constant) and costs c_i > 0 to
query. A step draws i ~ p and moves along ∇f_i(x) / (n p_i), which is unbiased for ∇f(x).

Array names carry their axes: n is the component axis. It is the last one: every function here also takes arrays of
shape (..., n), a stack of instances, and then returns one value per instance. Units: G in error per distance, c in
cost per query, V in (error/distance)², C in cost per step, J = C·V. Bad values raise ValueError.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def uniform_sampling(norms_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """p_i = 1/n: the baseline that knows neither norms nor costs (section 4.3). Shape (..., n)."""
    norms_n, costs_n = _norms_and_costs(norms_n, costs_n)
    return np.full(norms_n.shape, 1.0 / norms_n.shape[-1])


def variance_sampling(norms_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """p_i ∝ G_i: the least second moment, blind to cost (appendix D.1). Shape (..., n)."""
    norms_n, costs_n = _norms_and_costs(norms_n, costs_n)
    return norms_n / norms_n.sum(axis=-1, keepdims=True)


def optimal_sampling(norms_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """p*_i ∝ G_i/√c_i: the least total cost to reach any error (Theorem 4.1, eq. 5). Shape (..., n)."""
    norms_n, costs_n = _norms_and_costs(norms_n, costs_n)
    scores_n = norms_n / np.sqrt(costs_n)
    return scores_n / scores_n.sum(axis=-1, keepdims=True)


SAMPLINGS = {"uniform": uniform_sampling, "variance": variance_sampling, "optimal": optimal_sampling}


def expected_cost(costs_n: ArrayLike, probabilities_n: ArrayLike) -> Array:
    """C(p) = Σ p_i c_i, the expected cost of one step (eq. 1); cost per step."""
    costs_n = positive("costs", costs_n)
    return (_distribution(probabilities_n, costs_n) * costs_n).sum(axis=-1)


def second_moment(norms_n: ArrayLike, probabilities_n: ArrayLike) -> Array:
    """V(p) = (1/n²) Σ G_i²/p_i, the bound on E‖∇f_i(x)/(n p_i)‖² (section 4.1, case 1); (error/distance)²."""
    norms_n = positive("norms", norms_n)
    return (norms_n**2 / _distribution(probabilities_n, norms_n)).sum(axis=-1) / norms_n.shape[-1] ** 2


def cost_product(norms_n: ArrayLike, costs_n: ArrayLike, probabilities_n: ArrayLike) -> Array:
    """J(p) = C(p)·V(p), what the cost to reach an error is proportional to (eq. 3 and 4)."""
    norms_n, costs_n = _norms_and_costs(norms_n, costs_n)
    return expected_cost(costs_n, probabilities_n) * second_moment(norms_n, probabilities_n)


def optimal_cost_product(norms_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """J(p*) = ((1/n) Σ G_i √c_i)², the least J of any distribution (Theorem 4.1, eq. 6)."""
    norms_n, costs_n = _norms_and_costs(norms_n, costs_n)
    return (norms_n * np.sqrt(costs_n)).mean(axis=-1) ** 2


def convex_step(second_moment: ArrayLike, diameter: float, n_iterations: int) -> Array:
    """η = D/√(T V), the constant step of section 4.1 for a horizon of T iterations; distance² per error."""
    return positive("diameter", diameter) / np.sqrt(
        positive("n_iterations", n_iterations) * positive("second_moment", second_moment)
    )


def convex_error_bound(second_moment: ArrayLike, diameter: float, n_iterations: ArrayLike) -> Array:
    """E f(x̄_T) − f* ≤ D √(V/T) for the average of the T queried iterates under `convex_step` (section 4.1).

    The constant is exactly 1: D²/(2ηT) + ηV/2 at that step. It needs no more than ‖x_1 − x*‖ ≤ D.
    """
    moment, horizon = positive("second_moment", second_moment), positive("n_iterations", n_iterations)
    return positive("diameter", diameter) * np.sqrt(moment / horizon)


def convex_iterations(second_moment: ArrayLike, diameter: float, epsilon: float) -> Array:
    """T(ε) = D² V(p)/ε², the horizon at which `convex_error_bound` falls to ε (section 4.1, case 1); iterations."""
    moment = positive("second_moment", second_moment)
    return positive("diameter", diameter) ** 2 * moment / positive("epsilon", epsilon) ** 2


def convex_cost(cost_product: ArrayLike, diameter: float, epsilon: float) -> Array:
    """(D²/ε²)·C(p)V(p), the expected total cost to reach error ε, f convex (eq. 3); cost. Takes J(p)."""
    product = positive("cost_product", cost_product)
    return positive("diameter", diameter) ** 2 * product / positive("epsilon", epsilon) ** 2


def strongly_convex_cost(cost_product: ArrayLike, strong_convexity: float, epsilon: float) -> Array:
    """C(p)V(p)/(μ ε), the expected total cost to reach error ε, f μ-strongly convex (eq. 4); cost. Takes J(p).

    Up to a constant that belongs to step and averaging, the same for every p: 2 for steps 2/(μ(t+1)) with iterates
    averaged in proportion to t (Lacoste-Julien, Schmidt and Bach 2012).
    """
    product = positive("cost_product", cost_product)
    return product / (positive("strong_convexity", strong_convexity) * positive("epsilon", epsilon))


def uniform_cost_ratio(norms_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """J(uniform)/J(p*) = (Σc)(ΣG²)/(ΣG√c)² ≥ 1 (eq. 8, first)."""
    norms_n, costs_n = _norms_and_costs(norms_n, costs_n)
    return costs_n.sum(axis=-1) * (norms_n**2).sum(axis=-1) / (norms_n * np.sqrt(costs_n)).sum(axis=-1) ** 2


def variance_cost_ratio(norms_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """J(p ∝ G)/J(p*) = (ΣG)(ΣGc)/(ΣG√c)² ≥ 1, and 1 when all costs are equal (eq. 8, second)."""
    norms_n, costs_n = _norms_and_costs(norms_n, costs_n)
    return norms_n.sum(axis=-1) * (norms_n * costs_n).sum(axis=-1) / (norms_n * np.sqrt(costs_n)).sum(axis=-1) ** 2


def variance_margin(norms_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """E[c]·Var(G) − E[G]·Cov(G, c), moments over a uniform index (Theorem D.1, eq. 11).

    Not negative exactly where p ∝ G costs no more than uniform sampling: it equals J(uniform) − J(p ∝ G).
    """
    norms_n, costs_n = _norms_and_costs(norms_n, costs_n)
    mean_norm, mean_cost = norms_n.mean(axis=-1, keepdims=True), costs_n.mean(axis=-1, keepdims=True)
    covariance = ((norms_n - mean_norm) * (costs_n - mean_cost)).mean(axis=-1)
    return mean_cost[..., 0] * norms_n.var(axis=-1) - mean_norm[..., 0] * covariance


def positive(name: str, values: ArrayLike) -> Array:
    """`values` as floats, every one positive and finite; ValueError naming the first that is not."""
    values = np.asarray(values, dtype=np.float64)
    if values.size == 0:
        raise ValueError(f"{name} is empty: give at least one value")
    bad = ~(np.isfinite(values) & (values > 0))
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        where = f"{name}{list(place)}" if place else name
        raise ValueError(f"{where} is {values[place]}: every value of {name} must be positive and finite")
    return values


def _norms_and_costs(norms_n: ArrayLike, costs_n: ArrayLike) -> tuple[Array, Array]:
    norms_n, costs_n = positive("norms", norms_n), positive("costs", costs_n)
    if norms_n.shape != costs_n.shape or norms_n.ndim == 0:
        raise ValueError(
            f"norms have shape {norms_n.shape} and costs {costs_n.shape}: give one norm and one cost per component"
        )
    return norms_n, costs_n


def _distribution(probabilities_n: ArrayLike, like_n: Array) -> Array:
    """A zero probability is refused: it leaves a component out, and V(p) is then infinite."""
    probabilities_n = positive("probabilities", probabilities_n)
    if probabilities_n.shape != like_n.shape or like_n.ndim == 0:
        raise ValueError(
            f"probabilities have shape {probabilities_n.shape}, the components {like_n.shape}: give one per component"
        )
    totals = probabilities_n.sum(axis=-1)
    if not np.allclose(totals, 1.0, rtol=0.0, atol=1e-9):
        worst = np.ravel(totals)[np.abs(np.ravel(totals) - 1.0).argmax()]
        raise ValueError(f"probabilities sum to {worst}: divide them by their sum")
    return probabilities_n
