"""SNR-aware filtering: the groups that hold most of the batch's reward variance."""

import numpy as np

from repro.methods.advantages import deviations
from repro.methods.rollouts import NoSignal, Rollouts
from repro.methods.selection import Share


def snr(rollouts: Rollouts, progress: float, rng: np.random.Generator, *, mass: Share = 0.9) -> Rollouts:
    """The fewest groups that together have a share `mass` of the batch's reward variance (SNR-aware filtering of
    RAGEN-2, 2026, arXiv:2604.06268).

        Q̂ = the first k groups by falling v_q,   k = min{k : Σ_{q ≤ k} v_q ≥ mass · Σ_q v_q},   v_q = Var_{i ∈ q}(r_i)

    v is the population variance of the raw rewards, which stands for the signal. Equal variances are taken in the order
    of the batch, so at the edge of binary rewards which of the like groups stay is an accident.
    Groups of variance 0 are never kept; `mass` 1 keeps all others, as `zero_variance` does. Every weight is 1; the rest
    is spread over as many optimiser steps as the whole batch would get. NoSignal if no group has any variance.

    Deviations: the authors mask the groups left out and keep the batch's divisor, here they leave it. The paper was
    known to us second-hand, by its authors' proposals to verl, TRL and SkyRL, whose default of 0.9 this is.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 0, 0, 1, 1, 1, 1], rewards_N=[1, 0, 0, 0, 1, 1, 0, 0],
    ...     advantages_N=[1.7, -0.6, -0.6, -0.6, 1.0, 1.0, -1.0, -1.0],
    ...     prompt_tokens_N=[8, 8, 8, 8, 8, 8, 8, 8], response_tokens_N=[10, 44, 16, 53, 20, 30, 12, 40],
    ... )
    >>> snr(batch, 0.0, np.random.default_rng(0), mass=0.5).row_N
    array([4, 5, 6, 7])
    """
    deviation_N, index_N = deviations(rollouts.rewards_N, rollouts.group_N)
    variance_Q = np.bincount(index_N, deviation_N**2) / np.bincount(index_N)
    if not variance_Q.any():
        raise NoSignal("every group's raw rewards are equal, so none has a share of the variance; skip the update")
    order_Q = np.argsort(-variance_Q, kind="stable")
    mass_Q = np.cumsum(variance_Q[order_Q]) / variance_Q.sum()
    kept = min(np.count_nonzero(mass_Q < mass - 1e-9) + 1, np.count_nonzero(variance_Q))
    return rollouts.take(np.isin(index_N, order_Q[:kept]))
