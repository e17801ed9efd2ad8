"""The sample usefulness rate with and without the cross-group step (D³S, section 4.5), simulated with the samplers."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.rollouts import NoSignal, Rollouts
from repro.methods.samplers.d1s import d1s
from repro.methods.samplers.d1s_c import d1s_c
from repro.theory.variance.closed_forms import signal_probability, useful_given, useful_groups
from repro.theory.variance.subsets import as_batch

SAMPLERS = {"d1s": d1s, "d1s-c": d1s_c}


def sizes_to_keep(group_size: int, keep: int) -> list[int]:
    """The n to simulate: eight from 2 to G, and `keep`."""
    return sorted({keep, *np.linspace(2, group_size, 8).round().astype(int).tolist()})


def simulate_usefulness(
    alpha: float, beta: float, groups: int, group_size: int, keeps: Sequence[int], n_batches: int, seed: int
) -> pd.DataFrame:
    """One row per sampler, n and batch: sampler, keep, batch, useful, given, coverage, silent_kept.

    Success rates p ~ Beta(α, β), one per group. `useful`: groups with a signal among those trained on, 0 without any,
    and `given` what the closed form says of this batch; `coverage`: share of the groups with a signal that train at
    all; `silent_kept`: rollouts without a signal kept although others with one were left.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(6,)))
    rows = []
    for batch in range(n_batches):
        rewards_B_G = (rng.random((groups, group_size)) < rng.beta(alpha, beta, (groups, 1))).astype(float)
        group_N = np.repeat(np.arange(groups), group_size)
        advantages_B_G = group_normalised(rewards_B_G.ravel(), group_N).reshape(rewards_B_G.shape)
        whole = as_batch(rewards_B_G, advantages_B_G)
        for name, sampler in SAMPLERS.items():
            for keep in keeps:
                try:
                    kept = sampler(whole, 0.0, rng, share=keep / group_size)
                except NoSignal:
                    kept = None
                signal = int((np.ptp(rewards_B_G, axis=1) > 0).sum())
                given = float(useful_given(signal, groups, group_size, keep, cross=name == "d1s-c"))
                useful, *rest = _measure(whole, kept)
                rows.append((name, keep, batch, useful, given, *rest))
    return pd.DataFrame(rows, columns=["sampler", "keep", "batch", "useful", "given", "coverage", "silent_kept"])


def summarise_usefulness(
    batches: pd.DataFrame, alpha: float, beta: float, groups: int, group_size: int
) -> pd.DataFrame:
    """Mean and standard error over batches beside the closed form: sampler, keep, useful, useful_se, predicted,
    coverage, and the largest of silent_kept and of the difference to `given` (gap_given)."""
    grouped = batches.assign(gap_given=(batches["useful"] - batches["given"]).abs()).groupby(["sampler", "keep"])
    table = grouped[["useful", "coverage"]].mean().join(grouped[["silent_kept", "gap_given"]].max())
    table["useful_se"] = grouped["useful"].sem()
    table = table.reset_index()
    signal = float(signal_probability(alpha, beta, group_size))
    within, across = (useful_groups(signal, groups, group_size, table["keep"], cross=cross) for cross in (False, True))
    table["predicted"] = np.where(table["sampler"] == "d1s-c", across, within)
    return table


def _measure(whole: Rollouts, kept: Rollouts | None) -> tuple[float, float, int]:
    signal = np.unique(whole.group_N[whole.advantages_N != 0])
    if kept is None:
        return 0.0, 0.0, 0
    trained = np.unique(kept.group_N)
    useful = np.intersect1d(trained, signal)
    silent_kept = int((kept.advantages_N == 0).sum())
    left = int((whole.advantages_N != 0).sum()) - int((kept.advantages_N != 0).sum())
    return len(useful) / len(trained), len(useful) / len(signal), silent_kept * (left > 0)
