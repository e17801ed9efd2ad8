"""GSPO: the ratio of the whole sequence is clipped; the gradient flows through its tokens."""

from typing import Annotated, Any

from pydantic import Field

from repro.methods.objectives.aggregate import TokenLoss


def gspo(
    logprob_N_T: Any,
    old_logprob_N_T: Any,
    advantages_N: Any,
    mask_N_T: Any,
    *,
    clip_low: Annotated[float, Field(ge=0, le=1)] = 3e-4,
    clip_high: Annotated[float, Field(ge=0)] = 4e-4,
) -> TokenLoss:
    """−min(s A, clip(s, 1 − clip_low, 1 + clip_high) A) per token, s_t = sg(s_i) π_t/sg(π_t) (D³S, eq. 3).

    s_i = (π(y_i|x)/π_old(y_i|x))^{1/|y_i|}, the geometric mean of the token ratios, so a sequence is clipped as a
    whole. This is the GSPO-token form of Zheng et al. (2025). D³S prints sg(π_old,t) below π_t, which would count the
    token's ratio twice; verl and we divide by sg(π_t). The default clips are Zheng et al.'s; D³S (Table 5) gives
    ε = 0.2, at which almost no sequence is ever clipped.

    s_i and |y_i| run over the tokens in the mask. If a sampler narrows it (D³S keeps the tokens with the largest
    |A|·H), these are the kept tokens, as in verl with a narrowed response_mask; D³S does not specify it. At equal clips
    expect more clipped sequences than without token selection.

    Meant for `sequence-mean`, where the sum over a sequence is s_i A / N; `token-mean` weights it by its length. All
    arrays are torch tensors; log-probabilities in nats. All masked tokens of a clipped sequence count as clipped.

    >>> import torch
    >>> old, new = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.6, 0.4]]).log()
    >>> gspo(new, old, torch.tensor([1.0]), torch.tensor([[True, True]]), clip_low=0.1, clip_high=0.1)
    TokenLoss(loss_N_T=tensor([[-0.9798, -0.9798]]), clipped_N_T=tensor([[False, False]]))
    """
    log_ratio_N_T = (logprob_N_T - old_logprob_N_T).detach().where(mask_N_T, 0.0)
    sequence_ratio_N_1 = (log_ratio_N_T.sum(1, keepdim=True) / mask_N_T.sum(1, keepdim=True).clip(1)).exp()
    ratio_N_T = sequence_ratio_N_1 * (logprob_N_T - logprob_N_T.detach()).exp()
    advantages_N_1 = advantages_N[:, None]
    free = ratio_N_T * advantages_N_1
    held = ratio_N_T.clamp(1.0 - clip_low, 1.0 + clip_high) * advantages_N_1
    return TokenLoss(-free.minimum(held), (held < free) & mask_N_T)
