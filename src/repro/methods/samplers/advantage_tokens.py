"""Token selection: the tokens with the largest |advantage|, whatever their entropy."""

import numpy as np

from repro.methods.rollouts import NoSignal, Rollouts
from repro.methods.samplers.top_tokens import Least, kept_tokens
from repro.methods.selection import Share


def advantage_tokens(
    rollouts: Rollouts, progress: float, rng: np.random.Generator, *, tokens: Share = 0.05, least: Least = 4
) -> Rollouts:
    """As many of the rollouts' response tokens as `top_tokens` keeps, those with the largest |A_i|: the ablation of
    D³S's product by the advantage alone. Source: ours.

        T = top_K%(y_it, key = |A_i|),   K = tokens, at least `least` tokens a rollout on average

    All tokens of a rollout have one advantage, so the rollouts with the largest |A| are kept whole, and of those at the
    edge a random part, each set of tokens equally likely. NoSignal if every advantage is 0.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 0], rewards_N=[1, 0, 0], advantages_N=[1.4, -0.7, -0.7],
    ...     prompt_tokens_N=[8, 8, 8], response_tokens_N=[2, 3, 3],
    ... )
    >>> advantage_tokens(batch, 0.0, np.random.default_rng(0), tokens=0.5, least=0).response_mask_N_T.astype(int)
    array([[1, 1, 0],
           [1, 1, 0],
           [0, 0, 0]])
    """
    if not rollouts.advantages_N.any():
        raise NoSignal("every advantage is zero, so no token can be preferred; skip the update")
    row_K, column_K = np.nonzero(rollouts.response_mask_N_T)
    order_K = np.lexsort((rng.random(len(row_K)), -np.abs(rollouts.advantages_N)[row_K]))
    chosen = order_K[: kept_tokens(rollouts, tokens, least)]
    kept_N_T = np.zeros_like(rollouts.response_mask_N_T)
    kept_N_T[row_K[chosen], column_K[chosen]] = True
    return rollouts.with_mask(kept_N_T)
