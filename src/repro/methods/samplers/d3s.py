"""D³S: select rollouts over the whole batch, then tokens, both relaxed over the course of training."""

import numpy as np

from repro.methods.rollouts import Rollouts
from repro.methods.samplers.d2s import d2s
from repro.methods.samplers.top_tokens import Least
from repro.methods.selection import Share
from repro.methods.selection.schedule import linear


def d3s(
    rollouts: Rollouts,
    progress: float,
    rng: np.random.Generator,
    *,
    share_start: Share = 0.25,
    share_end: Share = 1.0,
    tokens_start: Share = 0.05,
    tokens_end: Share = 0.20,
    least: Least = 4,
) -> Rollouts:
    """D³S (eq. 7, 8 and 9): N_s rollouts per group, chosen over the whole batch, then the top K of their tokens, where

        [N_s, K] = (1 − p) · [N_init, K_init] + p · [N_final, K_final],   p = progress, the fraction of steps done

    Progress is taken before a step, from 0 to (steps − 1)/steps. N_s is rounded half up to whole rollouts, at least 2.
    See `d1s_c` and `top_tokens`.

    Deviations: N_s as a fraction of the group: the paper's 8 → 32 of G = 32 is 0.25 → 1.0 of any G, and so transfers to
    other group sizes. K from 5% to 20% as in the paper (Table 5), but at least `least` tokens a rollout on average; the
    loss of eq. 10 up to its factor 1/|Ŝ|: see `top_tokens`.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 0, 0], rewards_N=[1, 0, 0, 0], advantages_N=[1.7, -0.6, -0.6, -0.6],
    ...     prompt_tokens_N=[8, 8, 8, 8], response_tokens_N=[2, 3, 2, 4],
    ...     entropy_N_T=[[0.1, 2.0, 0, 0], [0.4, 0.1, 1.5, 0], [1.0, 0.3, 0, 0], [0.2, 0.9, 0.1, 0.6]],
    ... )
    >>> early, late = (d3s(batch, progress, np.random.default_rng(0), least=1) for progress in (0.0, 0.9))
    >>> early.row_N, late.row_N
    (array([0, 1]), array([0, 1, 2, 3]))
    >>> late.response_mask_N_T.sum(1)
    array([1, 1, 1, 1])
    """
    share, tokens = linear(progress, share_start, share_end), linear(progress, tokens_start, tokens_end)
    return d2s(rollouts, progress, rng, share=share, tokens=tokens, least=least)
