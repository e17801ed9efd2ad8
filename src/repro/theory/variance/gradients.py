"""Gradients of a softmax policy over groups of its own responses: whole groups, and what each selection keeps of them.

Array names: Q queries, K groups of one query, G rollouts of a group, n kept, Y responses, P parameters.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.selection.max_variance import max_variance_rows
from repro.theory.variance.closed_forms import (
    PROPOSITION_1,
    SCORE,
    elementary_bound,
    gradient_factor,
    one_sided_probability,
    proposition_2,
)
from repro.theory.variance.policy import SoftmaxPolicy, draw_policy

METHODS = ("grpo", "d1s", "pods")
SUBSETS = (*METHODS, "random")


@dataclass(frozen=True)
class Kept:
    """The rollouts that train: responses (K, n), and the advantages that they train with (K, n)."""

    responses_K_n: np.ndarray
    advantages_K_n: np.ndarray


def measure_groups(policy: SoftmaxPolicy, group_size: int, keep: int, n_groups: int, seed: int) -> pd.DataFrame:
    """One row per query, subset and group.

    Columns: query, rate (p), subset (grpo: the whole group; d1s; pods; random), group; of A′ mean_abs, moment (E A′²)
    and variance; in units of γ(x) norm (of the gradient, (1/n) Σ A′ ∇ log π) and triangle ((1/n) Σ |A′|·‖∇ log π‖);
    factor, its part along ∇p over ‖∇p‖, so that a method's mean is the c of E ∇Ĵ = c·∇p.
    """
    frames = []
    for query in range(len(policy.rates_Q)):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(7, query)))
        scores_Y_P = policy.scores_Q_Y_P[query] / policy.gamma_Q[query]
        slope_P = policy.rate_gradients_Q_P[query] / policy.gamma_Q[query]
        for subset, kept in _draw(policy, query, group_size, keep, n_groups, rng).items():
            columns = {"query": query, "rate": policy.rates_Q[query], "subset": subset, "group": np.arange(n_groups)}
            frames.append(pd.DataFrame(columns | _describe(kept, scores_Y_P, slope_P)))
    return pd.concat(frames, ignore_index=True)


def with_bounds(groups: pd.DataFrame, group_size: int) -> pd.DataFrame:
    """The same with the bounds on `norm`: eq_4, eq_5, elementary (2√E A′²), score (√2·E|A′|)."""
    return groups.assign(
        eq_4=PROPOSITION_1,
        eq_5=proposition_2(groups["variance"], group_size),
        elementary=elementary_bound(groups["moment"]),
        score=SCORE * groups["mean_abs"],
    )


def compare_factors(policy: SoftmaxPolicy, groups: pd.DataFrame, group_size: int, keep: int) -> pd.DataFrame:
    """A method's expected gradient over GRPO's, by query: query, rate, method, measured, se, predicted (closed form).

    The ratio of means over groups, with its standard error by linearisation: both come from the same rollouts.
    """
    rows = []
    for query, rate in enumerate(policy.rates_Q):
        own = groups[groups["query"] == query].pivot(index="group", columns="subset", values="factor")
        base = float(gradient_factor(rate, group_size, keep, "grpo"))
        for method in METHODS[1:]:
            ratio = own[method].mean() / own["grpo"].mean()
            residual = own[method] - ratio * own["grpo"]
            se = residual.std() / np.sqrt(len(own)) / own["grpo"].mean()
            predicted = float(gradient_factor(rate, group_size, keep, method)) / base
            rows.append((query, rate, method, ratio, se, predicted))
    return pd.DataFrame(rows, columns=["query", "rate", "method", "measured", "se", "predicted"])


def one_sided_share(policy: SoftmaxPolicy, groups: pd.DataFrame, group_size: int, keep: int) -> pd.DataFrame:
    """How often eq. 5 is exceeded by a random subset, by query: query, broken (0 or 1 by group), predicted."""
    random = with_bounds(groups[groups["subset"] == "random"], group_size)
    broken = (random["norm"] > random["eq_5"] + 1e-12).astype(float)
    predicted_Q = one_sided_probability(policy.rates_Q, group_size, keep)
    return pd.DataFrame({"query": random["query"], "broken": broken, "predicted": predicted_Q[random["query"]]})


def tightness(
    vocabulary: int, hidden: int, queries: int, group_size: int, keep: int, n_groups: int, seed: int
) -> pd.DataFrame:
    """How much of each bound is used, over policies from near-uniform to near-deterministic, short and long responses.

    One row per policy: sharpness, length, then the median and the largest of norm/bound over groups with a signal,
    eq. 4 for whole groups and eq. 5 for subsets of maximum variance.
    """
    rows = []
    for sharpness in (0.3, 1.0, 3.0):
        for length in (1, 2, 4):
            policy = draw_policy(
                vocabulary=vocabulary, length=length, hidden=hidden, sharpness=sharpness, queries=queries, seed=seed
            )
            groups = with_bounds(measure_groups(policy, group_size, keep, n_groups, seed), group_size)
            groups = groups[groups["variance"] > 0]
            whole, best = groups[groups["subset"] == "grpo"], groups[groups["subset"] == "d1s"]
            used_4, used_5 = whole["norm"] / whole["eq_4"], best["norm"] / best["eq_5"]
            rows.append((sharpness, length, used_4.median(), used_4.max(), used_5.median(), used_5.max()))
    names = ["sharpness", "length", "eq_4_median", "eq_4_largest", "eq_5_median", "eq_5_largest"]
    return pd.DataFrame(rows, columns=names)


def _draw(
    policy: SoftmaxPolicy, query: int, group_size: int, keep: int, n_groups: int, rng: np.random.Generator
) -> dict[str, Kept]:
    cumulative_Y = np.cumsum(policy.probabilities_Q_Y[query])
    uniform_K_G = rng.random((n_groups, group_size)) * cumulative_Y[-1]
    responses_K_G = np.searchsorted(cumulative_Y, uniform_K_G, side="right")
    rewards_K_G = policy.correct_Q_Y[query, responses_K_G]
    group_N = np.repeat(np.arange(n_groups), group_size)
    advantages_N = group_normalised(rewards_K_G.ravel(), group_N, delta=0.0)
    advantages_K_G = advantages_N.reshape(n_groups, group_size)
    rows = max_variance_rows(advantages_N, group_N, np.full(n_groups, keep))
    best_K_n = responses_K_G.ravel()[rows].reshape(n_groups, keep)
    best_N = np.repeat(np.arange(n_groups), keep)
    anew_N = group_normalised(rewards_K_G.ravel()[rows], best_N, delta=0.0)
    return {
        "grpo": Kept(responses_K_G, advantages_K_G),
        "d1s": Kept(best_K_n, advantages_N[rows].reshape(n_groups, keep)),
        "pods": Kept(best_K_n, anew_N.reshape(n_groups, keep)),
        # Rollouts are exchangeable: the first n of a group are a random subset of it.
        "random": Kept(responses_K_G[:, :keep], advantages_K_G[:, :keep]),
    }


def _describe(kept: Kept, scores_Y_P: np.ndarray, slope_P: np.ndarray) -> dict[str, np.ndarray]:
    groups, size = kept.advantages_K_n.shape
    place_N = (np.arange(groups)[:, None] * len(scores_Y_P) + kept.responses_K_n).ravel()
    weights_N = np.bincount(place_N, kept.advantages_K_n.ravel() / size, minlength=groups * len(scores_Y_P))
    gradient_K_P = weights_N.reshape(groups, -1) @ scores_Y_P
    lengths_Y = np.linalg.norm(scores_Y_P, axis=1)
    size_K_n = np.abs(kept.advantages_K_n)
    one_sided_K = np.ptp(kept.advantages_K_n, axis=1) == 0
    return {
        "mean_abs": size_K_n.mean(axis=1),
        "moment": (size_K_n**2).mean(axis=1),
        # Exactly zero where all are equal: a cube root would make 1e-11 of what rounding leaves.
        "variance": np.where(one_sided_K, 0.0, kept.advantages_K_n.var(axis=1)),
        "norm": np.linalg.norm(gradient_K_P, axis=1),
        "triangle": (size_K_n * lengths_Y[kept.responses_K_n]).mean(axis=1),
        "factor": gradient_K_P @ slope_P / (slope_P @ slope_P),
    }
