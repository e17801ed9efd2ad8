"""What notebooks/theory/variance.ipynb and its tests share: a softmax policy and the gradients of groups drawn from it.

The policy is small enough that every response is enumerated, so that its gradients and its γ are exact. Two layers:
features φ(x, previous token) = (query, one-hot of it), h = tanh(U φ), logits z = W h. A response has T tokens of a
vocabulary of V, so there are Y = V^T of them; ∇ log π(y) is the mean over its tokens (D³S, eq. 14).

Array names: Q queries, C = V + 1 contexts (the start, then each previous token), P parameters (W, then U), H hidden
units; K groups of one query, G rollouts of a group, n of them kept.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.rollouts import Rollouts
from repro.methods.selection.max_variance import max_variance_rows

Array = NDArray[np.float64]
QUERY_FEATURES = 4


@dataclass(frozen=True, eq=False)
class SoftmaxPolicy:
    """W (V, H), U (H, F), query features (Q, F − C), token values (Q, T, V) and success rates aimed at (Q,).

    The verifier: a response's value is the sum of its tokens' values, by place; as many of the best responses count as
    correct as make its success rate at least the one aimed at, but never all. So a query's rate p is close to its aim,
    or above it where single responses are likely.
    """

    output_V_H: Array
    input_H_F: Array
    queries_Q_D: Array
    values_Q_T_V: Array
    aims_Q: Array

    @cached_property
    def responses_Y_T(self) -> np.ndarray:
        return np.array(list(product(range(len(self.output_V_H)), repeat=self.values_Q_T_V.shape[1])))

    @cached_property
    def features_Q_C_F(self) -> Array:
        queries, contexts = len(self.queries_Q_D), len(self.output_V_H) + 1
        query = np.repeat(self.queries_Q_D[:, None], contexts, axis=1)
        return np.concatenate([query, np.broadcast_to(np.eye(contexts), (queries, contexts, contexts))], axis=2)

    @cached_property
    def hidden_Q_C_H(self) -> Array:
        return np.tanh(self.features_Q_C_F @ self.input_H_F.T)

    @cached_property
    def policy_Q_C_V(self) -> Array:
        """π(token | query, previous token)."""
        logits_Q_C_V = self.hidden_Q_C_H @ self.output_V_H.T
        weights_Q_C_V = np.exp(logits_Q_C_V - logits_Q_C_V.max(axis=-1, keepdims=True))
        return weights_Q_C_V / weights_Q_C_V.sum(axis=-1, keepdims=True)

    @cached_property
    def gamma_Q(self) -> Array:
        """γ(x): the largest operator norm of ∂z/∂(W, U) over the query's contexts.

        J Jᵀ = ‖h‖² I + ‖φ‖² M Mᵀ, M = W diag(1 − h²), since W and U share no parameter.
        """
        slopes_Q_C_V_H = self.output_V_H * (1 - self.hidden_Q_C_H**2)[:, :, None, :]
        inner_Q_C = np.linalg.norm(slopes_Q_C_V_H, ord=2, axis=(2, 3)) ** 2
        squared_Q_C = (self.hidden_Q_C_H**2).sum(-1) + (self.features_Q_C_F**2).sum(-1) * inner_Q_C
        return np.sqrt(squared_Q_C.max(axis=1))

    @cached_property
    def probabilities_Q_Y(self) -> Array:
        """π(y | x) of every response."""
        contexts_Y_T = np.pad(self.responses_Y_T[:, :-1] + 1, ((0, 0), (1, 0)))
        probabilities_Q_Y = self.policy_Q_C_V[:, contexts_Y_T, self.responses_Y_T].prod(axis=-1)
        return probabilities_Q_Y / probabilities_Q_Y.sum(axis=1, keepdims=True)

    @cached_property
    def scores_Q_Y_P(self) -> Array:
        """∇ log π(y | x) of every response, the mean over its tokens (eq. 14)."""
        vocabulary, contexts = len(self.output_V_H), len(self.output_V_H) + 1
        delta_Q_C_V_V = np.eye(vocabulary) - self.policy_Q_C_V[:, :, None, :]  # one-hot of the token less π, by token
        outer = np.einsum("qcav,qch->qcavh", delta_Q_C_V_V, self.hidden_Q_C_H)
        back = np.einsum("qcav,vh,qch->qcah", delta_Q_C_V_V, self.output_V_H, 1 - self.hidden_Q_C_H**2)
        inner = np.einsum("qcah,qcf->qcahf", back, self.features_Q_C_F)
        flat = (len(self.queries_Q_D), contexts * vocabulary, -1)
        tokens_Q_E_P = np.concatenate([outer.reshape(flat), inner.reshape(flat)], axis=2)
        contexts_Y_T = np.pad(self.responses_Y_T[:, :-1] + 1, ((0, 0), (1, 0)))
        events_Y_T = contexts_Y_T * vocabulary + self.responses_Y_T
        share_Y_E = (events_Y_T[:, :, None] == np.arange(contexts * vocabulary)).mean(axis=1)
        return share_Y_E @ tokens_Q_E_P

    @cached_property
    def correct_Q_Y(self) -> np.ndarray:
        """Reward 0 or 1 of every response."""
        worth_Q_Y = self.values_Q_T_V[:, np.arange(self.responses_Y_T.shape[1]), self.responses_Y_T].sum(axis=-1)
        order_Q_Y = np.argsort(-worth_Q_Y, axis=1, kind="stable")
        reached_Q_Y = np.cumsum(np.take_along_axis(self.probabilities_Q_Y, order_Q_Y, axis=1), axis=1)
        before_Q_Y = np.pad(reached_Q_Y[:, :-1], ((0, 0), (1, 0))) < self.aims_Q[:, None]
        before_Q_Y[:, -1] = False
        correct_Q_Y = np.zeros(order_Q_Y.shape)
        np.put_along_axis(correct_Q_Y, order_Q_Y, before_Q_Y.astype(float), axis=1)
        return correct_Q_Y

    @cached_property
    def rates_Q(self) -> Array:
        """p(x), the probability that a response is correct."""
        return (self.probabilities_Q_Y * self.correct_Q_Y).sum(axis=1)

    @cached_property
    def rate_gradients_Q_P(self) -> Array:
        """∇p(x) = Σ_y π(y) r(y) ∇ log π(y), the score as in eq. 14 (so this is the true gradient over T)."""
        return np.einsum("qy,qyp->qp", self.probabilities_Q_Y * self.correct_Q_Y, self.scores_Q_Y_P)


def draw_policy(
    *, vocabulary: int, length: int, hidden: int, sharpness: float, queries: int, seed: int
) -> SoftmaxPolicy:
    """A random policy, W ~ N(0, sharpness²/H): uniform over tokens at 0, near-deterministic at large `sharpness`.

    Aims are evenly spaced between 0 and 1, at (q + ½)/Q.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3,)))
    features = QUERY_FEATURES + vocabulary + 1
    queries_Q_D = rng.standard_normal((queries, QUERY_FEATURES))
    return SoftmaxPolicy(
        output_V_H=rng.standard_normal((vocabulary, hidden)) * sharpness / np.sqrt(hidden),
        input_H_F=rng.standard_normal((hidden, features)),
        queries_Q_D=queries_Q_D / np.linalg.norm(queries_Q_D, axis=1, keepdims=True),
        values_Q_T_V=rng.standard_normal((queries, length, vocabulary)),
        aims_Q=(np.arange(queries) + 0.5) / queries,
    )


def draw_groups(policy: SoftmaxPolicy, group_size: int, keep: int, n_groups: int, seed: int) -> pd.DataFrame:
    """Gradients of whole groups and of what each method keeps of them, one row per query, subset and group.

    Columns: query, rate (p), subset (grpo: the whole group; d1s; pods; random), group; of A′ mean_abs, moment (E A′²)
    and variance; in units of γ(x) norm (of the gradient, (1/n) Σ A′ ∇ log π) and triangle ((1/n) Σ |A′|·‖∇ log π‖);
    factor, the gradient's component along ∇p divided by ‖∇p‖: its mean is the c of E ∇Ĵ = c·∇p.
    """
    frames = []
    for query in range(len(policy.rates_Q)):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(7, query)))
        scores_Y_P = policy.scores_Q_Y_P[query] / policy.gamma_Q[query]
        slope_P = policy.rate_gradients_Q_P[query] / policy.gamma_Q[query]
        for subset, kept in _draw(policy, query, group_size, keep, n_groups, rng).items():
            columns = {"query": query, "rate": policy.rates_Q[query], "subset": subset, "group": np.arange(n_groups)}
            frames.append(pd.DataFrame(columns | _describe(*kept, scores_Y_P, slope_P)))
    return pd.concat(frames, ignore_index=True)


def _draw(
    policy: SoftmaxPolicy, query: int, group_size: int, keep: int, n_groups: int, rng: np.random.Generator
) -> dict[str, tuple[np.ndarray, Array]]:
    """By subset the rollouts that train: responses_K_n and their advantages_K_n."""
    cumulative_Y = np.cumsum(policy.probabilities_Q_Y[query])
    uniform_K_G = rng.random((n_groups, group_size)) * cumulative_Y[-1]
    responses_K_G = np.searchsorted(cumulative_Y, uniform_K_G, side="right")
    rewards_K_G = policy.correct_Q_Y[query, responses_K_G]
    advantages_K_G = standardised(rewards_K_G)
    group_N = np.repeat(np.arange(n_groups), group_size)
    rows = max_variance_rows(advantages_K_G.ravel(), group_N, np.full(n_groups, keep))
    best_K_n = responses_K_G.ravel()[rows].reshape(n_groups, keep)
    return {
        "grpo": (responses_K_G, advantages_K_G),
        "d1s": (best_K_n, advantages_K_G.ravel()[rows].reshape(n_groups, keep)),
        "pods": (best_K_n, standardised(rewards_K_G.ravel()[rows].reshape(n_groups, keep))),
        # Rollouts are exchangeable: the first n of a group are a random subset of it.
        "random": (responses_K_G[:, :keep], advantages_K_G[:, :keep]),
    }


def _describe(
    responses_K_n: np.ndarray, advantages_K_n: Array, scores_Y_P: Array, slope_P: Array
) -> dict[str, np.ndarray]:
    groups, size = advantages_K_n.shape
    place_N = (np.arange(groups)[:, None] * len(scores_Y_P) + responses_K_n).ravel()
    weights_N = np.bincount(place_N, advantages_K_n.ravel() / size, minlength=groups * len(scores_Y_P))
    gradient_K_P = weights_N.reshape(groups, -1) @ scores_Y_P
    lengths_Y = np.linalg.norm(scores_Y_P, axis=1)
    size_K_n = np.abs(advantages_K_n)
    one_sided_K = np.ptp(advantages_K_n, axis=1) == 0
    return {
        "mean_abs": size_K_n.mean(axis=1),
        "moment": (size_K_n**2).mean(axis=1),
        # Exactly zero where all are equal: a cube root turns what rounding leaves into 1e-11.
        "variance": np.where(one_sided_K, 0.0, advantages_K_n.var(axis=1)),
        "norm": np.linalg.norm(gradient_K_P, axis=1),
        "triangle": (size_K_n * lengths_Y[responses_K_n]).mean(axis=1),
        "factor": gradient_K_P @ slope_P / (slope_P @ slope_P),
    }


def standardised(rewards_Q_G: np.ndarray) -> Array:
    """advantages_Q_G: each row less its mean, over its population standard deviation; zeros where all are equal."""
    groups, size = rewards_Q_G.shape
    group_N = np.repeat(np.arange(groups), size)
    return group_normalised(rewards_Q_G.ravel(), group_N, delta=0.0).reshape(groups, size)


def best_variances(values_Q_G: np.ndarray, keep: int) -> Array:
    """variance_Q: the largest population variance of `keep` values of each row."""
    groups, size = values_Q_G.shape
    group_N = np.repeat(np.arange(groups), size)
    rows = max_variance_rows(values_Q_G.ravel(), group_N, np.full(groups, keep))
    return values_Q_G.ravel()[rows].reshape(groups, keep).var(axis=1)


def as_batch(rewards_Q_G: np.ndarray, advantages_Q_G: np.ndarray) -> Rollouts:
    """Groups side by side as the samplers take them; every rollout one token long."""
    groups, size = rewards_Q_G.shape
    ones_N = np.ones(groups * size, int)
    return Rollouts.from_batch(
        group_N=np.repeat(np.arange(groups), size),
        rewards_N=rewards_Q_G.ravel(),
        advantages_N=advantages_Q_G.ravel(),
        prompt_tokens_N=ones_N,
        response_tokens_N=ones_N,
    )
