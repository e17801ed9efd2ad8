"""Cost-aware sampling with a better proxy for the gradient norm: the advantage times the surprise of the tokens."""

import numpy as np

from repro.methods.rollouts import Rollouts
from repro.methods.selection.importance import Beta, Budget, Recentre, distribution, draw


def surprise_cost_aware(
    rollouts: Rollouts,
    progress: float,
    rng: np.random.Generator,
    *,
    beta: Beta = 0.0,
    recentre: Recentre = "constant",
    tokens: Budget = None,
) -> Rollouts:
    """Cost-aware sampling (Cost-Aware Learning, eq. 5) with |A| replaced by a better proxy for the gradient norm:

        p_i ∝ |A_i| · √(Σ_t (1 − π_t)²) / (T_i √c_i),   π_t = π(y_t | y_<t), T_i the response's tokens

    Under sequence-mean the gradient of rollout i is A_i/T_i Σ_t ∇log π_t. Given the past its terms have mean zero, so
    the expected square of the sum is the sum of the expected squares; each term scales with the error of the output
    layer, onehot(y_t) − π, of which 1 − π_t is the sampled token's component. Only the log-probabilities kept at
    sampling time are needed. Meant for `aggregation: sequence-mean`; a token-mean gradient has no 1/T_i.

    Weights, `beta`, `recentre` and `tokens` as in `repro.methods.selection.importance.draw`: direction unbiased. A
    response of near-certain tokens has a small p and, when drawn, a large weight; `beta` bounds it by N/(beta S), S =
    #{p_i > 0}. Source: ours; among the proxies of stage `fidelity` that use only what a rollout already stores, the one
    with the least variance × cost. NoSignal if every advantage, or every surprise, is 0.

    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0], rewards_N=[1, 0], advantages_N=[1.0, -1.0],
    ...     prompt_tokens_N=[8, 8], response_tokens_N=[2, 2],
    ...     logprob_N_T=[[-2.0, -0.1], [-0.1, -0.1]],
    ... )
    >>> taken = surprise_cost_aware(batch, 0.0, np.random.default_rng(0))
    >>> taken.row_N
    array([0, 0])
    >>> taken.weights_N.round(2)
    array([0.58, 0.58])
    """
    surprise_N_T = -np.expm1(rollouts.logprob_N_T) * rollouts.response_mask_N_T
    norm_N = np.sqrt(np.square(surprise_N_T, dtype=float).sum(1)) / rollouts.response_tokens_N
    p_N = distribution(np.abs(rollouts.advantages_N) * norm_N / np.sqrt(rollouts.costs_N), beta)
    return draw(rollouts, p_N, rng, recentre=recentre, tokens=tokens)
