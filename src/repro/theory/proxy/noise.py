"""A proxy with additive noise (Theorem D.5), beside what holds without its Taylor expansion.

Ĝ_i = G_i + ξ_i, the ξ_i independent, of mean 0 and variance σ². Noise is measured in units of the standard deviation of
G over a uniform index, so that the correlation of G and Ĝ is ρ = 1/√(1 + noise²) and noise² = 1/ρ² − 1. Array names: n
components, K draws of the noise.

**Exactly.** With w_i = Ĝ_i/G_i > 0 and a_i = G_i √c_i, J(p̂)/J(p*) = (Σ a_i w_i)(Σ a_i/w_i)/(Σ a_i)². The w_i are
independent with mean 1, so each pair i ≠ j contributes a_i a_j E[1/w_j] and each i contributes a_i²: see
`expected_excess`. Theorem D.5 puts E[1/w] − 1 ≈ σ²/G² and drops the term of i = j, which is negative.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from repro.theory.proxy.closed_forms import not_negative
from repro.theory.sgd import Array, positive


def correlation(noise: ArrayLike) -> Array:
    """ρ = 1/√(1 + noise²), Pearson, of the norms and the noisy proxy; `noise` in standard deviations of the norms."""
    return 1.0 / np.sqrt(1.0 + not_negative("noise", noise) ** 2)


def noise_of(correlation: ArrayLike) -> Array:
    """√(1/ρ² − 1): the noise, in standard deviations of the norms, that leaves the correlation ρ in (0, 1]."""
    rho = positive("correlation", correlation)
    if (rho > 1).any():
        raise ValueError(f"correlation is {rho.max()}: at most 1")
    return np.sqrt(1.0 / rho**2 - 1.0)


def taylor_excess(norms_n: ArrayLike, costs_n: ArrayLike, deviation: ArrayLike) -> Array:
    """σ² Σ(√c_i/G_i)/Σ(G_i √c_i), σ² = Var(G) (1/ρ² − 1): the excess that Theorem D.5 gives, for each `deviation` σ."""
    norms_n, roots_n = positive("norms", norms_n), np.sqrt(positive("costs", costs_n))
    return not_negative("deviation", deviation) ** 2 * (roots_n / norms_n).sum() / (norms_n * roots_n).sum()


def expected_excess(norms_n: ArrayLike, costs_n: ArrayLike, inverse_excess_n: ArrayLike) -> float:
    """E[J(p̂)/J(p*)] − 1 exactly: Σ_i a_i (A − a_i) m_i/A², a_i = G_i √c_i, A = Σ a_i, m_i = E[1/w_i] − 1.

    For independent w_i > 0 of mean 1. With the m_i = σ²/G_i² of second order, and of log-normal w at any σ, it is
    Theorem D.5's less σ² Σ c_i/A². Infinite as soon as one m_i is.
    """
    share_n = positive("norms", norms_n) * np.sqrt(positive("costs", costs_n))
    total = share_n.sum()
    return float((share_n * (total - share_n) * np.asarray(inverse_excess_n)).sum() / total**2)


def unreachable(norms_n: ArrayLike, deviation: float) -> Array:
    """Φ(−G_i/σ): the chance that Gaussian noise of standard deviation σ takes Ĝ_i to 0 or below, so p_i = 0. (n,)"""
    return ndtr(-not_negative("norms", norms_n) / positive("deviation", deviation))


def some_unreachable(norms_n: ArrayLike, deviation: float) -> float:
    """1 − Π(1 − Φ(−G_i/σ)): the chance that J(p̂) is infinite under Gaussian noise clipped at 0."""
    return float(-np.expm1(np.log1p(-unreachable(norms_n, deviation)).sum()))


def most_symmetric_noise(norms_n: ArrayLike) -> float:
    """min G/std(G): beyond it every symmetric noise, independent of G, makes a proxy negative with positive chance.

    ξ ≤ −σ happens for every symmetric ξ of variance σ² > 0, with equality only for ±σ; uniform noise ends √3 earlier.
    """
    norms_n = positive("norms", norms_n)
    return float(norms_n.min() / norms_n.std())


@dataclass(frozen=True)
class Noise:
    """A family of noise: `draw(rng, norms_n, σ, K)` gives Ĝ (K, n); `inverse_excess(norms_n, σ)`: E[G/Ĝ] − 1 (n,)."""

    label: str
    draw: Callable[[np.random.Generator, Array, float, int], Array]
    inverse_excess: Callable[[Array, float], Array]


def _draw_lognormal(rng: np.random.Generator, norms_n: Array, deviation: float, n_draws: int) -> Array:
    variance_n = np.log1p((deviation / norms_n) ** 2)
    return norms_n * np.exp(np.sqrt(variance_n) * rng.standard_normal((n_draws, len(norms_n))) - variance_n / 2)


def _draw_uniform(rng: np.random.Generator, norms_n: Array, deviation: float, n_draws: int) -> Array:
    shifts_K_n = np.sqrt(3.0) * deviation * rng.uniform(-1.0, 1.0, (n_draws, len(norms_n)))
    return np.maximum(0.0, norms_n + shifts_K_n)


def _draw_gaussian(rng: np.random.Generator, norms_n: Array, deviation: float, n_draws: int) -> Array:
    return np.maximum(0.0, norms_n + deviation * rng.standard_normal((n_draws, len(norms_n))))


def _uniform_inverse_excess(norms_n: Array, deviation: float) -> Array:
    """artanh(x)/x − 1 at x = √3 σ/G, the logarithm of an integral over 1/(1 + u); infinite from x = 1 on."""
    x_n = np.sqrt(3.0) * deviation / norms_n
    inside_n = np.where(x_n < 1, x_n, 0.5)
    return np.where(x_n < 1, np.arctanh(inside_n) / inside_n - 1.0, np.inf)


NOISES = {
    "lognormal": Noise("log-normal, never ≤ 0", _draw_lognormal, lambda norms_n, sd: (sd / norms_n) ** 2),
    "uniform": Noise("uniform, ±√3 σ", _draw_uniform, _uniform_inverse_excess),
    # The density of Ĝ at 0 is positive, so the mean of 1/Ĝ does not exist at any σ > 0; clipped, p_i can be 0.
    "gaussian": Noise("Gaussian, clipped at 0", _draw_gaussian, lambda norms_n, sd: np.full(len(norms_n), np.inf)),
}
