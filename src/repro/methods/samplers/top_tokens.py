"""Token selection: the tokens with the largest |advantage| × entropy."""

from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.rollouts import NoSignal, Rollouts
from repro.methods.selection import Share

Least = Annotated[int, Field(ge=0)]


def top_tokens(
    rollouts: Rollouts, progress: float, rng: np.random.Generator, *, tokens: Share = 0.05, least: Least = 4
) -> Rollouts:
    """D³S's token level (eq. 8): the fraction of the rollouts' response tokens with the largest |A_i| · H_it.

        T = top_K%(y_it, key = |A_i| · H_it),   K = tokens, at least `least` tokens a rollout on average

    All tokens of the incoming rollouts are ranked together; ties are broken by row, then position. H is the entropy of
    the sampling policy, in nats. Importance weights do not enter the key. NoSignal if every key is 0.

    The number of tokens, |T|, is `kept_tokens`. Deviation: the floor `least` is ours. The paper's 5% is of responses of
    thousands of tokens, where it never binds; of a response of twenty it is a single token. The floor is on the total,
    so that one ranking over the batch still decides. `least` 0 is eq. 8 as printed.

    Rollouts with no token left keep their place in the batch, contribute nothing and are not read. Eq. 10 divides by
    |T| and by |Ŝ|, `aggregation: token-mean` by |T| only: a deviation by a factor that is constant within a batch and,
    under D³S's schedule, changes fourfold over training; Adam almost cancels it. Under sequence-mean each rollout
    averages over its own kept tokens. §3.3 once mentions a share "within each sample"; we follow eq. 8.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0], rewards_N=[1, 0], advantages_N=[1.0, -1.0],
    ...     prompt_tokens_N=[8, 8], response_tokens_N=[4, 3],
    ...     entropy_N_T=[[0.1, 2.0, 0.3, 0.2], [0.4, 0.1, 1.5, 0.0]],
    ... )
    >>> top_tokens(batch, 0.0, np.random.default_rng(0), tokens=0.5, least=0).response_mask_N_T.astype(int)
    array([[0, 1, 1, 0],
           [1, 0, 1, 0]])
    """
    key_N_T = np.abs(rollouts.advantages_N)[:, None] * rollouts.entropy_N_T
    if not key_N_T[rollouts.response_mask_N_T].any():
        raise NoSignal("|advantage| × entropy is zero at every token, so none can be preferred; skip the update")
    return keep_largest(rollouts, key_N_T, kept_tokens(rollouts, tokens, least))


def keep_largest(rollouts: Rollouts, key_N_T: np.ndarray, count: int) -> Rollouts:
    """The rollouts with `count` of their response tokens, those of the largest key; ties by row, then position."""
    mask_N_T = rollouts.response_mask_N_T
    row_K, column_K = np.nonzero(mask_N_T)
    key_K = key_N_T[row_K, column_K]
    edge = np.partition(key_K, len(key_K) - count)[len(key_K) - count]
    above_K = key_K > edge
    tied = np.flatnonzero(key_K == edge)[: count - np.count_nonzero(above_K)]
    above_K[tied] = True
    kept_N_T = np.zeros_like(mask_N_T)
    kept_N_T[row_K[above_K], column_K[above_K]] = True
    return rollouts.with_mask(kept_N_T)


def kept_tokens(rollouts: Rollouts, tokens: float, least: int) -> int:
    """How many tokens to keep: the larger of the share `tokens` of all, rounded half up, and `least` for each rollout
    with an advantage, on average (the others have no token worth keeping); from 1 to those of the rollouts with an
    advantage, where the floor decides."""
    mask_N_T, bears_N = rollouts.response_mask_N_T, rollouts.advantages_N != 0
    floor = min(least * int(bears_N.sum()), int(mask_N_T[bears_N].sum()))
    return max(1, int(tokens * int(mask_N_T.sum()) + 0.5), floor)
