"""Draw rollouts from a distribution p, weighted so that the gradient keeps its direction.

Every sampler of the cost-aware family is a signal, which defines p, followed by this draw.
"""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from repro.methods.rollouts import NoSignal, Rollouts

Beta = Annotated[float, Field(ge=0, le=1)]
Recentre = Literal["constant", "mean"]
Budget = Annotated[float, Field(gt=0)] | None
Resampling = Literal["independent", "systematic"]


def distribution(signal_N: np.ndarray, beta: float = 0.0) -> np.ndarray:
    """p_N: signal / Σ signal, smoothed to (1−β) p + β/N. Sums to 1. NoSignal if every signal is 0."""
    if not signal_N.any():
        raise NoSignal("no rollout has a signal (every advantage is zero), so p is undefined; skip the update")
    return smoothed(signal_N / signal_N.sum(), beta)


def smoothed(p_N: np.ndarray, beta: float) -> np.ndarray:
    """p^β = (1−β) p + β/N (Cost-Aware Learning §5.3)."""
    return (1.0 - beta) * p_N + beta / len(p_N)


def draw(
    rollouts: Rollouts,
    p_N: np.ndarray,
    rng: np.random.Generator,
    *,
    recentre: Recentre = "constant",
    tokens: float | None = None,
    resampling: Resampling = "independent",
) -> Rollouts:
    """M rollouts drawn from p with replacement, with importance weights; S = #{p_i > 0} of the N have a signal.

    Number: M = N, or with `tokens`, as many as it takes for their cost to reach B = tokens · Σ_i c_i, the draw that
    crosses B included (so B is overshot by less than one rollout). The optimiser steps are those of the whole batch.

    Weight: 1/(N p_i), re-centred around 1 (App. G.2) in one of two ways.
    - constant: by E_p[1/(N p_i)] = S/N, giving w_i = 1/(S p_i). With M = N the mean weighted gradient has expectation
      (1/S) Σ_i g_i over the support: exact direction. With a budget, M is a stopping time, and a plain mean would be
      biased towards draws that end early, the expensive ones; the weights are therefore multiplied by M E_p[c]/B, and
      by Wald's identity the expectation is (1/S) Σ_i g_i · E[cost drawn]/B: exact direction again.
    - mean: by the mean of the drawn weights, so that they average exactly 1: self-normalised, biased by O(1/M). The
      mean is over the whole draw, not a mini-batch, since the engine forms mini-batches later.

    Resampling: "independent" draws, or "systematic" ones: N equally spaced points with one common random shift, on the
    line of the N p_i laid end to end. Each row is then drawn ⌊N p_i⌋ or ⌈N p_i⌉ times, N p_i on average, so the weights
    stay exact and only the variance falls. Its rows come in batch order; engines shuffle them into mini-batches. A
    budget, whose weights are those of a stopping time, goes with independent draws only: ValueError.
    """
    if resampling == "systematic" and tokens is not None:
        raise ValueError("systematic resampling makes a fixed number of draws: leave out `tokens`, or `resampling`")
    drawn_M = _systematic(p_N, rng) if resampling == "systematic" else _rows(rollouts.costs_N, p_N, tokens, rng)
    weights_M = 1.0 / (np.count_nonzero(p_N) * p_N[drawn_M])
    if tokens is not None:
        weights_M *= len(drawn_M) * float(p_N @ rollouts.costs_N) / (tokens * float(rollouts.costs_N.sum()))
    if recentre == "mean":
        weights_M /= weights_M.mean()
    return rollouts.take(drawn_M, weights_M)


def _rows(costs_N: np.ndarray, p_N: np.ndarray, tokens: float | None, rng: np.random.Generator) -> np.ndarray:
    """drawn_M: positions drawn from p, N of them or until the budget is spent."""
    n = len(p_N)
    if tokens is None:
        return rng.choice(n, size=n, p=p_N)
    budget = tokens * float(costs_N.sum())
    size = int(budget / float(p_N @ costs_N)) + 1
    drawn_M = rng.choice(n, size=size, p=p_N)
    while (spent_M := np.cumsum(costs_N[drawn_M]))[-1] < budget:
        drawn_M = np.concatenate([drawn_M, rng.choice(n, size=size, p=p_N)])
    return drawn_M[: np.searchsorted(spent_M, budget) + 1]


def _systematic(p_N: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """drawn_N, ascending: row i where i + u of its N points, spaced by 1, fall on its part of the line, N p_i long."""
    n = len(p_N)
    end_N = np.cumsum(p_N) / p_N.sum() * n
    drawn_N = np.searchsorted(end_N, rng.random() + np.arange(n), side="right")
    return np.minimum(drawn_N, np.flatnonzero(p_N)[-1])  # a point rounded up to the end of the line


def expected_ess_share(p_N: np.ndarray) -> float:
    """S²/Σ_{p_i>0} (1/p_i): effective sample size per draw of weights 1/(S p_i), in the limit of many draws.

    Kish's (Σw)²/Σw² of M draws has numerator M E[w²] + M(M−1) (E w)² and denominator M E[w²] in expectation. With
    E_p[w] = 1 and E_p[w²] = Σ 1/(S² p_i) = 1/s, their ratio is 1 + (M−1) s: a share s + (1−s)/M of M. This is s.
    """
    support = p_N[p_N > 0]
    return len(support) ** 2 / float((1.0 / support).sum())


def beta_for_ess(p_N: np.ndarray, target: float) -> float:
    """The smallest β, to 10⁻⁹, for which p^β has an expected effective sample size of at least `target` per draw.

    0 if p itself reaches the target. On (0, 1] the share increases with β (1/share is convex in β with its minimum, 1,
    at β = 1), so bisection converges to it.
    """
    if expected_ess_share(p_N) >= target:
        return 0.0
    low, high = 0.0, 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if expected_ess_share(smoothed(p_N, middle)) >= target else (middle, high)
    return high
