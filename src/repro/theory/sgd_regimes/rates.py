"""Rates of Cost-Aware SGD beyond the average iterate of the convex case: bounds, and what they leave out in the limit.

Bounds hold at every T; limits are the leading term of the error as T → ∞ on a given problem, derived here. V(p), C(p)
and J(p) are those of repro.theory.sgd. Array names: n components, d dimensions, T iterations. Bad values
raise ValueError.
"""

import numpy as np
from numpy.typing import ArrayLike

from repro.theory.sgd import Array, LeastSquares, moment_at_minimiser, positive, second_moment


def strongly_convex_steps(strong_convexity: float, n_iterations: int) -> Array:
    """η_t = 2/(μ (t+1)), t = 1..T (Lacoste-Julien, Schmidt and Bach 2012), for section 4.1, case 2; (T,)."""
    positive("n_iterations", n_iterations)
    return 2 / (positive("strong_convexity", strong_convexity) * (np.arange(n_iterations) + 2.0))


def strongly_convex_weights(n_iterations: int) -> Array:
    """Weights t of the average that belongs to `strongly_convex_steps`; (T,)."""
    positive("n_iterations", n_iterations)
    return np.arange(n_iterations) + 1.0


def strongly_convex_error_bound(second_moment: ArrayLike, strong_convexity: float, n_iterations: ArrayLike) -> Array:
    """E f(x̄_T) − f* ≤ 2V/(μ (T+1)) for those steps and weights; eq. 4 with its constant, 2."""
    moment, horizon = positive("second_moment", second_moment), positive("n_iterations", n_iterations)
    return 2 * moment / (positive("strong_convexity", strong_convexity) * (horizon + 1))


def stationarity_step(second_moment: ArrayLike, gap: float, smoothness: float, n_iterations: int) -> Array:
    """η = √(2Δ/(L V T)), f L-smooth with f(x_1) − inf f ≤ Δ: the step that minimises `stationarity_bound` (F.2)."""
    denominator = positive("second_moment", second_moment) * positive("n_iterations", n_iterations)
    return np.sqrt(2 * positive("gap", gap) / (positive("smoothness", smoothness) * denominator))


def stationarity_bound(second_moment: ArrayLike, gap: float, smoothness: float, n_iterations: ArrayLike) -> Array:
    """(1/T) Σ_t E‖∇f(x_t)‖² ≤ √(2ΔLV/T), f L-smooth, convex or not (appendix F.2; Ghadimi and Lan 2013).

    The descent lemma summed: Δ/(ηT) + ηLV/2 at `stationarity_step`. Units: (error/distance)².
    """
    moment, horizon = positive("second_moment", second_moment), positive("n_iterations", n_iterations)
    return np.sqrt(2 * positive("gap", gap) * positive("smoothness", smoothness) * moment / horizon)


def stationarity_cost(cost_product: ArrayLike, gap: float, smoothness: float, epsilon: float) -> Array:
    """2ΔL·C(p)V(p)/ε², the expected total cost at which `stationarity_bound` falls to ε (F.2): J(p) again; cost."""
    product = positive("cost_product", cost_product)
    return 2 * positive("gap", gap) * positive("smoothness", smoothness) * product / positive("epsilon", epsilon) ** 2


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
    """The p of least cost in that limit (average): p_i ∝ √(q_i/c_i), where the limit is Σ q_i/p_i; (n,).

    Theorem 4.1 with what component i really adds to the noise at x* in place of its bound G_i; it needs x*.
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
