"""Projected SGD with importance weights (Algorithm 1 of Cost-Aware Learning) on least squares, many trials at once.

f(x) = (1/n) Σ ½ (a_i·x − b_i)² over the ball ‖x‖ ≤ R about the origin. Array names carry their axes: n points,
d dimensions, K trials, T iterations.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from repro.theory.sgd.closed_forms import Array, positive, second_moment

BLOCK = 256  # iterations whose indices are drawn at once: bounds memory, and does not change the draws


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """One problem: rows a_i (n, d), targets b_i (n,), costs c_i (n,) per query, and the ball's radius.

    Raises ValueError when shapes disagree, a row is zero, the rows do not span the space, a cost or the radius is not
    positive, or the minimiser lies outside the ball (f* would then not be the least value over it).
    """

    rows_n_d: Array
    targets_n: Array
    costs_n: Array
    radius: float

    def __post_init__(self):
        n, d = self.rows_n_d.shape
        if self.targets_n.shape != (n,) or self.costs_n.shape != (n,):
            raise ValueError(
                f"{n} rows, but targets of shape {self.targets_n.shape} and costs of shape {self.costs_n.shape}: "
                "give one target and one cost per row"
            )
        positive("costs", self.costs_n)
        positive("radius", self.radius)
        positive("row norms", np.linalg.norm(self.rows_n_d, axis=1))
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
    independent of the norms; b_i = a_i·x° + noise·s_i·N(0, 1) with ‖x°‖ = radius/2: a whole equation is scaled by s_i.
    """
    for name, low, high in (("norm", norm_low, norm_high), ("cost", cost_low, cost_high)):
        if not 0 < low <= high < np.inf:
            raise ValueError(f"{name}_low = {low}, {name}_high = {high}: need 0 < {name}_low <= {name}_high")
    if not 1 <= dimension <= n_points:
        raise ValueError(f"n_points = {n_points}, dimension = {dimension}: need 1 <= dimension <= n_points")
    if not 0 <= noise < np.inf:
        raise ValueError(f"noise = {noise}: must be zero or positive, and finite")
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    rows_n_d = rng.standard_normal((n_points, dimension))
    rows_n_d *= (rng.uniform(norm_low, norm_high, n_points) / np.linalg.norm(rows_n_d, axis=1))[:, None]
    truth_d = rng.standard_normal(dimension)
    truth_d *= 0.5 * positive("radius", radius) / np.linalg.norm(truth_d)
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
    if weights_T.shape != steps_T.shape:
        raise ValueError(f"{len(weights_T)} averaging weights for {len(steps_T)} steps: give one weight per step")
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
