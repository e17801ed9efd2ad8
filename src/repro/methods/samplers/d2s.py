"""D²S: select rollouts over the whole batch, then tokens; no schedule."""

import numpy as np

from repro.methods.rollouts import Rollouts
from repro.methods.samplers.d1s_c import d1s_c
from repro.methods.samplers.top_tokens import Least, top_tokens
from repro.methods.selection import Share


def d2s(
    rollouts: Rollouts,
    progress: float,
    rng: np.random.Generator,
    *,
    share: Share = 0.25,
    tokens: Share = 0.05,
    least: Least = 4,
) -> Rollouts:
    """D²S (D³S, eq. 7 then eq. 8): D¹S-C's rollouts, and the fraction of their tokens with the largest |A| · H.

    `d1s_c` followed by `top_tokens`. Deviations: N_s as a fraction of the group; the defaults are the initial values of
    the paper's table (8 of 32, 5%), since it does not state which ones D²S uses; at least `least` tokens a rollout on
    average, which matters for short responses only.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 0, 0], rewards_N=[1, 0, 0, 0], advantages_N=[1.7, -0.6, -0.6, -0.6],
    ...     prompt_tokens_N=[8, 8, 8, 8], response_tokens_N=[2, 3, 2, 4],
    ...     entropy_N_T=[[0.1, 2.0, 0, 0], [0.4, 0.1, 1.5, 0], [1.0, 0.3, 0, 0], [0.2, 0.9, 0.1, 0.6]],
    ... )
    >>> taken = d2s(batch, 0.0, np.random.default_rng(0), share=0.5, tokens=0.5, least=0)
    >>> taken.row_N
    array([0, 1])
    >>> taken.response_mask_N_T.astype(int)
    array([[0, 1, 0, 0],
           [1, 0, 1, 0]])
    """
    return top_tokens(d1s_c(rollouts, progress, rng, share=share), progress, rng, tokens=tokens, least=least)
