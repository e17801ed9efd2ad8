"""Inference on a query's success probability p from K samples (sGPO's profile): posterior, bias of 1/p̂, misfiling.

Queries have p ~ Beta(α, β), the population; s ~ Bin(K, p) of a query's K samples succeed, p̂ = s/K. The posterior is
Beta(α + s, β + K − s). sGPO calls p̂ = 1 trivial and p̂ = 0 unsolvable. All closed forms are ours; the paper gives none.

Array names: S successes 0 ... K, Q queries. a and b are a posterior's (or a population's) two parameters, arrays of one
shape. ValueError on parameters that are not positive, on counts outside 0 ... K.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import betainc, betaln, gammaln

from repro.methods.group_sizes.rule import SMALLEST, Array, binomial, probabilities, rollouts


def posterior(successes_Q: ArrayLike, samples: int, alpha: float, beta: float) -> tuple[Array, Array]:
    """(a_Q, b_Q) of Beta(α + s, β + K − s), the posterior of p after s of K samples succeeded."""
    success_Q = _counts(successes_Q, samples)
    alpha, beta = _parameters(alpha, beta)
    return alpha + success_Q, beta + samples - success_Q


def beta_binomial(a: ArrayLike, b: ArrayLike, size: int) -> Array:
    """P(S = s), s = 0 ... G, for S ~ Bin(G, p) and p ~ Beta(a, b); a's shape and then (G + 1,).

    With the population's α, β and G = K: the fraction of queries with each count of successes in a profile.
    """
    a, b = (array[..., None] for array in _parameters(a, b))
    success_S = np.arange(rollouts(size) + 1)
    ways_S = gammaln(size + 1) - gammaln(success_S + 1) - gammaln(size - success_S + 1)
    return np.exp(ways_S + betaln(a + success_S, b + size - success_S) - betaln(a, b))


def expected_informative(a: ArrayLike, b: ArrayLike, size: int) -> Array:
    """E I(p, G) over p ~ Beta(a, b): 1 − B(a+G, b)/B(a, b) − B(a, b+G)/B(a, b); groups. Concave over G = 0, 2, 3, ...

    Concave as a mean of concave functions, so that a greedy allocation under a budget is optimal.
    """
    a, b = _parameters(a, b)
    if rollouts(size) < SMALLEST:
        return np.zeros_like(a)
    whole = betaln(a, b)
    return 1 - np.exp(betaln(a + size, b) - whole) - np.exp(betaln(a, b + size) - whole)


def expected_mean_advantage(a: ArrayLike, b: ArrayLike, size: int) -> Array:
    """E of a group's mean |A| over p ~ Beta(a, b): (2/G) E√(S(G−S)), S beta-binomial."""
    success_S = np.arange(rollouts(size) + 1)
    return beta_binomial(a, b, size) @ (2 * np.sqrt(success_S * (size - success_S)) / max(size, 1))


def expected_best_advantage(a: ArrayLike, b: ArrayLike, size: int) -> Array:
    """E of a group's largest advantage over p ~ Beta(a, b): E[√((G−S)/S); 0 < S < G], S beta-binomial."""
    success_S = np.arange(1, max(rollouts(size), 1))
    return beta_binomial(a, b, size)[..., 1 : max(size, 1)] @ np.sqrt((size - success_S) / success_S)


def gain_table(
    a_Q: ArrayLike, b_Q: ArrayLike, sizes_G: Sequence[int], gain: Callable[..., Array] = expected_informative
) -> Array:
    """gains_Q_G: the expected gain of a group of each size for each query, given its posterior."""
    return np.stack([gain(a_Q, b_Q, int(size)) for size in sizes_G], axis=-1)


def inverse_ratio(p: ArrayLike, samples: int) -> Array:
    """E[1/p̂ | s > 0] · p: the mean of the rule's 1/p̂, as a multiple of 1/p.

    Above 1 by (1−p)/(Kp) for large Kp (Jensen); below 1 for p < 1/K, since no p̂ other than 0 is below 1/K: the rule
    never asks for more than K rollouts on a query that was solved once.
    """
    weights_S = binomial(p, samples)[..., 1:]
    inverse_S = samples / np.arange(1, samples + 1)
    return (weights_S @ inverse_S) / weights_S.sum(axis=-1) * probabilities(p)


def add_one_ratio(p: ArrayLike, samples: int) -> Array:
    """E[(K+1)/(s+1)] · p = 1 − (1−p)^(K+1): the shrunken estimate of 1/p, defined at s = 0, is biased downwards.

    Exact: (K+1)/(s+1) · C(K, s) = C(K+1, s+1) ((K+1)/(s+1) absorbs into the binomial coefficient).
    """
    return 1 - (1 - probabilities(p)) ** (samples + 1)


def misfiled(samples: int, alpha: float, beta: float, margin: float) -> dict[str, float]:
    """Fractions of the population classified as trivial (all K solved) or unsolvable (none), and those misclassified.

    Misclassified: p < 1 − margin among the trivial, p > margin among the unsolvable. Keys: trivial, trivial_wrongly,
    unsolvable, unsolvable_wrongly; each a fraction of all queries.
    """
    none, every = (float(share) for share in beta_binomial(alpha, beta, samples)[[0, -1]])
    return {
        "trivial": every,
        "trivial_wrongly": every * float(betainc(alpha + samples, beta, 1 - margin)),
        "unsolvable": none,
        "unsolvable_wrongly": none * float(betainc(beta + samples, alpha, 1 - margin)),
    }


def fit_population(successes_Q: ArrayLike, samples: int) -> tuple[float, float]:
    """Maximum-likelihood (α, β) for a profile, each within [0.01, 1000]: the prior for `posterior`.

    A profile with one sample per query carries no information about the spread: ValueError below two samples.
    """
    success_Q = _counts(successes_Q, samples)
    if samples < 2 or success_Q.size == 0:
        raise ValueError(f"{success_Q.size} queries with {samples} samples each: fitting needs a query and two samples")
    counts_S = np.bincount(success_Q.astype(int), minlength=samples + 1)

    def surprise(logs: Array) -> float:
        shares_S = beta_binomial(*np.exp(logs), samples)
        return -float(counts_S @ np.log(np.maximum(shares_S, 1e-300))) / success_Q.size

    bounds = [(np.log(0.01), np.log(1000.0))] * 2
    alpha, beta = np.exp(minimize(surprise, np.zeros(2), method="L-BFGS-B", bounds=bounds).x)
    return float(alpha), float(beta)


def _parameters(a: ArrayLike, b: ArrayLike) -> tuple[Array, Array]:
    a, b = np.broadcast_arrays(np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64))
    if not ((a > 0) & (b > 0) & np.isfinite(a) & np.isfinite(b)).all():
        raise ValueError("a Beta distribution needs two positive, finite parameters")
    return a, b


def _counts(successes_Q: ArrayLike, samples: int) -> Array:
    success_Q = np.asarray(successes_Q, dtype=np.float64)
    if samples < 1:
        raise ValueError(f"K = {samples}: a profile needs at least one sample per query")
    if (bad := ~((success_Q >= 0) & (success_Q <= samples) & (success_Q == np.floor(success_Q)))).any():
        raise ValueError(f"{success_Q[bad].flat[0]} successes: must be a whole number from 0 to K = {samples}")
    return success_Q
