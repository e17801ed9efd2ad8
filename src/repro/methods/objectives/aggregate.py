"""How token losses are aggregated into the loss of a mini-batch."""

from typing import Any, Literal, NamedTuple

Aggregation = Literal["sequence-mean", "token-mean", "constant-length"]


class TokenLoss(NamedTuple):
    """loss_N_T, and clipped_N_T: whether clipping removed the token's gradient (bool, for the clip fraction)."""

    loss_N_T: Any
    clipped_N_T: Any


def token_coefficients(mask_N_T: Any, aggregation: Aggregation, max_tokens: int | None = None) -> Any:
    """coefficient_N_T: the weight of each token's loss in the sum over tokens; works on numpy and torch alike.

    sequence-mean: 1/(N · tokens of its sequence), as in GRPO (Shao et al., 2024). Its normaliser does not depend on
    which rollouts were drawn, which is what makes importance-weighted draws unbiased.
    token-mean: 1/(tokens of the mini-batch), DAPO's and verl's default; a ratio estimator under sampling.
    constant-length: 1/(N · max_tokens), as in Dr. GRPO (Liu et al., 2025): a token weighs the same in a short response
    as in a long one, and `max_tokens`, the maximum response length, is a constant. ValueError without it.
    A sequence without a masked token contributes nothing but counts in N.
    """
    if aggregation == "token-mean":
        return mask_N_T / mask_N_T.sum().clip(1)
    if aggregation == "constant-length":
        if not max_tokens:
            raise ValueError("aggregation constant-length divides by max_tokens, the longest response allowed; give it")
        return mask_N_T / (len(mask_N_T) * max_tokens)
    return mask_N_T / mask_N_T.sum(1, keepdims=True).clip(1) / len(mask_N_T)
