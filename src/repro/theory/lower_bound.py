"""A lower bound on the total cost of any algorithm (Theorem 4.3, appendix E), with every constant explicit.

The paper's bound is Ω((G²/ε²) ((1/n) Σ_{i∈S} √c_i)²), for sets S of sufficiently similar costs; we do not know its
constants. Here we carry out its argument with our own, in two places more tightly.

**Hard instance.** f_i(x) = g_i x on [−1, 1], so f(x) = ḡ x. The g_i ∈ [−G, G] are independent with mean ±m_i, all with
the same sign, a fair coin. m = (1/n) Σ m_i, s = the standard deviation of ḡ. Slopes: `GAUSSIAN` are the paper's,
N(±μ_i, G²/4) clipped to [−G, G]; `COIN` are ours, ±G with means ±μ_i, without clipping.

1. Under +, the error ḡ x + |ḡ| is at least ḡ (1 + x) ≥ m (1 + x) − 2 (m − ḡ)₊, and 2 E(m − ḡ)₊ = E|ḡ − m| ≤ s. With
   the same under −, an algorithm of mean error ≤ ε sees data whose laws under + and − differ, in total variation, by
   v ≥ 1 − (ε + s)/m. (The paper counts wrong signs only, and loses a factor of 2 in ε, and it bounds the tail of ḡ.)
2. By Pinsker the divergence of these laws is at least 2 v², each way.
3. A second query of i tells nothing. With q_i the chance that i is queried and K_i the divergence of g_i between the
   signs, Σ q_i K_i ≥ 2 v².
4. Hence the expected cost is at least Σ q_i c_i ≥ **2 v²/max_i (K_i/c_i)**.

Any μ gives a valid bound. The paper takes μ_i = λ √c_i on S and 0 off it (`prefix_means`); its condition on S says
that no μ_i exceeds G/2. Ours is **μ_i = min(λ √c_i, G/2)** (`capped_means`): step 4 does not need equal K_i/c_i, so
that a component too expensive for S can still carry G/2. No condition is left, and λ is smaller for the same mean
slope. For coins and similar costs the bound is (G²/16) ((1/n) Σ √c_i)²/(ε + G/√n)², up to a factor of at most 1.1.

Array names: n components. Costs > 0; G = `lipschitz` and ε = `epsilon` in error, for a domain of radius 1.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from repro.theory.sgd import Array, positive

SEPARATIONS = np.geomspace(1.05, 20.0, 60)  # (1/n) Σ μ_i/ε; at 1 or less no bound follows


@dataclass(frozen=True)
class Slopes:
    """A family of slopes at G = 1: from μ_n, the mean and the variance (n,) of each, and K (n,) between the signs."""

    mean: Callable[[Array], Array]
    variance: Callable[[Array], Array]
    divergence: Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class LowerBound:
    """A certified bound and the instance behind it.

    cost: no algorithm of mean error ≤ ε costs less (0: no bound); means_n: the μ_i ≥ 0; signal: m; separation:
    (1/n) Σ μ_i/ε.
    """

    cost: float
    means_n: Array
    signal: float
    separation: float

    @property
    def active(self) -> float:
        """Share of the components that carry a signal."""
        return float((self.means_n > 0).mean())


def maximal_prefix(costs_n: ArrayLike, lipschitz: float, epsilon: float, separation: float) -> int:
    """|S| of the largest set with max_S √c/Σ_S √c ≤ G/(2 a n ε), a the separation (eq. 13); 0 if there is none.

    It is a prefix of the costs in rising order: whatever is cheaper than S's most expensive component can join it. The
    condition can fail for short prefixes and hold for longer ones.
    """
    roots_n = np.sqrt(np.sort(positive("costs", costs_n)))
    limit = positive("lipschitz", lipschitz) / (2 * positive("separation", separation) * len(roots_n) * epsilon)
    held = np.flatnonzero(roots_n <= limit * np.cumsum(roots_n) * (1 + 1e-12))
    return int(held[-1]) + 1 if len(held) else 0


def prefix_means(costs_n: Array, lipschitz: float, epsilon: float, separation: float) -> Array:
    """The paper's μ_n: λ √c on the maximal prefix, 0 off it, (1/n) Σ μ = a ε. All 0 if there is no prefix."""
    size = maximal_prefix(costs_n, lipschitz, epsilon, separation)
    chosen = np.argsort(costs_n, kind="stable")[:size]
    means_n, roots_n = np.zeros(len(costs_n)), np.sqrt(costs_n)
    if size:
        means_n[chosen] = separation * len(costs_n) * epsilon * roots_n[chosen] / roots_n[chosen].sum()
    return means_n


def capped_means(costs_n: Array, lipschitz: float, epsilon: float, separation: float) -> Array:
    """Ours: μ_n = min(λ √c, G/2) with (1/n) Σ μ = a ε. All 0 if even G/2 everywhere is less."""
    roots_n, cap = np.sqrt(np.sort(costs_n)), lipschitz / 2
    n, wanted = len(roots_n), separation * len(roots_n) * epsilon
    if wanted > n * cap:
        return np.zeros(n)
    # With the k cheapest below the cap, λ = (wanted − (n − k) cap)/Σ_{i<k} √c_i; right where the k-th is not above it.
    below_k = np.arange(1, n + 1)
    rates_k = (wanted - (n - below_k) * cap) / np.cumsum(roots_n)
    rate = rates_k[np.flatnonzero((rates_k * roots_n <= cap * (1 + 1e-12)) & (rates_k > 0))[-1]]
    return np.minimum(rate * np.sqrt(costs_n), cap)


def prefix_bound(costs_n: ArrayLike, lipschitz: float, epsilon: float, slopes: Slopes | None = None) -> LowerBound:
    """Theorem 4.3 with explicit constants: the best over separations, each with its maximal prefix S.

    `slopes`: the paper's clipped Gaussians unless given.
    """
    return _best(prefix_means, costs_n, lipschitz, epsilon, slopes or GAUSSIAN)


def capped_bound(costs_n: ArrayLike, lipschitz: float, epsilon: float, slopes: Slopes | None = None) -> LowerBound:
    """The same with expensive components capped instead of left out: at least `prefix_bound` with equal slopes.

    `slopes`: coins unless given.
    """
    return _best(capped_means, costs_n, lipschitz, epsilon, slopes or COIN)


def certified_cost(
    means_n: ArrayLike, costs_n: ArrayLike, lipschitz: float, epsilon: float, slopes: Slopes
) -> tuple[float, float]:
    """(2 v²/max K_i/c_i, m): what steps 1 to 4 give for these μ_i, any values from 0 to G/2."""
    scaled_n = np.asarray(means_n, dtype=np.float64) / positive("lipschitz", lipschitz)
    signal = float(slopes.mean(scaled_n).mean() * lipschitz)
    if signal <= 0:
        return 0.0, 0.0
    fluctuation = lipschitz * np.sqrt(slopes.variance(scaled_n).sum()) / len(scaled_n)
    distance = max(0.0, 1.0 - (positive("epsilon", epsilon) + fluctuation) / signal)
    return float(2 * distance**2 / (slopes.divergence(scaled_n) / positive("costs", costs_n)).max()), signal


def _best(means_of, costs_n: ArrayLike, lipschitz: float, epsilon: float, slopes: Slopes) -> LowerBound:
    costs_n = positive("costs", costs_n)
    best = LowerBound(0.0, np.zeros(len(costs_n)), 0.0, 0.0)
    for separation in SEPARATIONS:
        means_n = means_of(costs_n, positive("lipschitz", lipschitz), positive("epsilon", epsilon), separation)
        cost, signal = certified_cost(means_n, costs_n, lipschitz, epsilon, slopes)
        if cost > best.cost:
            best = LowerBound(cost, means_n, signal, float(separation))
    return best


def clipped_mean(means_n: ArrayLike, deviation: float = 0.5) -> Array:
    """E clip(Z, −1, 1), Z ~ N(mean, deviation²). At deviation ½, at least 0.84 of a mean of at most ½."""
    means_n = np.asarray(means_n, dtype=np.float64)
    low_n, high_n = (-1 - means_n) / deviation, (1 - means_n) / deviation
    inside_n = means_n * (ndtr(high_n) - ndtr(low_n)) - deviation * (_density(high_n) - _density(low_n))
    return inside_n + ndtr(-high_n) - ndtr(low_n)


def _coin_divergence(means_n: Array) -> Array:
    """τ ln((1 + τ)/(1 − τ)), between coins of mean τ and −τ: from 2τ² for small τ to 1.1 times that at ½."""
    return 2 * means_n * np.arctanh(means_n)


def _density(z: Array) -> Array:
    return np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)


# Clipping lowers both variance and divergence, so those of the unclipped Gaussians are upper bounds.
GAUSSIAN = Slopes(clipped_mean, lambda means_n: np.full(len(means_n), 0.25), lambda means_n: 8 * means_n**2)
COIN = Slopes(lambda means_n: means_n, lambda means_n: 1 - means_n**2, _coin_divergence)
