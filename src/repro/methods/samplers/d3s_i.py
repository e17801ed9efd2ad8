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
    """
    share, tokens = linear(progress, share_start, share_end), linear(progress, tokens_start, tokens_end)
    return top_tokens(d1s(rollouts, progress, rng, share=share), progress, rng, tokens=tokens, least=least)
