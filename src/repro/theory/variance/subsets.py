"""Subsets of maximum variance, counted: Lemma 1 and Proposition 2 over random reward vectors and every binary group.

Subsets are those that `repro.methods.selection` finds; the closed forms are in `repro.theory.variance.closed_forms`.
"""

import numpy as np
import pandas as pd

from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.rollouts import Rollouts
from repro.methods.samplers.d1s import d1s
from repro.methods.samplers.pods import pods
from repro.methods.selection.max_variance import max_variance_rows
from repro.theory.variance.closed_forms import (
    elementary_bound,
    kept_successes,
    lemma_bound,
    lemma_fails,
    proposition_2,
    selected_variance,
)

ROUNDING = 1e-9  # a variance this much below another equals it

# Reward vectors that are not binary: smooth, skewed, heavy-tailed, and graded with ties.
LAWS = {
    "uniform": lambda rng, shape: rng.random(shape),
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "log-normal": lambda rng, shape: np.exp(rng.standard_normal(shape)),
    "five grades": lambda rng, shape: rng.integers(0, 5, shape).astype(float),
}


def best_variances(values_Q_G: np.ndarray, keep: int) -> np.ndarray:
    """variance_Q: the largest population variance of `keep` values of each row."""
    groups, size = values_Q_G.shape
    group_N = np.repeat(np.arange(groups), size)
    rows = max_variance_rows(values_Q_G.ravel(), group_N, np.full(groups, keep))
    return values_Q_G.ravel()[rows].reshape(groups, keep).var(axis=1)


def random_vectors(group_size: int, n_vectors: int, seed: int) -> pd.DataFrame:
    """Largest variance of a subset of n in random standardised vectors: law, keep, least, median, bound.

    `least` and `median` over n_vectors draws of each law; vectors of equal rewards are left out. One row per law and
    n = 2 ... G.
    """
    rows = []
    for place, (law, draw) in enumerate(LAWS.items()):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(4, place)))
        rewards_Q_G = draw(rng, (n_vectors, group_size))
        rewards_Q_G = rewards_Q_G[np.ptp(rewards_Q_G, axis=1) > 0]
        advantages_Q_G = _standardised(rewards_Q_G)
        for keep in range(2, group_size + 1):
            variance_Q = best_variances(advantages_Q_G, keep)
            bound = float(lemma_bound(group_size, keep))
            rows.append((law, keep, variance_Q.min(), np.median(variance_Q), bound))
    return pd.DataFrame(rows, columns=["law", "keep", "least", "median", "bound"])


def binary_groups(largest: int) -> pd.DataFrame:
    """Every group of 2 to `largest` rewards 0 and 1 with a signal, and every n: group_size, successes, keep, then

    variance (of the subset found), predicted (its closed form), bound (Lemma 1 mended), below (variance < 1), fails
    (what the closed form says of `below`).
    """
    frames = []
    for size in range(2, largest + 1):
        successes = np.arange(1, size)
        advantages_k_G = _standardised((np.arange(size) < successes[:, None]).astype(float))
        for keep in range(2, size + 1):
            columns = {"group_size": size, "successes": successes, "keep": keep}
            columns["variance"] = best_variances(advantages_k_G, keep)
            columns["predicted"] = selected_variance(size, successes, keep)
            columns["bound"] = float(lemma_bound(size, keep))
            columns["fails"] = lemma_fails(size, successes, keep)
            frames.append(pd.DataFrame(columns))
    table = pd.concat(frames, ignore_index=True)
    return table.assign(below=table["variance"] < 1 - ROUNDING)


def bound_ratios(largest: int) -> pd.DataFrame:
    """How eq. 5 compares with 2·E|A′|, which no gradient exceeds, over every subset of every binary group.

    By kind (best: of maximum variance; mixed: successes and failures; one-sided): subsets (splits into successes and
    failures, not index sets), least (eq. 5 over 2·E|A′|; below 1 the proposition does not follow), broken (how many
    are below 1), least_elementary (the same for 2√E A′²), sharper (eq. 5 over 2√E A′², least).
    """
    columns = {name: [] for name in ("eq_5", "elementary", "reach", "best", "one_sided")}
    for size in range(2, largest + 1):
        k, n, j = np.meshgrid(np.arange(1, size), np.arange(2, size + 1), np.arange(size + 1), indexing="ij")
        real = (j <= k) & (j <= n) & (n - j <= size - k)
        k, n, j = k[real], n[real], j[real]
        high, low = np.sqrt((size - k) / k), np.sqrt(k / (size - k))
        mean, moment = (j * high - (n - j) * low) / n, (j * high**2 + (n - j) * low**2) / n
        one_sided = (j == 0) | (j == n)
        variance = np.where(one_sided, 0.0, moment - mean**2)
        columns["eq_5"].append(proposition_2(variance, size))
        columns["elementary"].append(elementary_bound(moment))
        columns["reach"].append(2 * (j * high + (n - j) * low) / n)
        columns["best"].append(j == kept_successes(size, k, n))
        columns["one_sided"].append(one_sided)
    table = pd.DataFrame({name: np.concatenate(parts) for name, parts in columns.items()})
    kinds = {"best": table["best"], "mixed": ~table["one_sided"], "one-sided": table["one_sided"]}
    return pd.DataFrame([_compared(kind, table[chosen]) for kind, chosen in kinds.items()])


def within_groups(group_size: int, keep: int, seed: int) -> pd.DataFrame:
    """What D¹S and PODS keep of one group for each k = 1 ... G − 1, in random order: successes, d1s and pods (variance
    of the advantages that train), predicted (D¹S's closed form), same (both kept the same rollouts; for odd n
    two splits may tie, which rounding can break differently in A and in r)."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(5,)))
    successes = np.arange(1, group_size)
    rewards_Q_G = rng.permuted((np.arange(group_size) < successes[:, None]).astype(float), axis=1)
    batch = as_batch(rewards_Q_G, _standardised(rewards_Q_G))
    kept = {name: sampler(batch, 0.0, rng, share=keep / group_size) for name, sampler in (("d1s", d1s), ("pods", pods))}
    shape = (len(successes), keep)
    variances = {name: rollouts.advantages_N.reshape(shape).var(axis=1) for name, rollouts in kept.items()}
    same_Q = (kept["d1s"].row_N == kept["pods"].row_N).reshape(shape).all(axis=1)
    predicted = selected_variance(group_size, successes, keep)
    return pd.DataFrame({"successes": successes, **variances, "predicted": predicted, "same": same_Q})


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


def _standardised(rewards_Q_G: np.ndarray) -> np.ndarray:
    groups, size = rewards_Q_G.shape
    group_N = np.repeat(np.arange(groups), size)
    return group_normalised(rewards_Q_G.ravel(), group_N, delta=0.0).reshape(groups, size)


def _compared(kind: str, subsets: pd.DataFrame) -> dict:
    ratio = subsets["eq_5"] / subsets["reach"]
    return {
        "kind": kind,
        "subsets": len(subsets),
        "least": ratio.min(),
        "broken": int((ratio < 1 - ROUNDING).sum()),
        "least_elementary": (subsets["elementary"] / subsets["reach"]).min(),
        "sharper": (subsets["eq_5"] / subsets["elementary"]).min(),
    }
