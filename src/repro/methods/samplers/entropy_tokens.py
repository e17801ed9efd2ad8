"""Token selection: the tokens with the largest entropy."""

import numpy as np

from repro.methods.rollouts import Rollouts
from repro.methods.samplers.top_tokens import Least, keep_largest, kept_tokens
from repro.methods.selection import Share


def entropy_tokens(
    rollouts: Rollouts, progress: float, rng: np.random.Generator, *, tokens: Share = 0.2, least: Least = 0
) -> Rollouts:
    """The fraction of the rollouts' response tokens with the largest entropy (Wang et al., 2025, "Beyond the 80/20
    Rule"): forking tokens, at which a response takes one of several ways.

        T = top_K%(y_it, key = H_it),   K = tokens

    `top_tokens` without |A| in its key: with its `tokens` and `least` this is the ablation of D³S's product by entropy
    alone. All tokens of the incoming rollouts are ranked together, those without an advantage too; ties are broken by
    row, then position. H is the entropy of the sampling policy, in nats. NoSignal if no token kept has an advantage.

    Deviations: the paper trains by DAPO on tokens above the quantile of each micro-batch; this is the quantile of the
    batch, and under `token-mean` the loss is divided by the tokens kept instead of all, a constant factor. The paper
    was known to us second-hand.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0], rewards_N=[1, 0], advantages_N=[1.0, -1.0],
    ...     prompt_tokens_N=[8, 8], response_tokens_N=[4, 3],
    ...     entropy_N_T=[[0.1, 2.0, 0.3, 0.2], [0.4, 0.1, 1.5, 0.0]],
    ... )
    >>> entropy_tokens(batch, 0.0, np.random.default_rng(0), tokens=0.3).response_mask_N_T.astype(int)
    array([[0, 1, 0, 0],
           [0, 0, 1, 0]])
    """
    return keep_largest(rollouts, rollouts.entropy_N_T, kept_tokens(rollouts, tokens, least))
