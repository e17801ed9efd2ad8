"""A small non-convex problem for appendix F.2: logistic regression with squared loss on the probability (Brier score).

f_i(x) = ½ (σ(a_i·x) − y_i)², y_i ∈ {0, 1}. Array names: n components, d dimensions, K trials, B iterations of a block.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from repro.theory.sgd import BLOCK, Array, positive, second_moment

# With s = σ(u) and y = 0 (y = 1 mirrors it), ½s² has slope s²(1−s), largest at s = 2/3, and curvature
# s²(1−s)(2−3s), between −0.0601 and its value at s = (15−√33)/24.
SLOPE = 4 / 27
_TOP = (15 - 33**0.5) / 24
CURVATURE = _TOP**2 * (1 - _TOP) * (2 - 3 * _TOP)
READINGS = 32  # iterations per run at which the full gradient is read
DESCENT_STEPS, NEWTON_STEPS = 2000, 20


@dataclass(frozen=True, eq=False)
class Brier:
    """Rows a_i (n, d), labels y_i (n,) of 0 and 1, costs c_i (n,) per query, and the start x_1 (d,).

    Raises ValueError when shapes disagree, a label is neither 0 nor 1, a row is zero, or descent from the start does
    not end in a minimum (one whose Hessian is positive definite).
    """

    rows_n_d: Array
    labels_n: Array
    costs_n: Array
    start_d: Array

    def __post_init__(self):
        n, d = self.rows_n_d.shape
        if self.labels_n.shape != (n,) or self.costs_n.shape != (n,) or self.start_d.shape != (d,):
            raise ValueError(f"{n} rows of {d} need {n} labels, {n} costs and a start of {d}")
        if not np.isin(self.labels_n, (0.0, 1.0)).all():
            raise ValueError("a label is neither 0 nor 1")
        positive("costs", self.costs_n)
        positive("row norms", np.linalg.norm(self.rows_n_d, axis=1))

    @property
    def norms_n(self) -> Array:
        """G_i = (4/27)‖a_i‖, the supremum of ‖∇f_i‖ over the space, and reached."""
        return SLOPE * np.linalg.norm(self.rows_n_d, axis=1)

    @property
    def smoothness(self) -> float:
        """L: ∇²f lies between −L and L; 0.077 times the largest eigenvalue of (1/n) Σ a_i a_iᵀ."""
        return float(CURVATURE * np.linalg.eigvalsh(self.rows_n_d.T @ self.rows_n_d / len(self.rows_n_d))[-1])

    @property
    def gap(self) -> float:
        """Δ = f(x_1): at least f(x_1) − inf f, since f ≥ 0; it needs no solution."""
        return self.value(self.start_d)

    def value(self, x_d: Array) -> float:
        """f(x)."""
        return float(0.5 * np.mean((sigmoid(self.rows_n_d @ x_d) - self.labels_n) ** 2))

    def gradients_n_d(self, x_d: Array) -> Array:
        """∇f_i(x) of every component."""
        return _slopes(sigmoid(self.rows_n_d @ x_d), self.labels_n)[:, None] * self.rows_n_d

    def stationarity_K(self, x_K_d: Array) -> Array:
        """‖∇f(x)‖² of the full objective."""
        gradient_K_d = _slopes(sigmoid(x_K_d @ self.rows_n_d.T), self.labels_n) @ self.rows_n_d / len(self.rows_n_d)
        return (gradient_K_d**2).sum(axis=1)

    def hessian_d_d(self, x_d: Array) -> Array:
        """∇²f(x); negative eigenvalues show that f is not convex."""
        share_n = sigmoid(self.rows_n_d @ x_d)
        slope_n = share_n * (1 - share_n)
        curvature_n = slope_n**2 + (share_n - self.labels_n) * slope_n * (1 - 2 * share_n)
        return (self.rows_n_d * curvature_n[:, None]).T @ self.rows_n_d / len(self.rows_n_d)

    @cached_property
    def minimiser_d(self) -> Array:
        """The local minimum that gradient descent reaches from the start, sharpened by Newton's method."""
        x_d = self.start_d.copy()
        for _ in range(DESCENT_STEPS):
            x_d -= self.gradients_n_d(x_d).mean(axis=0) / self.smoothness
        for _ in range(NEWTON_STEPS):
            x_d -= np.linalg.solve(self.hessian_d_d(x_d), self.gradients_n_d(x_d).mean(axis=0))
        if not self.stationarity_K(x_d[None])[0] < 1e-20 or np.linalg.eigvalsh(self.hessian_d_d(x_d))[0] <= 0:
            raise ValueError("descent from the start does not end in a minimum: give more points or another start")
        return x_d

    def noise_d_d(self, x_d: Array, probabilities_n: Array) -> Array:
        """Σ_p(x) = (1/n²) Σ ∇f_i ∇f_iᵀ/p_i, the second moment of a step's estimate at x."""
        gradients_n_d = self.gradients_n_d(x_d)
        return (gradients_n_d / np.asarray(probabilities_n)[:, None]).T @ gradients_n_d / len(gradients_n_d) ** 2


def brier_with_norms(norms_n: Array, costs_n: Array, dimension: int, seed: int) -> Brier:
    """A problem whose G_i are exactly `norms_n`: directions uniform, y_i ~ Bernoulli(σ(a_i·x°)), ‖x°‖ = 1; x_1 = −x°.

    The start is as wrong as can be, where f curves downwards.
    """
    norms_n = positive("norms", norms_n)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(12,)))
    rows_n_d = rng.standard_normal((len(norms_n), dimension))
    rows_n_d *= (norms_n / SLOPE / np.linalg.norm(rows_n_d, axis=1))[:, None]
    truth_d = rng.standard_normal(dimension)
    truth_d /= np.linalg.norm(truth_d)
    labels_n = (rng.random(len(norms_n)) < sigmoid(rows_n_d @ truth_d)).astype(float)
    return Brier(rows_n_d, labels_n, costs_n, -truth_d)


@dataclass(frozen=True)
class BrierRuns:
    """Of K runs: ‖∇f‖² averaged over READINGS evenly spaced iterates of each, ‖∇f‖² at the last, and the cost."""

    mean_K: Array
    last_K: Array
    cost_K: Array


def run_brier(
    problem: Brier, probabilities_n: Array, step: float, n_iterations: int, n_trials: int, rng: np.random.Generator
) -> BrierRuns:
    """SGD with p and weights 1/(n p_i), no projection, K = n_trials runs side by side from the problem's start.

    The mean over iterates is the expectation at an iterate drawn at random, which is what the theory returns.
    """
    second_moment(problem.norms_n, probabilities_n)  # refuses what is not a distribution over the components
    if n_iterations < READINGS:
        raise ValueError(f"n_iterations = {n_iterations}: need at least {READINGS}")
    n = len(problem.rows_n_d)
    cumulative_n = np.cumsum(probabilities_n)
    cumulative_n /= cumulative_n[-1]
    steps_n = float(positive("step", step)) / (n * np.asarray(probabilities_n))
    read_at = {int((j + 0.5) * n_iterations / READINGS) for j in range(READINGS)}
    x_K_d, sum_K, cost_K = np.tile(problem.start_d, (n_trials, 1)), np.zeros(n_trials), np.zeros(n_trials)
    for start in range(0, n_iterations, BLOCK):
        length = min(BLOCK, n_iterations - start)
        indices_B_K = np.searchsorted(cumulative_n, rng.random((length, n_trials)), side="right")
        cost_K += problem.costs_n[indices_B_K].sum(axis=0)
        for t, index_K in enumerate(indices_B_K, start):
            if t in read_at:
                sum_K += problem.stationarity_K(x_K_d)
            rows_K_d = problem.rows_n_d[index_K]
            share_K = sigmoid(np.einsum("kd,kd->k", rows_K_d, x_K_d))
            x_K_d -= (steps_n[index_K] * _slopes(share_K, problem.labels_n[index_K]))[:, None] * rows_K_d
    return BrierRuns(sum_K / READINGS, problem.stationarity_K(x_K_d), cost_K)


def sigmoid(u: Array) -> Array:
    """σ(u) = 1/(1 + e^−u), by tanh: no overflow."""
    return 0.5 + 0.5 * np.tanh(0.5 * u)


def _slopes(share: Array, labels: Array) -> Array:
    return (share - labels) * share * (1 - share)
