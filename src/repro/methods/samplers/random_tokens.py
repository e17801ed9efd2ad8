"""A control for token selection: as many tokens as `top_tokens` keeps, chosen at random."""

import numpy as np

from repro.methods.rollouts import Rollouts
from repro.methods.samplers.top_tokens import Least, kept_tokens
from repro.methods.selection import Share


def random_tokens(
    rollouts: Rollouts, progress: float, rng: np.random.Generator, *, tokens: Share = 0.05, least: Least = 4
) -> Rollouts:
    """As many of the rollouts' response tokens as `top_tokens` keeps of the same rollouts (`kept_tokens`), every set of
    that size equally likely, whatever advantage and entropy. Rollouts stay, with or without a token left.

    After `d1s_c` it is the control of D²S: same rollouts, same number of tokens, another choice. Source: ours.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0], rewards_N=[1, 0], advantages_N=[1.0, -1.0],
    ...     prompt_tokens_N=[8, 8], response_tokens_N=[4, 3],
    ...     entropy_N_T=[[0.1, 2.0, 0.3, 0.2], [0.4, 0.1, 1.5, 0.0]],
    ... )
    >>> random_tokens(batch, 0.0, np.random.default_rng(0), tokens=0.5, least=0).response_mask_N_T.astype(int)
    array([[0, 1, 0, 1],
           [1, 1, 0, 0]])
    """
    row_K, column_K = np.nonzero(rollouts.response_mask_N_T)
    chosen = rng.choice(len(row_K), size=kept_tokens(rollouts, tokens, least), replace=False)
    kept_N_T = np.zeros_like(rollouts.response_mask_N_T)
    kept_N_T[row_K[chosen], column_K[chosen]] = True
    return rollouts.with_mask(kept_N_T)
