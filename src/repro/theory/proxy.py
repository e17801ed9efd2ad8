"""The proxy gap: what sampling by a proxy of the gradient norm costs, relative to sampling by the norm itself.

Theorem 4.2 (D.4) of Cost-Aware Learning. notebooks/theory/proxy.ipynb derives and simulates it; experiments.fidelity
measures real proxies with it.

Array names carry their axes: n is the component axis, the last one; every function also takes stacks (..., n) and then
returns one value per instance. Unlike in `repro.theory.sgd`, norms, signals and probabilities may be 0: under most
proxies a component without a gradient is never drawn. 0/0 counts as 0, so a component without a gradient that is never
drawn costs nothing; one with a gradient that is never drawn makes the cost infinite. Bad values raise ValueError.
"""

import numpy as np
from numpy.typing import ArrayLike

from repro.theory.sgd import Array, positive


def sampling(signal_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """p_i ∝ signal_i/√c_i (eq. 5 with `signal` in the place of the norm). Shape (..., n); ValueError if all are 0."""
    signal_n, costs_n = _not_negative("signal", signal_n), positive("costs", costs_n)
    score_n = signal_n / np.sqrt(costs_n)
    totals = score_n.sum(axis=-1, keepdims=True)
    if not totals.all():
        raise ValueError("every signal is zero, so there is no distribution to draw from: give a signal above zero")
    return score_n / totals


def cost_biased(p_n: ArrayLike, costs_n: ArrayLike) -> Array:
    """p̃_i = p_i c_i/Σ_j p_j c_j: the share of the cost that goes to component i (Theorem 4.2). Shape (..., n)."""
    spent_n = _distribution(p_n) * positive("costs", costs_n)
    return spent_n / spent_n.sum(axis=-1, keepdims=True)


def chi_square(p_n: ArrayLike, q_n: ArrayLike) -> Array:
    """Pearson's χ²(P‖Q) = Σ (P_i − Q_i)²/Q_i; infinite where P puts weight that Q does not."""
    p_n, q_n = np.asarray(p_n, dtype=np.float64), np.asarray(q_n, dtype=np.float64)
    return _sum_of_ratios((p_n - q_n) ** 2, q_n)


def excess(norms_n: ArrayLike, costs_n: ArrayLike, p_n: ArrayLike) -> Array:
    """χ²(p̃*‖p̃) = J(p)/J(p*) − 1, p* ∝ norm/√c: the extra cost relative to the least possible (Theorem 4.2).

    A sum of squares, so nothing cancels: small excesses keep the digits that `product` − 1 loses.
    """
    ideal_n = sampling(norms_n, costs_n)
    return chi_square(cost_biased(ideal_n, costs_n), cost_biased(p_n, costs_n))


def product(norms_n: ArrayLike, costs_n: ArrayLike, p_n: ArrayLike) -> Array:
    """J(p)/J(p*) ≥ 1 directly: the cost of a step Σ p_i c_i times Σ G_i²/p_i, over the minimum of that product,
    (Σ G_i √c_i)² (eq. 3 and 6). The cost to reach a given error is proportional to it."""
    norms_n, costs_n, p_n = _not_negative("norms", norms_n), positive("costs", costs_n), _distribution(p_n)
    least = (norms_n * np.sqrt(costs_n)).sum(axis=-1) ** 2
    if not np.all(least):
        raise ValueError("every norm is zero, so there is nothing to estimate: give a norm above zero")
    return (p_n * costs_n).sum(axis=-1) * _sum_of_ratios(norms_n**2, p_n) / least


def excess_of_factors(norms_n: ArrayLike, costs_n: ArrayLike, factors_n: ArrayLike) -> Array:
    """E_q[w] E_q[1/w] − 1, for the proxy w_i G_i and q_i ∝ G_i √c_i: the same excess in the proxy's relative errors w.

    Our rewriting of Theorem 4.2: the normalisers cancel in C(p)V(p), so a common factor does not matter. What matters
    is the relative error where q is large, and, through the mean of 1/w, underestimates.
    """
    factors_n = positive("factors", factors_n)
    share_n = positive("norms", norms_n) * np.sqrt(positive("costs", costs_n))
    share_n = share_n / share_n.sum(axis=-1, keepdims=True)
    return (share_n * factors_n).sum(axis=-1) * (share_n / factors_n).sum(axis=-1) - 1.0


def _not_negative(name: str, values: ArrayLike) -> Array:
    """`values` as floats, every one finite and at least 0; ValueError if one is not."""
    values = np.asarray(values, dtype=np.float64)
    if not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(f"{name} are {np.ravel(values).min()} at least: all must be at least 0 and finite")
    return values


def _distribution(p_n: ArrayLike) -> Array:
    p_n = _not_negative("probabilities", p_n)
    if not np.allclose(totals := p_n.sum(axis=-1), 1.0, rtol=0.0, atol=1e-6):
        raise ValueError(f"probabilities sum to {np.ravel(totals)[0]}: divide them by their sum")
    return p_n


def _sum_of_ratios(above_n: Array, below_n: Array) -> Array:
    above_n, below_n = np.broadcast_arrays(above_n, below_n)
    ratio_n = np.divide(above_n, below_n, out=np.zeros(above_n.shape), where=below_n > 0)
    return np.where((below_n == 0) & (above_n > 0), np.inf, ratio_n).sum(axis=-1)
