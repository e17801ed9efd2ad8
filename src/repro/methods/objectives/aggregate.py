"""How token losses are aggregated into the loss of a mini-batch."""

from typing import Any, Literal, NamedTuple

Aggregation = Literal["sequence-mean", "token-mean", "constant-length", "group-mean"]


class TokenLoss(NamedTuple):
    """loss_N_T, and clipped_N_T: whether clipping removed the token's gradient (bool, for the clip fraction)."""

    loss_N_T: Any
    clipped_N_T: Any


def token_coefficients(
    mask_N_T: Any, aggregation: Aggregation, max_tokens: int | None = None, group_weight_N: Any | None = None
) -> Any:
    """coefficient_N_T: the weight of each token's loss in the sum over tokens; works on numpy and torch alike.

    sequence-mean: 1/(N · tokens of its sequence), as in GRPO (Shao et al., 2024). Its normaliser does not depend on
    which rollouts were drawn, which is what makes importance-weighted draws unbiased.
    token-mean: 1/(tokens of the mini-batch), DAPO's and verl's default; a ratio estimator under sampling.
    constant-length: 1/(N · max_tokens), as in Dr. GRPO (Liu et al., 2025): a token weighs the same in a short response
    as in a long one, and `max_tokens`, the maximum response length, is a constant. ValueError without it.
    group-mean: sequence-mean times `group_weight_N`, the batch's mean group size over that of the sequence's group
    (`Rollouts.group_weight_N`). Over a batch of Q groups this is GRPO's objective, (1/Q) Σ_q (1/G_q) Σ_i of its
    sequence means, whatever the groups' sizes and however they are split over mini-batches; with groups of one size
    it is sequence-mean. ValueError without the weights.
    A sequence without a masked token contributes nothing but counts in N.

    >>> import torch
    >>> token_coefficients(torch.tensor([[1, 1, 0], [1, 0, 0]]), "sequence-mean")
    tensor([[0.2500, 0.2500, 0.0000],
            [0.5000, 0.0000, 0.0000]])
    >>> token_coefficients(torch.tensor([[1, 1, 0], [1, 0, 0]]), "token-mean")
    tensor([[0.3333, 0.3333, 0.0000],
            [0.3333, 0.0000, 0.0000]])
    """
    if aggregation == "token-mean":
        return mask_N_T / mask_N_T.sum().clip(1)
    if aggregation == "constant-length":
        if not max_tokens:
            raise ValueError("aggregation constant-length divides by max_tokens, the longest response allowed; give it")
        return mask_N_T / (len(mask_N_T) * max_tokens)
    coefficient_N_T = mask_N_T / mask_N_T.sum(1, keepdims=True).clip(1) / len(mask_N_T)
    if aggregation != "group-mean":
        return coefficient_N_T
    if group_weight_N is None:
        raise ValueError("aggregation group-mean weighs each sequence by its group's size; give group_weight_N")
    return coefficient_N_T * group_weight_N[:, None]
