"""GRPO: the PPO clip on token ratios with group-relative advantages."""

from typing import Annotated, Any

from pydantic import Field

from repro.methods.objectives.aggregate import TokenLoss


def grpo(
    logprob_N_T: Any,
    old_logprob_N_T: Any,
    advantages_N: Any,
    mask_N_T: Any,
    *,
    clip_low: Annotated[float, Field(ge=0, le=1)] = 0.2,
    clip_high: Annotated[float, Field(ge=0)] = 0.28,
) -> TokenLoss:
    """−min(r A, clip(r, 1 − clip_low, 1 + clip_high) A) per token, r = π/π_old (Shao et al., 2024, eq. 3).

    clip_high > clip_low is DAPO's clip-higher, used by Cost-Aware Learning (App. G.4: 0.2 and 0.28); D³S clips at 0.2
    on both sides (Table 5). All arrays are torch tensors; log-probabilities in nats. A token counts as clipped if the
    clipped term is the smaller one. A token off the mask has r = 1: its own could overflow, and 0 · ∞ is no zero.

    >>> import torch
    >>> old, new = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.6, 0.8]]).log()
    >>> grpo(new, old, torch.tensor([1.0]), torch.tensor([[True, True]]))
    TokenLoss(loss_N_T=tensor([[-1.2000, -1.2800]]), clipped_N_T=tensor([[False,  True]]))
    """
    ratio_N_T = (logprob_N_T - old_logprob_N_T).where(mask_N_T, 0.0).exp()
    advantages_N_1 = advantages_N[:, None]
    free = ratio_N_T * advantages_N_1
    held = ratio_N_T.clamp(1.0 - clip_low, 1.0 + clip_high) * advantages_N_1
    return TokenLoss(-free.minimum(held), (held < free) & mask_N_T)
