"""Problems with prescribed gradient norms: least squares, and the linear one for which the bound of eq. 3 is exact.

Array names: n components, d dimensions, K trials, T iterations, B iterations of a block.
"""

from dataclasses import dataclass

import numpy as np

from repro.theory.sgd import BLOCK, Array, LeastSquares, Runs, positive, second_moment

NOISE = 0.5


def least_squares_with_norms(norms_n: Array, costs_n: Array, dimension: int, radius: float, seed: int) -> LeastSquares:
    """Least squares whose G_i over the ball are exactly `norms_n`; directions uniform, targets as in `draw_problem`.

    b_i = ‖a_i‖·β_i, β_i = u_i·x° + noise: then G_i = ‖a_i‖² (R + |β_i|), which is solved for ‖a_i‖. Raises ValueError
    as LeastSquares does.
    """
    norms_n = positive("norms", norms_n)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(11,)))
    units_n_d = rng.standard_normal((len(norms_n), dimension))
    units_n_d /= np.linalg.norm(units_n_d, axis=1, keepdims=True)
    truth_d = rng.standard_normal(dimension)
    truth_d *= 0.5 * positive("radius", radius) / np.linalg.norm(truth_d)
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
    truth_d *= 0.5 * positive("radius", radius) / np.linalg.norm(truth_d)
    short_n_d, noise_n = rows_n_d[half:], NOISE * rng.standard_normal(n_points - half)
    noise_n -= short_n_d @ np.linalg.lstsq(short_n_d, noise_n, rcond=None)[0]
    targets_n = rows_n_d @ truth_d + np.concatenate([np.zeros(half), noise_n])
    return LeastSquares(rows_n_d, targets_n, np.ones(n_points), float(radius))


@dataclass(frozen=True, eq=False)
class Linear:
    """f_i(x) = g_i x on x ≥ 0, started at x_1 = D: slopes g_i (n,), costs c_i (n,) per query, the distance D to x* = 0.

    |∇f_i| = G_i everywhere, so V(p) is the second moment of every step and nothing is lost there. With a mean slope
    ḡ > 0, Σ_t E[f(x_t) − f*] = D²/(2η) + ηTV/2 less what the projection takes off and E x_{T+1}²/(2η): the bound
    D√(V/T) is reached as ḡ/√V → 0 with T·ḡ²/V → ∞. The last iterate has the second term alone, ½D√(V/T). Such
    components make up the hard instance of the lower bound (Theorem 4.3). The line goes on beyond D: a wall there
    would push x_1 ahead, and the bound needs no more than |x_1 − x*| ≤ D.
    """

    slopes_n: Array
    costs_n: Array
    distance: float

    def __post_init__(self):
        if self.slopes_n.ndim != 1 or self.slopes_n.shape != self.costs_n.shape:
            raise ValueError(f"{self.slopes_n.shape} slopes and {self.costs_n.shape} costs: give one cost per slope")
        positive("distance", self.distance)
        positive("mean slope", self.slopes_n.mean())

    @property
    def diameter(self) -> float:
        """D, what stands in the bound."""
        return self.distance

    @property
    def norms_n(self) -> Array:
        """G_i = |g_i|."""
        return np.abs(self.slopes_n)

    def error_K(self, x_K_d: Array) -> Array:
        """f(x) − f* = ḡ x."""
        return self.slopes_n.mean() * x_K_d[:, 0]


def balanced_slopes(norms_n: Array, drift: float) -> Array:
    """g_i = ±G_i whose mean is about `drift` times the mean of G: from the largest down, each sign leads towards it.

    Raises ValueError unless 0 < drift < 1, or when the largest norms leave no such signs.
    """
    norms_n = positive("norms", norms_n)
    if not 0 < drift < 1:
        raise ValueError(f"drift is {drift}: must lie between 0 and 1")
    slopes_n, total, target = np.empty_like(norms_n), 0.0, drift * norms_n.sum()
    for i in np.argsort(-norms_n, kind="stable"):
        slopes_n[i] = norms_n[i] if total <= target else -norms_n[i]
        total += slopes_n[i]
    if abs(total / target - 1) > 0.5:
        raise ValueError(f"the nearest mean slope is {total / target:.2g} times the wanted one: add points")
    return slopes_n


def run_linear(
    problem: Linear, probabilities_n: Array, steps_T: Array, n_trials: int, rng: np.random.Generator
) -> Runs:
    """Algorithm 1 on `problem`, as `run_sgd` but from x_1 = D; iterates have shape (K, 1)."""
    second_moment(problem.norms_n, probabilities_n)  # refuses what is not a distribution over the components
    steps_T = positive("steps", steps_T)
    cumulative_n = np.cumsum(probabilities_n)
    cumulative_n /= cumulative_n[-1]
    moves_n = problem.slopes_n / (len(cumulative_n) * np.asarray(probabilities_n))
    x_K, sum_K, cost_K = np.full(n_trials, problem.distance), np.zeros(n_trials), np.zeros(n_trials)
    for start in range(0, len(steps_T), BLOCK):
        block = steps_T[start : start + BLOCK]
        indices_B_K = np.searchsorted(cumulative_n, rng.random((len(block), n_trials)), side="right")
        cost_K += problem.costs_n[indices_B_K].sum(axis=0)
        for move_K in block[:, None] * moves_n[indices_B_K]:
            sum_K += x_K
            x_K -= move_K
            np.maximum(x_K, 0.0, out=x_K)
    return Runs(sum_K[:, None] / len(steps_T), x_K[:, None], cost_K)
