"""Cost-Aware SGD (Cost-Aware Learning, sections 3 to 4.4, appendices D.1 and D.2): closed forms and simulation.

f(x) = (1/n) Σ f_i(x); component i has gradients of norm at most G_i > 0 (its Lipschitz constant) and costs c_i > 0 to
query. A step draws i ~ p and moves along ∇f_i(x) / (n p_i), which is unbiased for ∇f(x).

Array names carry their axes: n components (last, so that the closed forms also take a stack (..., n) of instances and
return one value for each), d dimensions, K trials, T iterations, S samplings in the order of SAMPLINGS, M horizons, and
B = 1 + resamples, where row 0 is the whole sample. Units: G in error per distance, c in cost per query, V in
(error/distance)², C in cost per step, J = C·V. Bad values raise ValueError.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from repro.stats.intervals import resample_counts

Array = NDArray[np.float64]
BLOCK = 256  # iterations whose indices are drawn at once: bounds memory, and does not change the draws


def uniform_sampling(norms_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """p_i = 1/n: the baseline that knows neither norms nor costs (section 4.3). Shape (..., n)."""
    norms_n, costs_n = norms_and_costs(norms_n, costs_n)
    return np.full(norms_n.shape, 1.0 / norms_n.shape[-1])


def variance_sampling(norms_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """p_i ∝ G_i: the least second moment, blind to cost (appendix D.1). Shape (..., n)."""
    norms_n, costs_n = norms_and_costs(norms_n, costs_n)
    return norms_n / norms_n.sum(axis=-1, keepdims=True)


def optimal_sampling(norms_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """p*_i ∝ G_i/√c_i: the least total cost to reach any error (Theorem 4.1, eq. 5). Shape (..., n)."""
    norms_n, costs_n = norms_and_costs(norms_n, costs_n)
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
    norms_n, costs_n = norms_and_costs(norms_n, costs_n)
    return expected_cost(costs_n, probabilities_n) * second_moment(norms_n, probabilities_n)


def optimal_cost_product(norms_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """J(p*) = ((1/n) Σ G_i √c_i)², the least J of any distribution (Theorem 4.1, eq. 6)."""
    norms_n, costs_n = norms_and_costs(norms_n, costs_n)
    return (norms_n * np.sqrt(costs_n)).mean(axis=-1) ** 2


def convex_step(second_moment: ArrayLike, diameter: float, n_iterations: int) -> Array:
    """η = D/√(T V), the constant step of section 4.1 for a horizon of T iterations; distance² per error."""
    moment, horizon = positive("second_moment", second_moment), positive("n_iterations", n_iterations)
    return positive("diameter", diameter) / np.sqrt(horizon * moment)


def convex_error_bound(second_moment: ArrayLike, diameter: float, n_iterations: ArrayLike) -> Array:
    """E f(x̄_T) − f* ≤ D √(V/T) for the average of the T queried iterates under `convex_step` (section 4.1).

    The constant is exactly 1: D²/(2ηT) + ηV/2 at that step. It needs no more than ‖x_1 − x*‖ ≤ D.
    """
    moment, horizon = positive("second_moment", second_moment), positive("n_iterations", n_iterations)
    return positive("diameter", diameter) * np.sqrt(moment / horizon)


def uniform_cost_ratio(norms_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """J(uniform)/J(p*) = (Σc)(ΣG²)/(ΣG√c)² ≥ 1 (eq. 8, first)."""
    norms_n, costs_n = norms_and_costs(norms_n, costs_n)
    return costs_n.sum(axis=-1) * (norms_n**2).sum(axis=-1) / (norms_n * np.sqrt(costs_n)).sum(axis=-1) ** 2


def variance_cost_ratio(norms_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """J(p ∝ G)/J(p*) = (ΣG)(ΣGc)/(ΣG√c)² ≥ 1, and 1 when all costs are equal (eq. 8, second)."""
    norms_n, costs_n = norms_and_costs(norms_n, costs_n)
    return norms_n.sum(axis=-1) * (norms_n * costs_n).sum(axis=-1) / (norms_n * np.sqrt(costs_n)).sum(axis=-1) ** 2


def variance_margin(norms_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """E[c]·Var(G) − E[G]·Cov(G, c), moments over a uniform index (Theorem D.1, eq. 11).

    Not negative exactly where p ∝ G costs no more than uniform sampling: it equals J(uniform) − J(p ∝ G).
    """
    norms_n, costs_n = norms_and_costs(norms_n, costs_n)
    mean_norm, mean_cost = norms_n.mean(axis=-1, keepdims=True), costs_n.mean(axis=-1, keepdims=True)
    covariance = ((norms_n - mean_norm) * (costs_n - mean_cost)).mean(axis=-1)
    return mean_cost[..., 0] * norms_n.var(axis=-1) - mean_norm[..., 0] * covariance


def positive(name: str, values: ArrayLike) -> Array:
    """`values` as floats, every one positive and finite; ValueError if one is not."""
    values = np.asarray(values, dtype=np.float64)
    if not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(f"{name} are {np.ravel(values).min()} at least: all must be positive and finite")
    return values


def norms_and_costs(norms_n: ArrayLike, costs_n: ArrayLike) -> tuple[Array, Array]:
    """Both as floats, positive and of one shape; ValueError if they are not."""
    norms_n, costs_n = positive("norms", norms_n), positive("costs", costs_n)
    if norms_n.shape != costs_n.shape or norms_n.ndim == 0:
        raise ValueError(f"norms have shape {norms_n.shape}, costs {costs_n.shape}: give one of each per component")
    return norms_n, costs_n


def _distribution(probabilities_n: ArrayLike, like_n: Array) -> Array:
    """Refuses a zero probability, which leaves a component out and makes V(p) infinite."""
    probabilities_n = positive("probabilities", probabilities_n)
    if probabilities_n.shape != like_n.shape:
        raise ValueError(f"{probabilities_n.shape} probabilities, {like_n.shape} components: give one for each")
    if not np.allclose(totals := probabilities_n.sum(axis=-1), 1.0, rtol=0.0, atol=1e-9):
        raise ValueError(f"probabilities sum to {np.ravel(totals)[0]}: divide them by their sum")
    return probabilities_n


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """One problem: rows a_i (n, d), targets b_i (n,), costs c_i (n,) per query, and the ball's radius.

    Raises ValueError when the rows do not span the space, a cost is not positive, or the minimiser lies outside the
    ball (f* would then not be the least value over it).
    """

    rows_n_d: Array
    targets_n: Array
    costs_n: Array
    radius: float

    def __post_init__(self):
        n, d = self.rows_n_d.shape
        positive("costs", self.costs_n)
        if np.linalg.matrix_rank(self.rows_n_d) < d:
            raise ValueError(f"the {n} rows do not span {d} dimensions: give more points or fewer dimensions")
        if (length := np.linalg.norm(self.minimiser_d)) > self.radius:
            raise ValueError(f"the minimiser has norm {length:.3g} > radius {self.radius:.3g}: give a larger radius")

    @property
    def diameter(self) -> float:
        """D = 2R, the largest distance of two points of the ball."""
        return 2.0 * self.radius

    @cached_property
    def hessian_d_d(self) -> Array:
        """∇²f = (1/n) Σ a_i a_iᵀ; its smallest eigenvalue is f's strong convexity μ."""
        return self.rows_n_d.T @ self.rows_n_d / len(self.rows_n_d)

    @cached_property
    def minimiser_d(self) -> Array:
        """x*, the least-squares solution."""
        return np.linalg.lstsq(self.rows_n_d, self.targets_n, rcond=None)[0]

    @cached_property
    def norms_n(self) -> Array:
        """G_i = max over the ball of ‖∇f_i‖ = ‖a_i‖·(‖a_i‖ R + |b_i|): attained at x = ∓R a_i/‖a_i‖, so not loose."""
        lengths_n = np.linalg.norm(self.rows_n_d, axis=1)
        return lengths_n * (lengths_n * self.radius + np.abs(self.targets_n))

    def gradients_n_d(self, x_d: Array) -> Array:
        """∇f_i(x) = a_i (a_i·x − b_i) of every component."""
        return (self.rows_n_d @ x_d - self.targets_n)[:, None] * self.rows_n_d

    def error_K(self, x_K_d: Array) -> Array:
        """f(x) − f* = ½ (x − x*)ᵀ ∇²f (x − x*), without the cancellation of subtracting two values of f."""
        away_K_d = x_K_d - self.minimiser_d
        return 0.5 * np.einsum("kd,de,ke->k", away_K_d, self.hessian_d_d, away_K_d)


def draw_problem(
    *,
    n_points: int,
    dimension: int,
    norm_low: float,
    norm_high: float,
    cost_low: float,
    cost_high: float,
    radius: float,
    seed: int,
    noise: float = 0.5,
) -> LeastSquares:
    """A random problem of the kind of section 4.4. The paper's constants are not known: every value is OUR ASSUMPTION.

    Directions uniform on the sphere; row norms s_i ~ U[norm_low, norm_high]; costs ~ U[cost_low, cost_high],
    independent of the norms; b_i = a_i·x° + noise·s_i·N(0, 1) with ‖x°‖ = radius/2, so that s_i scales row and target.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    rows_n_d = rng.standard_normal((n_points, dimension))
    rows_n_d *= (rng.uniform(norm_low, norm_high, n_points) / np.linalg.norm(rows_n_d, axis=1))[:, None]
    truth_d = rng.standard_normal(dimension)
    truth_d *= 0.5 * radius / np.linalg.norm(truth_d)
    lengths_n = np.linalg.norm(rows_n_d, axis=1)
    targets_n = rows_n_d @ truth_d + noise * lengths_n * rng.standard_normal(n_points)
    return LeastSquares(rows_n_d, targets_n, rng.uniform(cost_low, cost_high, n_points), float(radius))


@dataclass(frozen=True)
class Runs:
    """What K independent runs ended with: average and last iterate (K, d), and total cost (K,)."""

    average_K_d: Array
    last_K_d: Array
    cost_K: Array


def run_sgd(
    problem: LeastSquares,
    probabilities_n: Array,
    steps_T: Array,
    n_trials: int,
    rng: np.random.Generator,
    averaging_T: Array | None = None,
) -> Runs:
    """Algorithm 1, K = n_trials runs side by side, from the ball's centre, T = len(steps_T) iterations.

    Iteration t draws i ~ p, steps x ← x − η_t ∇f_i(x)/(n p_i) and projects on the ball. The average is over the T
    iterates at which a gradient was queried, weighted by `averaging_T` (default: equally); the last iterate is the one
    after the T-th step. Two calls with equal generators draw from the same uniforms, whatever p: pairs to compare.
    """
    second_moment(problem.norms_n, probabilities_n)  # refuses what is not a distribution over the components
    steps_T = positive("steps", steps_T)
    weights_T = np.ones_like(steps_T) if averaging_T is None else np.asarray(averaging_T, dtype=np.float64)
    n, d = problem.rows_n_d.shape
    cumulative_n = np.cumsum(probabilities_n)
    cumulative_n /= cumulative_n[-1]
    importance_n = 1.0 / (n * np.asarray(probabilities_n))
    x_K_d, sum_K_d, cost_K = np.zeros((n_trials, d)), np.zeros((n_trials, d)), np.zeros(n_trials)
    for start in range(0, len(steps_T), BLOCK):
        block = slice(start, start + BLOCK)
        indices_B_K = np.searchsorted(cumulative_n, rng.random((len(steps_T[block]), n_trials)), side="right")
        cost_K += problem.costs_n[indices_B_K].sum(axis=0)
        for index_K, step, weight in zip(indices_B_K, steps_T[block], weights_T[block], strict=True):
            sum_K_d += weight * x_K_d
            rows_K_d = problem.rows_n_d[index_K]
            residual_K = np.einsum("kd,kd->k", rows_K_d, x_K_d) - problem.targets_n[index_K]
            x_K_d -= (step * importance_n[index_K] * residual_K)[:, None] * rows_K_d
            _project(x_K_d, problem.radius)
    return Runs(sum_K_d / weights_T.sum(), x_K_d, cost_K)


def _project(x_K_d: Array, radius: float) -> None:
    squared_K = np.einsum("kd,kd->k", x_K_d, x_K_d)
    outside_K = squared_K > radius**2
    if outside_K.any():
        x_K_d[outside_K] *= (radius / np.sqrt(squared_K[outside_K]))[:, None]


def moment_at_minimiser(problem: LeastSquares, probabilities_n: Array) -> float:
    """(1/n²) Σ ‖∇f_i(x*)‖²/p_i: the second moment that a step has at x*, where V(p) is only its bound over the ball."""
    squared_n = (problem.gradients_n_d(problem.minimiser_d) ** 2).sum(axis=1)
    return float((squared_n / probabilities_n).sum() / len(squared_n) ** 2)


def limit_constant(problem: LeastSquares, probabilities_n: Array) -> float:
    """lim T·E[f(x̄_T) − f*] as T → ∞, each T with its own step η = D/√(T V(p)): what this problem does, not a bound.

    Summing x_{t+1} = x_t − η (H (x_t − x*) + ξ_t) gives x̄ − x* = H⁻¹[(x_1 − x_{T+1})/(ηT) − (1/T) Σ ξ_t], hence
    ½ [ V(p)/D² · (x_1 − x*)ᵀ H⁻¹ (x_1 − x*) + tr(H⁻¹ Σ_p) ], Σ_p = (1/n²) Σ ∇f_i(x*) ∇f_i(x*)ᵀ/p_i. Derived here
    (averaging as in Polyak and Juditsky 1992); the first iterate x_1 is the ball's centre. Corrections are O(1/√T).
    """
    gradients_n_d = problem.gradients_n_d(problem.minimiser_d)
    noise_d_d = (gradients_n_d / np.asarray(probabilities_n)[:, None]).T @ gradients_n_d / len(gradients_n_d) ** 2
    start_d = -problem.minimiser_d
    transient = start_d @ np.linalg.solve(problem.hessian_d_d, start_d) / problem.diameter**2
    moment = second_moment(problem.norms_n, probabilities_n)
    return float(0.5 * (moment * transient + np.trace(np.linalg.solve(problem.hessian_d_d, noise_d_d))))


@dataclass(frozen=True, eq=False)
class Measured:
    """Bootstrapped means of a comparison of samplings: error and cost (B, S, M), at the horizons (M,).

    Equation 3 compares, for each error ε, runs whose horizon T and step η = D/√(T V(p)) are chosen for that ε. So the
    M points of a curve are separate runs, each with the step for its own horizon.
    """

    error_B_S_M: Array
    cost_B_S_M: Array
    iterations_M: Array

    def cost_exponent(self) -> Array:
        """k of cost ∝ ε^−k, least squares over the horizons on log axes (B, S); the k of eq. 3's bound is 2."""
        error_B_S_M, cost_B_S_M = np.log(self.error_B_S_M), np.log(self.cost_B_S_M)
        error_B_S_M = error_B_S_M - error_B_S_M.mean(axis=-1, keepdims=True)
        return -(error_B_S_M * cost_B_S_M).sum(axis=-1) / (error_B_S_M**2).sum(axis=-1)


def measure(trials: pd.DataFrame, seed: int, n_resamples: int = 2000) -> Measured:
    """Bootstrap over trials (columns sampling, iteration, trial, cost, error), for all samplings and horizons."""
    iterations_M = np.sort(trials["iteration"].unique())
    shape = (len(SAMPLINGS), len(iterations_M), -1)
    order = trials.set_index(["sampling", "iteration", "trial"]).sort_index()
    by_sampling = pd.concat([order.loc[[name]] for name in SAMPLINGS])
    error_S_M_K = by_sampling["error"].to_numpy().reshape(shape)
    cost_S_M_K = by_sampling["cost"].to_numpy().reshape(shape)
    n_trials = error_S_M_K.shape[-1]
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
    weights_B_K = resample_counts(n_trials, n_resamples, rng) / n_trials
    means = [np.tensordot(weights_B_K, array, axes=(1, 2)) for array in (error_S_M_K, cost_S_M_K)]
    return Measured(*means, iterations_M)
