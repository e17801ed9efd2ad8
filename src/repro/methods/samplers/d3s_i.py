"""D³S-I: D³S with rollouts chosen within their groups."""

import numpy as np

from repro.methods.rollouts import Rollouts
from repro.methods.samplers.d1s import d1s
from repro.methods.samplers.top_tokens import Least, top_tokens
from repro.methods.selection import Share
from repro.methods.selection.schedule import linear


def d3s_i(
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
    """D³S-I (D³S, App. D.1; eq. 6, 8 and 9): D³S without its cross-group part. N_s rollouts within each group, then the
    top K of all their tokens, with the schedule of `d3s`.

        [N_s, K] = (1 − p) · [N_init, K_init] + p · [N_final, K_final],   p = progress, from 0 to (steps − 1)/steps

    Tokens are still ranked over all selected rollouts, as in eq. 8. Deviations: those of `d3s`.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 0, 0], rewards_N=[1, 0, 0, 0], advantages_N=[1.7, -0.6, -0.6, -0.6],
    ...     prompt_tokens_N=[8, 8, 8, 8], response_tokens_N=[2, 3, 2, 4],
    ...     entropy_N_T=[[0.1, 2.0, 0, 0], [0.4, 0.1, 1.5, 0], [1.0, 0.3, 0, 0], [0.2, 0.9, 0.1, 0.6]],
    ... )
    >>> early, late = (d3s_i(batch, progress, np.random.default_rng(0), least=1) for progress in (0.0, 0.9))
    >>> early.row_N, late.row_N
    (array([0, 1]), array([0, 1, 2, 3]))
    >>> late.response_mask_N_T.sum(1)
    array([1, 1, 1, 1])
    """
    share, tokens = linear(progress, share_start, share_end), linear(progress, tokens_start, tokens_end)
    return top_tokens(d1s(rollouts, progress, rng, share=share), progress, rng, tokens=tokens, least=least)
