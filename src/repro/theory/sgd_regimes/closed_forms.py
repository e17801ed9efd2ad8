"""When does Cost-Aware SGD gain much, and over whom? Closed forms of eq. 8 by correlation of costs and gradient norms.

G_i are gradient norms and c_i costs, as in repro.theory.sgd; stacks (..., n) are taken as there.
Log-normal regimes: G = exp(γ z), c = exp(κ (ρ z + √(1−ρ²) w)), z and w independent standard normals; γ is the *norm
spread*, κ the *cost spread*, ρ the correlation of the logarithms. Bad values raise ValueError.
"""

from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from repro.theory.sgd import Array, positive, variance_margin

BISECTIONS = 60


def threshold_correlation(norms_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """The Pearson correlation of G and c above which p ∝ G costs more than uniform sampling; above 1: never.

    Theorem D.1, E[G] Cov(G, c) ≤ E[c] Var(G), divided by the means and the standard deviations: it is cv(G)/cv(c), the
    ratio of the coefficients of variation; ∞ when costs are equal. J(p ∝ G)/J(uniform) is then
    (1 + r·cv(G)·cv(c))/(1 + cv(G)²) at Pearson correlation r.
    """
    norms_n, costs_n = positive("norms", norms_n), positive("costs", costs_n)
    with np.errstate(divide="ignore", invalid="ignore"):
        return _variation(norms_n) / _variation(costs_n)


def lognormal_uniform_ratio(norm_spread: ArrayLike, cost_spread: ArrayLike, correlation: ArrayLike) -> Array:
    """J(uniform)/J(p*) of eq. 8 in a log-normal regime: exp(κ²/4 + γ² − ρκγ); n → ∞.

    Falls with the correlation, to 1 at ρ = 1 and κ = 2γ, where G/√c is constant and p* uniform.
    """
    gamma, kappa, rho = _regime(norm_spread, cost_spread, correlation)
    return np.exp(kappa**2 / 4 + gamma**2 - rho * kappa * gamma)


def lognormal_variance_ratio(cost_spread: ArrayLike) -> Array:
    """J(p ∝ G)/J(p*) of eq. 8 in a log-normal regime: exp(κ²/4), whatever the norm spread and the correlation; n → ∞.

    It is E[G] E[Gc]/E[G√c]²: weighing by G shifts log c by ρκγ, and a factor common to all costs cancels.
    """
    return np.exp(positive("cost_spread", cost_spread) ** 2 / 4)


def lognormal_threshold(norm_spread: ArrayLike, cost_spread: ArrayLike) -> Array:
    """γ/κ, the correlation ρ of the logarithms at which Theorem D.1 turns; above 1: it never does.

    At it log c rises by 1 per unit of log G: p ∝ G loses to uniform exactly when costs outgrow the norms.
    """
    return positive("norm_spread", norm_spread) / positive("cost_spread", cost_spread)


def largest_variance_ratio(cost_range: ArrayLike) -> Array:
    """The most that p ∝ G can cost over p*: (1+s)²/(4s), s = √(max c/min c); `cost_range` is max c/min c ≥ 1.

    Kantorovich's inequality for E[c]/E[√c]² under weights G/ΣG. Reached with two costs, where the cheap hold s
    times the gradient norm of the dear: without a spread of costs there is no gain, however they correlate.
    """
    return _kantorovich(np.sqrt(_range("cost_range", cost_range)))


def largest_uniform_ratio(norm_range: ArrayLike, cost_range: ArrayLike) -> Array:
    """The most that uniform sampling can cost over p*: (1+r)²/(4r), r = (max G/min G)·√(max c/min c).

    The Pólya-Szegő inequality for (Σc)(ΣG²)/(ΣG√c)². Reached with two kinds, the dear ones with the small norms.
    """
    return _kantorovich(_range("norm_range", norm_range) * np.sqrt(_range("cost_range", cost_range)))


def dramatic_instance(n: int) -> tuple[Array, Array]:
    """(norms, costs), each (n,): c_i = i², G_i = 1/i = 1/√c_i, dear components with small gradients.

    Our choice: section 4.3 names such an instance, but its numbers are not known to us.
    """
    if n < 1:
        raise ValueError(f"n = {n}: need at least one component")
    place_n = np.arange(1.0, n + 1)
    return 1 / place_n, place_n**2


def dramatic_ratios(n: ArrayLike) -> tuple[Array, Array]:
    """Eq. 8 of `dramatic_instance`: (uniform, variance)/optimal, about 0.55·n and ½ ln n.

    Uniform: (n+1)(2n+1)/(6n)·Σ 1/i². Variance: (n+1)/(2n)·Σ 1/i. Takes an array of n ≥ 1.
    """
    n = np.asarray(n)
    if n.size == 0 or n.min() < 1:
        raise ValueError("n holds no count or one below 1: need at least one component")
    place = np.arange(1.0, n.max() + 1)
    harmonic, squares = np.cumsum(1 / place)[n - 1], np.cumsum(1 / place**2)[n - 1]
    return (n + 1) * (2 * n + 1) / (6 * n) * squares, (n + 1) / (2 * n) * harmonic


def draw_scores(n: int, seed: int) -> tuple[Array, Array]:
    """z and w of a log-normal regime, (n,) each: normal quantiles in random order, w made orthogonal to z.

    Means 0, variances 1, sample correlation 0: only the shape of the joint distribution is left to chance.
    """
    if n < 3:
        raise ValueError(f"n = {n}: need at least three components")
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(10,)))
    quantiles_n = np.array([NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)])
    z_n, w_n = (scores_n / scores_n.std() for scores_n in (rng.permutation(quantiles_n), rng.permutation(quantiles_n)))
    w_n = w_n - (w_n @ z_n / n) * z_n
    return z_n, w_n / w_n.std()


def lognormal_costs(z_n: Array, w_n: Array, cost_spread: float, correlation: float) -> Array:
    """c = exp(κ (ρ z + √(1−ρ²) w)), (n,)."""
    _regime(1.0, cost_spread, correlation)
    return np.exp(cost_spread * (correlation * z_n + np.sqrt(1 - correlation**2) * w_n))


def sample_threshold(z_n: Array, w_n: Array, norm_spread: float, cost_spread: float) -> float:
    """The ρ at which Theorem D.1 turns for these very components; `lognormal_threshold` is its value for n → ∞.

    Bisection between ρ = 0 and 1. Raises ValueError where p ∝ G wins even at ρ = 1.
    """
    norms_n = np.exp(norm_spread * z_n)

    def margin(correlation):
        return variance_margin(norms_n, lognormal_costs(z_n, w_n, cost_spread, correlation))

    low, high = 0.0, 1.0
    if not margin(low) > 0 > margin(high):
        raise ValueError(
            f"norm_spread {norm_spread} and cost_spread {cost_spread}: Theorem D.1 does not turn between correlations "
            "0 and 1; give costs more spread than norms"
        )
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if margin(middle) > 0 else (low, middle)
    return (low + high) / 2


def draw_regimes(
    n_points: int, norm_spread: float, cost_spread: float, correlation: float, seed: int
) -> tuple[Array, dict[str, tuple[float, Array]]]:
    """Norms (n,), and by regime the correlation ρ of the logarithms and the costs (n,): −ρ, 0, Theorem D.1's turn, +ρ.

    The same z and w in all four. Raises ValueError unless `correlation` lies beyond the turn and below 1.
    """
    z_n, w_n = draw_scores(n_points, seed)
    turn = sample_threshold(z_n, w_n, norm_spread, cost_spread)
    if not turn < correlation <= 1:
        raise ValueError(f"correlation is {correlation}: must lie above {turn:.3f}, where Theorem D.1 turns")
    rhos = {"negative": -correlation, "none": 0.0, "threshold": turn, "positive": correlation}
    regimes = {name: (rho, lognormal_costs(z_n, w_n, cost_spread, rho)) for name, rho in rhos.items()}
    return np.exp(norm_spread * z_n), regimes


def _variation(values_n: Array) -> Array:
    return values_n.std(axis=-1) / values_n.mean(axis=-1)


def _kantorovich(spread: Array) -> Array:
    return (1 + spread) ** 2 / (4 * spread)


def _range(name: str, values: ArrayLike) -> Array:
    values = positive(name, values)
    if values.min() < 1:
        raise ValueError(f"{name} is {values.min()}: the largest over the smallest is at least 1")
    return values


def _regime(norm_spread: ArrayLike, cost_spread: ArrayLike, correlation: ArrayLike) -> tuple[Array, Array, Array]:
    rho = np.asarray(correlation, dtype=np.float64)
    if not (np.abs(rho) <= 1).all():
        raise ValueError(f"correlation is {correlation}: must lie between -1 and 1")
    return positive("norm_spread", norm_spread), positive("cost_spread", cost_spread), rho
