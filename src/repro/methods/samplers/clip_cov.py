"""Clip-Cov: all tokens but a few whose update would lower the policy's entropy most."""

from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.rollouts import Rollouts


def clip_cov(
    rollouts: Rollouts,
    progress: float,
    rng: np.random.Generator,
    *,
    share: Annotated[float, Field(gt=0, le=1)] = 2e-4,
    low: float = 1.0,
    high: float = 5.0,
) -> Rollouts:
    """The rollouts without a random few of the tokens whose covariance lies in (low, high) (Clip-Cov: Cui et al., 2025,
    "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models").

        Cov_it = (log π(y_it) − mean log π) · (A_i − mean A);   of those in (low, high), ⌊share · Σ_i T_i⌋, at least one

    Means are over all response tokens of the batch; log-probabilities in nats, so covariances are in nats times the
    advantage's unit. In a policy gradient step entropy falls by about the covariance of log-probability and advantage,
    of which a few tokens have nearly all; without these it falls more slowly. The defaults are those of the authors'
    script for verl, which replaces GRPO's clip: ratios are clipped at 0 and 2 only. NoSignal if no token left has an
    advantage.

    Deviations: the authors choose in the loss, anew for every micro-batch and by the policy that is trained; here it is
    once for the batch and by the policy that sampled, the same until the first update, so that the choice depends on no
    engine's slices. Their tokens without gradient stay in the divisor of the loss, ours leave it. The paper was known
    to us second-hand, by its implementation in verl.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0], rewards_N=[1, 0], advantages_N=[1.0, -1.0],
    ...     prompt_tokens_N=[8, 8], response_tokens_N=[3, 2],
    ...     logprob_N_T=[[-0.1, -0.2, -0.1], [-0.1, -3.0, 0.0]],
    ... )
    >>> clip_cov(batch, 0.0, np.random.default_rng(0)).response_mask_N_T.astype(int)
    array([[1, 1, 1],
           [1, 0, 0]])
    """
    row_K, column_K = np.nonzero(rollouts.response_mask_N_T)
    logprob_K, advantages_K = rollouts.logprob_N_T[row_K, column_K], rollouts.advantages_N[row_K]
    covariance_K = (logprob_K - logprob_K.mean()) * (advantages_K - advantages_K.mean())
    large = np.flatnonzero((covariance_K > low) & (covariance_K < high))
    count = min(max(int(share * len(row_K)), 1), len(large))
    left_out = rng.choice(large, count, replace=False)
    kept_N_T = rollouts.response_mask_N_T.copy()
    kept_N_T[row_K[left_out], column_K[left_out]] = False
    return rollouts.with_mask(kept_N_T)
