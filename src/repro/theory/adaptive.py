"""Cost-Aware SGD with Adam and with clipped steps (appendix F.2): runs, and what they tend to.

F.2 says that the iterations to an ε-stationary point are in proportion to V(p), whatever the optimiser, so that p* of
Theorem 4.1 remains the cheapest sampling. Here a step rule is its mean move and the second moment of its move, from
which follow the floor of ‖∇f‖², the error at a horizon and the iterations to reach ε; all derived here, as leading
terms for small steps. Estimates are g = ∇f_i(x)/(n p_i), i ~ p, one per step; Σ_p is their second moment. Array names
are those of repro.theory.sgd_regimes. Bad values raise ValueError.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from repro.theory.sgd import Array, positive
from repro.theory.sgd_regimes import READINGS, Descent, Problem, descend

BETA_1 = 0.9  # Adam's momentum; it does not enter any leading term, since it keeps the sum of the moves
TINY = 1e-8  # Adam's ε
SETTLED = 1e-4  # a flow ends when its drift is this share of that at the start; Newton's method does the rest
LOOKS = 3  # speckle: a measured intensity is the true one times a Gamma(3)/3


class Rule(Protocol):
    """How a step moves, for a step size of 1."""

    def mover(self, n_trials: int, dimension: int) -> Callable[[Array], Array]:
        """A function with the state of K fresh runs: estimates (K, d) → moves (K, d)."""

    def mean(self, gradients_n_d: Array, p_n: Array) -> tuple[Array, Array]:
        """Mean (d,) and second moment (d, d) of a move where the components have these gradients."""


@dataclass(frozen=True)
class Clipped:
    """Clipped SGD (Zhang et al. 2020): the move is g·min(1, γ/‖g‖).

    Component i enters the mean with weight w_i = min(1, γ n p_i/‖∇f_i‖), which depends on p: runs end where that mean
    is 0, and not ∇f, unless no estimate is longer than γ. When all are, the mean is γ Σ p_i ∇f_i/‖∇f_i‖: along ∇f where
    p_i ∝ ‖∇f_i‖, and else not. The second moment is at most γ², whatever V(p) is. Without a threshold (`PLAIN`) the
    mean is ∇f, the second moment Σ_p.
    """

    threshold: float

    def mover(self, n_trials: int, dimension: int) -> Callable[[Array], Array]:
        return lambda estimate_K_d: self._shares(estimate_K_d)[:, None] * estimate_K_d

    def mean(self, gradients_n_d: Array, p_n: Array) -> tuple[Array, Array]:
        shares_n = self._shares(gradients_n_d / (len(p_n) * p_n)[:, None])
        return _moments(shares_n[:, None] * gradients_n_d, p_n)

    def _shares(self, estimate_K_d: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.minimum(1.0, self.threshold / np.sqrt(np.einsum("kd,kd->k", estimate_K_d, estimate_K_d)))


PLAIN = Clipped(float("inf"))  # SGD


@dataclass(frozen=True)
class Adam:
    """Adam with bias correction: the move is m̂/(√v̂ + ε).

    With β₂ near 1, v̂ is E g² of each coordinate, the diagonal of Σ_p: the mean move is D∇f with D = diag(Σ_p)^(−½), and
    its second moment DΣ_pD has ones on its diagonal. Where p scales Σ_p by V(p) and leaves its shape, D is in
    proportion to 1/√V, so transient and noise of `Limit` are to √V: T ∝ V for steps a/√T, the same a for every p, but
    T ∝ √V on the way at one step η for every p (`time_to`).
    """

    beta_2: float

    def mover(self, n_trials: int, dimension: int) -> Callable[[Array], Array]:
        mean_K_d, square_K_d, time = np.zeros((n_trials, dimension)), np.zeros((n_trials, dimension)), 0

        def move(estimate_K_d: Array) -> Array:
            nonlocal mean_K_d, square_K_d, time
            time += 1
            mean_K_d += (1 - BETA_1) * (estimate_K_d - mean_K_d)
            square_K_d += (1 - self.beta_2) * (estimate_K_d**2 - square_K_d)
            root_K_d = np.sqrt(square_K_d / (1 - self.beta_2**time))
            return mean_K_d / ((1 - BETA_1**time) * (root_K_d + TINY))

        return move

    def mean(self, gradients_n_d: Array, p_n: Array) -> tuple[Array, Array]:
        drift_d, noise_d_d = _moments(gradients_n_d, p_n)
        scale_d = 1 / np.sqrt(np.diag(noise_d_d))
        return scale_d * drift_d, scale_d[:, None] * noise_d_d * scale_d


def _moments(gradients_n_d: Array, p_n: Array) -> tuple[Array, Array]:
    return gradients_n_d.mean(axis=0), (gradients_n_d / p_n[:, None]).T @ gradients_n_d / len(p_n) ** 2


@dataclass(frozen=True, eq=False)
class Limit:
    """E‖∇f‖² of T steps of size η, averaged over the iterates: floor + transient/(ηT) + noise·η."""

    transient: float
    noise: float
    floor: float
    end_d: Array  # x_p, where the mean path ends

    @property
    def best(self) -> float:
        """The a for which steps η = a/√T have the least error, √(transient/noise)."""
        return float(np.sqrt(self.transient / self.noise))

    def error(self, scale: float, n_iterations: int) -> float:
        """With η = `scale`/√T: floor + (transient/scale + noise·scale)/√T. The last iterate has no transient."""
        return float(self.floor + (self.transient / scale + self.noise * scale) / np.sqrt(n_iterations))

    def iterations(self, scale: float, epsilon: float) -> float:
        """T at which that error is ε; infinite for ε up to the floor.

        With the best scale it is 4·transient·noise/(ε − floor)². F.2 is the case without floor, with Δ for transient
        and LV/2 for noise: 2ΔLV/ε².
        """
        away = epsilon - self.floor
        return float(((self.transient / scale + self.noise * scale) / away) ** 2) if away > 0 else np.inf


def limit(problem: Problem, p_n: Array, rule: Rule) -> Limit:
    """The leading terms of a rule's error as its step η → 0 and ηT → ∞.

    x follows dx/ds = −m(x), m the mean move and s = ηt, to a zero x_p of m: floor = ‖∇f(x_p)‖², and transient is the
    integral of ‖∇f‖² − floor on the way (of SGD: the descent f(x_1) − f*). Around x_p it spreads with a covariance ηX,
    MX + XMᵀ = N, M the Jacobian of m and N the second moment of a move: noise = tr(H²X) (of SGD: ½ tr(HΣ_p)).
    ValueError when the flow does not settle.
    """
    from scipy.linalg import solve_continuous_lyapunov  # scipy takes a second to import

    dimension = len(problem.start_d)
    start = np.linalg.norm(_mean(problem, p_n, rule, problem.start_d)[0])
    path = _flow(problem, p_n, rule, lambda x_d, drift_d: np.linalg.norm(drift_d) - SETTLED * start)
    time, end = path.t[-1], path.y[:, -1]
    x_d, jacobian_d_d = _zero(problem, p_n, rule, end[:dimension])
    spread_d_d = solve_continuous_lyapunov(jacobian_d_d, _mean(problem, p_n, rule, x_d)[1])
    floor, hessian_d_d = float(problem.stationarity_K(x_d[None])[0]), problem.hessian_d_d(x_d)
    noise = np.trace(hessian_d_d @ hessian_d_d @ spread_d_d)
    return Limit(float(end[dimension] - floor * time), float(noise), floor, x_d)


def time_to(problem: Problem, p_n: Array, rule: Rule, epsilon: float) -> float:
    """s at which the flow of `limit` first has ‖∇f‖² ≤ ε on its way down: a run of small step η needs s/η iterations.

    Of SGD it does not depend on p; of Adam it is in proportion to √V(p) if the shape of Σ_p does not depend on p.
    """
    return float(_flow(problem, p_n, rule, lambda x_d, _: problem.stationarity_K(x_d[None])[0] - epsilon).t[-1])


def _mean(problem: Problem, p_n: Array, rule: Rule, x_d: Array) -> tuple[Array, Array]:
    return rule.mean(problem.gradients_n_d(x_d), p_n)


def _flow(problem: Problem, p_n: Array, rule: Rule, falls: Callable[[Array, Array], float]):
    """scipy's solution, x and ∫‖∇f‖² ds in its rows, up to where `falls`(x, drift) first falls to 0."""
    from scipy.integrate import solve_ivp

    def slope(_, state):
        x_d = state[:-1]
        return np.append(-_mean(problem, p_n, rule, x_d)[0], problem.stationarity_K(x_d[None]))

    def event(_, state):
        return falls(state[:-1], _mean(problem, p_n, rule, state[:-1])[0])

    event.terminal, event.direction = True, -1
    start = np.append(problem.start_d, 0.0)
    path = solve_ivp(slope, (0, 1e9), start, "LSODA", events=event, rtol=1e-7, atol=1e-10)
    if not len(path.t_events[0]):
        raise ValueError("the mean path from the start does not settle: give more points or another start")
    return path


def _zero(problem: Problem, p_n: Array, rule: Rule, x_d: Array, h: float = 1e-6) -> tuple[Array, Array]:
    """The zero of the mean move next to x, by Newton's method, and its Jacobian there, by central differences."""
    for _ in range(8):
        ends = [_mean(problem, p_n, rule, x_d + s * h * e_d)[0] for e_d in np.eye(len(x_d)) for s in (1, -1)]
        jacobian_d_d = (np.array(ends[::2]) - np.array(ends[1::2])).T / (2 * h)
        x_d = x_d - np.linalg.solve(jacobian_d_d, _mean(problem, p_n, rule, x_d)[0])
    return x_d, jacobian_d_d


def run(
    problem: Problem,
    p_n: Array,
    rule: Rule,
    step: float,
    n_iterations: int,
    n_trials: int,
    rng: np.random.Generator,
    read_at: Iterable[int] = (),
) -> Descent:
    """K = n_trials runs of a rule with step η, as `repro.theory.sgd_regimes.descend` makes them."""
    move = rule.mover(n_trials, len(problem.start_d))
    return descend(problem, p_n, n_iterations, n_trials, rng, read_at, lambda estimate_K_d: step * move(estimate_K_d))


def mean_error_K(
    problem: Problem, p_n: Array, rule: Rule, step: float, n_iterations: int, n_trials: int, rng: np.random.Generator
) -> Array:
    """‖∇f‖² averaged over the iterates of K = n_trials runs, (K,), by the midpoint rule in √t: dense at the start."""
    root_R = (np.arange(READINGS) + 0.5) / READINGS
    read_at, place_R = np.unique((n_iterations * root_R**2).astype(int), return_inverse=True)
    weight_R = np.bincount(place_R, 2 * root_R / READINGS)
    return weight_R @ run(problem, p_n, rule, step, n_iterations, n_trials, rng, read_at).stationarity_R_K


@dataclass(frozen=True, eq=False)
class PhaseRetrieval:
    """f_i(x) = (h_i/4) ((a_i·x)² − y_i)²: neither convex nor L-smooth, but (L0, L1)-smooth (F.2, third case).

    Rows a_i (n, d) that span the space, intensities y_i ≥ 0 (n,), weights h_i > 0 (n,), costs c_i (n,), start x_1 (d,).
    With t = a_i·x and q = mean of h t² ≥ λ‖x‖², ‖∇²f‖ ≤ max‖a‖² (3q + mean hy) grows without limit, like ‖x‖²; but
    ‖x‖·‖∇f‖ ≥ x·∇f = mean of h(t⁴ − y t²) ≥ q²/mean h − q max y, so that ‖∇f‖ grows like ‖x‖³: for any L1 > 0 there is
    an L0 with ‖∇²f‖ ≤ L0 + L1‖∇f‖. At x = 0 the curvature is −mean of h y a aᵀ, negative.
    """

    rows_n_d: Array
    intensities_n: Array
    weights_n: Array
    costs_n: Array
    start_d: Array

    def slopes_K(self, index_K: Array, rows_K_d: Array, x_K_d: Array) -> Array:
        """Derivative of f_i along its row, for one component i and one point x per trial."""
        along_K = np.einsum("kd,kd->k", rows_K_d, x_K_d)
        return self.weights_n[index_K] * along_K * (along_K**2 - self.intensities_n[index_K])

    def gradients_n_d(self, x_d: Array) -> Array:
        """∇f_i(x) of every component."""
        along_n = self.rows_n_d @ x_d
        return (self.weights_n * along_n * (along_n**2 - self.intensities_n))[:, None] * self.rows_n_d

    def stationarity_K(self, x_K_d: Array) -> Array:
        """‖∇f(x)‖² of the full objective."""
        along_K_n = x_K_d @ self.rows_n_d.T
        slopes_K_n = self.weights_n * along_K_n * (along_K_n**2 - self.intensities_n)
        return ((slopes_K_n @ self.rows_n_d / len(self.rows_n_d)) ** 2).sum(axis=1)

    def hessian_d_d(self, x_d: Array) -> Array:
        """∇²f(x)."""
        curvature_n = self.weights_n * (3 * (self.rows_n_d @ x_d) ** 2 - self.intensities_n)
        return (self.rows_n_d * curvature_n[:, None]).T @ self.rows_n_d / len(self.rows_n_d)


def phase_retrieval_with_norms(
    norms_n: Array, costs_n: Array, dimension: int, radius: float, seed: int
) -> PhaseRetrieval:
    """A problem whose G_i, the largest ‖∇f_i‖ in the ball of the start, ‖x‖ ≤ radius·√d, are exactly `norms_n`.

    Unit rows of uniform direction; y_i = (a_i·x°)²·speckle with ‖x°‖ = √d, so that (a_i·x°)² is 1 on average. Along its
    row |t (t² − y)| is largest at the ball's edge or at t² = y/3.
    """
    norms_n, edge = positive("norms", norms_n), float(positive("radius", radius)) * dimension**0.5
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(16,)))
    rows_n_d, truth_d, start_d = (rng.standard_normal(shape) for shape in ((len(norms_n), dimension), *[dimension] * 2))
    rows_n_d /= np.linalg.norm(rows_n_d, axis=1, keepdims=True)
    truth_d *= dimension**0.5 / np.linalg.norm(truth_d)
    intensities_n = (rows_n_d @ truth_d) ** 2 * rng.gamma(LOOKS, 1 / LOOKS, len(norms_n))
    inner_n = np.minimum(np.sqrt(intensities_n / 3), edge)
    slope_n = np.maximum(*(np.abs(t * (t**2 - intensities_n)) for t in (edge, inner_n)))
    return PhaseRetrieval(rows_n_d, intensities_n, norms_n / slope_n, costs_n, edge * start_d / np.linalg.norm(start_d))
