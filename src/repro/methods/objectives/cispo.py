"""CISPO: the token ratio is clipped as a weight, so no token loses its gradient."""

from typing import Annotated, Any

from pydantic import Field

from repro.methods.objectives.aggregate import TokenLoss


def cispo(
    logprob_N_T: Any,
    old_logprob_N_T: Any,
    advantages_N: Any,
    mask_N_T: Any,
    *,
    clip_low: Annotated[float, Field(ge=0, le=1)] = 0.0,
    clip_high: Annotated[float, Field(ge=0)] = 5.0,
) -> TokenLoss:
    """−sg(clip(r, 1 − clip_low, 1 + clip_high)) A log π per token, r = π/π_old (MiniMax-M1: Chen et al., 2025).

    Both clips are distances from 1, as in verl and NeMo-RL: clip_high = 5 bounds the weight at 6. In TRL, ε_high = 5 is
    the bound itself, 5. The defaults are Cost-Aware Learning's (App. G.4: clip ratio low 0.0, high 5.0) as verl, on
    which the paper ran, interprets them: the weight lies in [1, 6], so a token that became less likely has weight 1.
    MiniMax-M1 and ScaleRL instead have no lower bound, which is clip_low = 1 here: a weight in [0, 6].

    The value is a log-probability, not comparable across objectives; the gradient −weight·A is. All arrays are torch
    tensors; log-probabilities in nats. A token counts as clipped if A ≠ 0 and clipping changed its weight: its gradient
    is rescaled, not lost, so unlike GRPO's this fraction does not measure lost tokens. With clip_low = 0 every token
    with r < 1 counts, even if only by rounding.

    >>> import torch
    >>> old, new = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.6, 0.4]]).log()
    >>> cispo(new, old, torch.tensor([1.0]), torch.tensor([[True, True]]))
    TokenLoss(loss_N_T=tensor([[0.6130, 0.9163]]), clipped_N_T=tensor([[False,  True]]))
    """
    ratio_N_T = (logprob_N_T - old_logprob_N_T).detach().exp()
    weight_N_T = ratio_N_T.clamp(1.0 - clip_low, 1.0 + clip_high)
    advantages_N_1 = advantages_N[:, None]
    clipped_N_T = (weight_N_T != ratio_N_T) & (advantages_N_1 != 0) & mask_N_T
    return TokenLoss(-weight_N_T * advantages_N_1 * logprob_N_T, clipped_N_T)
