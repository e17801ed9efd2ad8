"""D¹S-C: over the whole batch, the rollouts of maximum advantage variance."""

import numpy as np

from repro.methods.rollouts import Rollouts
from repro.methods.selection import Share, require_signal
from repro.methods.selection.max_variance import group_quotas, max_variance_rows


def d1s_c(rollouts: Rollouts, progress: float, rng: np.random.Generator, *, share: Share = 0.25) -> Rollouts:
    """D¹S-C (D³S, eq. 7): over the whole batch of B groups, the N rollouts whose advantages have the largest variance.

        Ŝ = argmax_{S ⊂ batch, |S| = N} Var(A_S),   N = B · N_s,   N_s = share · G, rounded half up, at least 2

    Groups may differ in size: N = Σ N_s(G), the number that D¹S keeps of the same batch. Rollouts of groups without
    signal lie in the middle and are dropped first. Equal advantages are taken in batch order. Every weight is 1, the
    gradient is biased by design, and the number of optimiser steps is that of the whole batch. NoSignal if every
    advantage is 0.

    Deviations: N_s as a fraction of the group, a quarter since no value is stated; see `d1s`.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 0, 0, 1, 1, 1, 1], rewards_N=[1, 0, 0, 0, 1, 1, 0, 1],
    ...     advantages_N=[1.7, -0.6, -0.6, -0.6, 0.6, 0.6, -1.7, 0.6],
    ...     prompt_tokens_N=[8, 8, 8, 8, 8, 8, 8, 8], response_tokens_N=[10, 44, 16, 53, 20, 30, 12, 40],
    ... )
    >>> d1s_c(batch, 0.0, np.random.default_rng(0)).row_N
    array([0, 1, 4, 6])
    """
    keep = group_quotas(rollouts.group_N, share).sum()
    whole_N = np.zeros(len(rollouts), int)
    return require_signal(rollouts.take(max_variance_rows(rollouts.advantages_N, whole_N, np.array([keep]))))
