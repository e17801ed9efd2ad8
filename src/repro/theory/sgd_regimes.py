"""Cost-Aware SGD further: problems with prescribed gradient norms, a non-convex one, and what their errors tend to.

The bounds of eq. 3, eq. 4 and F.2 hold at every T; the limits here are the leading term of the error as T → ∞ on a
given problem, derived here. V(p), C(p) and J(p) are those of repro.theory.sgd. Array names: n components, d dimensions,
K trials, T iterations, B iterations of a block. Bad values raise ValueError.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from repro.theory.sgd import (
    BLOCK,
    Array,
    LeastSquares,
    expected_cost,
    moment_at_minimiser,
    positive,
    second_moment,
)

NOISE = 0.5  # standard deviation of the targets' noise, in row norms
# With s = σ(u) and y = 0 (y = 1 mirrors it), ½s² has slope s²(1−s), largest at s = 2/3, and curvature
# s²(1−s)(2−3s), between −0.0601 and its value at s = (15−√33)/24.
SLOPE = 4 / 27
_TOP = (15 - 33**0.5) / 24
CURVATURE = _TOP**2 * (1 - _TOP) * (2 - 3 * _TOP)
READINGS = 32  # iterations per run at which the full gradient is read
DESCENT_STEPS, NEWTON_STEPS = 2000, 20


def least_squares_with_norms(norms_n: Array, costs_n: Array, dimension: int, radius: float, seed: int) -> LeastSquares:
    """Least squares whose G_i over the ball are exactly `norms_n`; directions uniform, targets as in `draw_problem`.

    b_i = ‖a_i‖·β_i, β_i = u_i·x° + noise: so that G_i = ‖a_i‖² (R + |β_i|), which is solved for ‖a_i‖.
    """
    norms_n = positive("norms", norms_n)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(11,)))
    units_n_d = rng.standard_normal((len(norms_n), dimension))
    units_n_d /= np.linalg.norm(units_n_d, axis=1, keepdims=True)
    truth_d = rng.standard_normal(dimension)
    truth_d *= 0.5 * radius / np.linalg.norm(truth_d)
    targets_n = units_n_d @ truth_d + NOISE * rng.standard_normal(len(norms_n))
    lengths_n = np.sqrt(norms_n / (radius + np.abs(targets_n)))
    return LeastSquares(lengths_n[:, None] * units_n_d, lengths_n * targets_n, costs_n, float(radius))


def large_but_noiseless(n_points: int, dimension: int, radius: float, seed: int) -> LeastSquares:
    """Least squares where the largest G_i belong to components without noise: equal costs, half of the rows three times
    as long as the rest and fitted exactly, the rest with residuals that are orthogonal to them, so that x* = x°.

    p* then spends most queries where ∇f_i(x*) = 0.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(15,)))
    half = n_points // 2
    rows_n_d = rng.standard_normal((n_points, dimension))
    rows_n_d /= np.linalg.norm(rows_n_d, axis=1, keepdims=True)
    rows_n_d[:half] *= 3.0
    truth_d = rng.standard_normal(dimension)
    truth_d *= 0.5 * radius / np.linalg.norm(truth_d)
    short_n_d, noise_n = rows_n_d[half:], NOISE * rng.standard_normal(n_points - half)
    noise_n -= short_n_d @ np.linalg.lstsq(short_n_d, noise_n, rcond=None)[0]
    targets_n = rows_n_d @ truth_d + np.concatenate([np.zeros(half), noise_n])
    return LeastSquares(rows_n_d, targets_n, np.ones(n_points), float(radius))


def last_iterate_limit(problem: LeastSquares, probabilities_n: Array) -> float:
    """lim √T·E[f(x_{T+1}) − f*] of least squares under `convex_step`: D·M(p)/(4√V(p)), M the moment at x*.

    A fixed step η ends in a stationary spread Σ with HΣ + ΣH = η Σ_p to first order in η, so that the error ½ tr(HΣ)
    is η tr(Σ_p)/4 = η M/4. Cost to reach ε is then in proportion to C(p)·M(p)²/V(p), and to ε^−2, where that of the
    average is in proportion to ε^−1 (`limit_constant`).
    """
    moment = moment_at_minimiser(problem, probabilities_n)
    return float(problem.diameter * moment / (4 * np.sqrt(second_moment(problem.norms_n, probabilities_n))))


def strongly_convex_limits(problem: LeastSquares, p_n: Array, strong_convexity: float) -> tuple[float, float]:
    """lim T·E[f − f*] under `strongly_convex_steps`: (weighted average, last iterate); least squares.

    In an eigenvector of H with eigenvalue λ, let b = 2λ/μ and s the noise of Σ_p there. The error after t steps of size
    a/t, a = 2/μ, is Σ_s (s/t)^b (a/s) ξ_s: its variance is a² s/((2b−1) T). Summing it with weights t first gives
    8a² s/(3 (2b−1)(b+1) T). Errors are λ/2 times these. Needs b > ½, which λ ≥ μ grants.
    """
    average_n, last_n = _noise_shares(problem, strong_convexity)
    return float((average_n / np.asarray(p_n)).sum()), float((last_n / np.asarray(p_n)).sum())


def noise_aware_sampling(problem: LeastSquares, strong_convexity: float) -> Array:
    """The p of least cost in that limit (average iterate): p_i ∝ √(q_i/c_i), where the limit is Σ q_i/p_i; (n,).

    Theorem 4.1 with the noise that component i really adds at x* in place of its bound G_i; it needs x*.
    """
    scores_n = np.sqrt(_noise_shares(problem, strong_convexity)[0] / problem.costs_n)
    return scores_n / scores_n.sum()


def _noise_shares(problem: LeastSquares, strong_convexity: float) -> tuple[Array, Array]:
    """q_i of the limits Σ q_i/p_i, for the average and for the last iterate."""
    curvatures_d, directions_d_d = np.linalg.eigh(problem.hessian_d_d)
    scale = 2 / positive("strong_convexity", strong_convexity)
    b_d = scale * curvatures_d
    if b_d.min() <= 0.5:
        raise ValueError(f"strong_convexity is {strong_convexity}: above four times the least curvature, no limit")
    along_n_d = (problem.gradients_n_d(problem.minimiser_d) @ directions_d_d) ** 2 / len(problem.costs_n) ** 2
    last_d = 0.5 * curvatures_d * scale**2 / (2 * b_d - 1)
    return along_n_d @ (last_d * 8 / (3 * (b_d + 1))), along_n_d @ last_d


def stationarity_limits(descent: float, hessian_d_d: Array, noise_d_d: Array, scale: float) -> tuple[float, float]:
    """lim √T·E‖∇f‖² under a step η = `scale`/√T: (mean over the iterates, last iterate).

    A run that goes from x_1 down by `descent` to a minimum with Hessian H and noise Σ_p: the descent lemma, now an
    identity to second order, gives descent/scale + scale·tr(HΣ_p)/2. At the end HΣ + ΣH = ηΣ_p, so E‖∇f‖² = tr(H²Σ)
    is the second of the two terms alone. F.2's bound has Δ in place of descent and L·V in place of tr(HΣ_p).
    """
    noise = 0.5 * positive("scale", scale) * np.trace(hessian_d_d @ noise_d_d)
    return float(positive("descent", descent) / scale + noise), float(noise)


@dataclass(frozen=True, eq=False)
class Brier:
    """Logistic regression under squared loss, f_i(x) = ½ (σ(a_i·x) − y_i)²: not convex (appendix F.2).

    Rows a_i (n, d), labels y_i (n,) of 0 and 1, costs c_i (n,) per query, and the start x_1 (d,).

    Its minimiser raises ValueError when descent from the start does not end in one whose Hessian is positive definite.
    """

    rows_n_d: Array
    labels_n: Array
    costs_n: Array
    start_d: Array

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

    def slopes_K(self, index_K: Array, rows_K_d: Array, x_K_d: Array) -> Array:
        """Derivative of f_i along its row, for one component i and one point x per trial."""
        return _slopes(sigmoid(np.einsum("kd,kd->k", rows_K_d, x_K_d)), self.labels_n[index_K])

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


class Problem(Protocol):
    """What a run needs of a finite sum whose components have gradients along rows: f_i(x) = φ_i(a_i·x)."""

    rows_n_d: Array
    costs_n: Array
    start_d: Array

    def slopes_K(self, index_K: Array, rows_K_d: Array, x_K_d: Array) -> Array: ...
    def gradients_n_d(self, x_d: Array) -> Array: ...
    def stationarity_K(self, x_K_d: Array) -> Array: ...
    def hessian_d_d(self, x_d: Array) -> Array: ...


@dataclass(frozen=True)
class Descent:
    """‖∇f‖² of K runs at R readings and at the end, and what the runs cost."""

    stationarity_R_K: Array
    last_K: Array
    cost_K: Array


def descend(
    problem: Problem,
    probabilities_n: Array,
    n_iterations: int,
    n_trials: int,
    rng: np.random.Generator,
    read_at: Iterable[int],
    move: Callable[[Array], Array] = lambda estimate_K_d: estimate_K_d,
    scale: float = 1.0,
) -> Descent:
    """x ← x − move(scale·∇f_i(x)/(n p_i)), i ~ p, no projection: K = n_trials runs side by side from the start.

    The full gradient is read before the iterations in `read_at`, counted from 0. Two calls with equal generators draw
    from the same uniforms, whatever p and move.
    """
    expected_cost(problem.costs_n, probabilities_n)  # refuses what is not a distribution over the components
    n, read_at = len(problem.rows_n_d), set(read_at)
    cumulative_n = np.cumsum(probabilities_n)
    cumulative_n /= cumulative_n[-1]
    scales_n = float(positive("scale", scale)) / (n * np.asarray(probabilities_n))
    x_K_d, cost_K, readings = np.tile(problem.start_d, (n_trials, 1)), np.zeros(n_trials), []
    for start in range(0, n_iterations, BLOCK):
        length = min(BLOCK, n_iterations - start)
        indices_B_K = np.searchsorted(cumulative_n, rng.random((length, n_trials)), side="right")
        cost_K += problem.costs_n[indices_B_K].sum(axis=0)
        for t, index_K in enumerate(indices_B_K, start):
            if t in read_at:
                readings.append(problem.stationarity_K(x_K_d))
            rows_K_d = problem.rows_n_d[index_K]
            slopes_K = problem.slopes_K(index_K, rows_K_d, x_K_d)
            x_K_d -= move((scales_n[index_K] * slopes_K)[:, None] * rows_K_d)
    return Descent(np.array(readings), problem.stationarity_K(x_K_d), cost_K)


def evenly(n_iterations: int, n_readings: int = READINGS) -> list[int]:
    """The middle iterations of as many equal parts of a run."""
    return [int((j + 0.5) * n_iterations / n_readings) for j in range(n_readings)]


def sigmoid(u: Array) -> Array:
    """σ(u) = 1/(1 + e^−u), by tanh: no overflow."""
    return 0.5 + 0.5 * np.tanh(0.5 * u)


def _slopes(share: Array, labels: Array) -> Array:
    return (share - labels) * share * (1 - share)
