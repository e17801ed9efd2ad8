"""D¹S: within each group, the rollouts of maximum advantage variance."""

import numpy as np

from repro.methods.rollouts import Rollouts
from repro.methods.selection import Share, require_signal
from repro.methods.selection.max_variance import group_quotas, max_variance_rows


def d1s(rollouts: Rollouts, progress: float, rng: np.random.Generator, *, share: Share = 0.25) -> Rollouts:
    """D¹S (D³S, eq. 6): within each group of G, the N_s rollouts whose advantages have the largest variance.

        Ŝ = argmax_{S ⊂ group, |S| = N_s} Var(A_S),   N_s = share · G, rounded half up, at least 2

    Advantages are those of the whole group, so Var(A_Ŝ) ≥ (N_s−1)/N_s · G/(G−1), up to δ, if the group has a signal:
    the corrected Lemma 1, see `repro.methods.selection.max_variance`. A group whose advantages are all equal keeps its
    first N_s rollouts; equal advantages are taken in batch order. Every weight is 1 and nothing corrects for the
    selection, as in the paper: the gradient is biased by design. The number of optimiser steps is that of the whole
    batch. NoSignal if every advantage is 0.

    Deviations: N_s is given as a fraction of the group, so that it transfers between group sizes; the paper's table has
    N_s from 8 to 32 of G = 32 and does not state which of them D¹S, which has no schedule, uses; we take 8, a quarter.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 0, 0, 0, 0, 0, 0], rewards_N=[1, 1, 0, 0, 0, 0, 0, 0],
    ...     advantages_N=[1.7, 1.7, -0.6, -0.6, -0.6, -0.6, -0.6, -0.6],
    ...     prompt_tokens_N=[8, 8, 8, 8, 8, 8, 8, 8], response_tokens_N=[10, 44, 16, 53, 20, 30, 12, 40],
    ... )
    >>> d1s(batch, 0.0, np.random.default_rng(0)).row_N
    array([0, 2])
    """
    keep_Q = group_quotas(rollouts.group_N, share)
    return require_signal(rollouts.take(max_variance_rows(rollouts.advantages_N, rollouts.group_N, keep_Q)))
