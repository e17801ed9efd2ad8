"""PODS: within each group, the rollouts of maximum reward variance, with advantages recomputed over them."""

from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.rollouts import Rollouts
from repro.methods.selection import Share, require_signal
from repro.methods.selection.max_variance import group_quotas, max_variance_rows


def pods(
    rollouts: Rollouts,
    progress: float,
    rng: np.random.Generator,
    *,
    share: Share = 0.25,
    delta: Annotated[float, Field(ge=0)] = 1e-6,
) -> Rollouts:
    """PODS (Xu et al., 2025; D³S §2.2): within each group of G, the n rollouts whose *rewards* vary most.

        Ŝ = argmax_{S ⊂ group, |S| = n} Var(r_S),   A_i = (r_i − mean_Ŝ) / (std_Ŝ + δ),   n = share · G

    n is rounded half up and at least 2. The incoming advantages are replaced: they are renormalised over the subset, so
    their variance is 1 in every group with a signal and 0 in a group whose subset has equal rewards. Equal rewards are
    taken in batch order; with binary rewards and odd n, one more success than failures is kept if possible. Every
    weight is 1, and the number of optimiser steps is that of the whole batch. NoSignal if every group's rewards are
    equal.

    Deviations: n as a fraction of the group, a quarter as for D³S's subsets, since D³S's table gives no value.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 0, 0, 0, 0, 0, 0], rewards_N=[1, 1, 0, 0, 0, 0, 0, 0],
    ...     advantages_N=[1.7, 1.7, -0.6, -0.6, -0.6, -0.6, -0.6, -0.6],
    ...     prompt_tokens_N=[8, 8, 8, 8, 8, 8, 8, 8], response_tokens_N=[10, 44, 16, 53, 20, 30, 12, 40],
    ... )
    >>> taken = pods(batch, 0.0, np.random.default_rng(0), share=0.5)
    >>> taken.row_N
    array([0, 1, 2, 3])
    >>> taken.advantages_N.round(3)
    array([ 1.,  1., -1., -1.])
    """
    keep_Q = group_quotas(rollouts.group_N, share)
    taken = rollouts.take(max_variance_rows(rollouts.rewards_N, rollouts.group_N, keep_Q))
    advantages_M = group_normalised(taken.rewards_N, taken.group_N, delta=delta)
    return require_signal(replace(taken, advantages_N=advantages_M))
