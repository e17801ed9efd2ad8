"""The noise ablation of Cost-Aware GRPO (section 5.5, Fig. 5b), in the terms of Theorem 4.2.

The ablation draws rollouts by p ∝ max(0, |A| + ξ)/√c, ξ Gaussian. That is Theorem D.5's model with G = |A|, but for two
things that the theorem excludes: rollouts of silent groups have G = 0, and the clip leaves rollouts with G > 0 without
any chance. So the excess splits into cost spent on silent rollouts, variance, and, where nothing smooths p, a bias.
Array names: N rollouts, K draws of the noise.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from repro.theory.proxy.closed_forms import product, sampling
from repro.theory.proxy.noise import correlation, taylor_excess, unreachable
from repro.theory.sgd import Array

NOISE_LEVELS = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
BETAS = (0.02, 0.1, 0.3, 0.5)


@dataclass(frozen=True, eq=False)
class Batch:
    """Sizes of the advantages (N,), 0 in silent groups, and costs (N,) in tokens."""

    sizes_N: Array
    costs_N: Array

    @property
    def live_N(self) -> Array:
        """Where there is an advantage."""
        return self.sizes_N > 0

    @property
    def uniform(self) -> float:
        """J(uniform)/J(p*): what drawing every rollout alike costs."""
        return float(product(self.sizes_N, self.costs_N, np.full(len(self.sizes_N), 1 / len(self.sizes_N))))


def draw_batch(n_groups: int, group_size: int, seed: int) -> Batch:
    """A batch of groups with rewards in {0, 1}. Its make-up is OUR ASSUMPTION.

    A group's success probability is from Beta(½, ½), so that many groups are all right or all wrong; |A| is
    |r − mean|/std within the group. Costs are a prompt of 20 tokens and a log-normal response, median 40, log-SD ½.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3,)))
    right_n_G = rng.random((n_groups, group_size)) < rng.beta(0.5, 0.5, (n_groups, 1))
    mean_n_1 = right_n_G.mean(axis=1, keepdims=True)
    deviation_n_1 = np.sqrt(mean_n_1 * (1 - mean_n_1))
    sizes_n_G = np.abs(right_n_G - mean_n_1) / np.where(deviation_n_1 > 0, deviation_n_1, 1.0)
    if not sizes_n_G.any():
        raise ValueError(f"no group of {n_groups} has both right and wrong answers: draw more groups")
    costs_N = 20.0 + np.exp(np.log(40.0) + 0.5 * rng.standard_normal(n_groups * group_size))
    return Batch(sizes_n_G.ravel(), costs_N)


def ablate(batch: Batch, beta: float, n_draws: int, seed: int) -> pd.DataFrame:
    """One row per noise level: what sampling by the noisy proxy costs and leaves out, means over draws of the noise.

    correlation, before the clip. uniform: J(uniform)/J(p*). taylor: the ratio that D.5 gives for the rollouts with an
    advantage. smoothed, smoothed_low, smoothed_high: J(p^β)/J(p*), p^β = (1 − β) p + β/N, and its 95% interval.
    At β = 0: support, the ratio over the rollouts that can be drawn, its median, for its mean does not exist;
    unreachable, _low, _high: share of the rollouts with an advantage that cannot be drawn, and unreachable_predicted,
    mean Φ(−|A|/σ); missing: their share of Σ|A|; silent_cost: share of the cost that goes to rollouts without one.
    """
    if not 0 < beta <= 1:
        raise ValueError(f"beta is {beta}: needs 0 < beta <= 1, or some rollouts have no chance and J is infinite")
    rows = []
    for noise in NOISE_LEVELS:
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(4,)))  # the same ξ/σ at every level
        deviation = noise * batch.sizes_N.std()
        shifts_K_N = deviation * rng.standard_normal((n_draws, len(batch.sizes_N)))
        live = batch.sizes_N[batch.live_N]
        row = {"noise": noise, "correlation": float(correlation(noise)), "uniform": batch.uniform}
        row["taylor"] = 1.0 + float(taylor_excess(live, batch.costs_N[batch.live_N], deviation))
        row["unreachable_predicted"] = float(unreachable(live, deviation).mean())
        rows.append(row | _measure(batch, np.maximum(0.0, batch.sizes_N + shifts_K_N), beta))
    return pd.DataFrame(rows)


def break_even(table: pd.DataFrame) -> float:
    """The noise at which smoothed sampling costs what uniform sampling does, between the levels of `ablate`.

    Interpolated log to log; infinite if it is cheaper at every level, 0 if dearer at every level.
    """
    dearer = (table["smoothed"] > table["uniform"]).to_numpy()
    if dearer.all() or not dearer.any():
        return 0.0 if dearer.all() else np.inf
    right = int(dearer.argmax())
    pair = table.iloc[right - 1 : right + 1]
    return float(np.exp(np.interp(np.log(pair["uniform"].iloc[0]), np.log(pair["smoothed"]), np.log(pair["noise"]))))


def break_evens(batch: Batch, n_draws: int, seed: int) -> pd.DataFrame:
    """`break_even` for several β: beta, clean (J(p^β)/J(p*) without noise), noise, correlation at which it is even."""
    rows = []
    for beta in BETAS:
        p_N = (1 - beta) * sampling(batch.sizes_N, batch.costs_N) + beta / len(batch.sizes_N)
        even = break_even(ablate(batch, beta, n_draws, seed))
        row = {"beta": beta, "clean": float(product(batch.sizes_N, batch.costs_N, p_N)), "noise": even}
        rows.append(row | {"correlation": float(correlation(even)) if np.isfinite(even) else 0.0})
    return pd.DataFrame(rows)


def mean_and_interval(values_K: Array) -> tuple[float, float, float]:
    """Mean, and its 95% interval by the normal approximation."""
    mean, half = values_K.mean(), 1.96 * values_K.std(ddof=1) / np.sqrt(len(values_K))
    return float(mean), float(mean - half), float(mean + half)


def _measure(batch: Batch, proxy_K_N: Array, beta: float) -> dict[str, float]:
    sizes_K_N, costs_K_N = (np.broadcast_to(array_N, proxy_K_N.shape) for array_N in (batch.sizes_N, batch.costs_N))
    p_K_N = sampling(proxy_K_N, costs_K_N)
    smoothed_K = product(sizes_K_N, costs_K_N, (1 - beta) * p_K_N + beta / len(batch.sizes_N))
    reached_K_N = np.where(p_K_N > 0, sizes_K_N, 0.0)
    # `product` over the support alone divides by the least of the support; rescaled to the least of the batch.
    least_K = (reached_K_N * np.sqrt(costs_K_N)).sum(axis=1) / (batch.sizes_N @ np.sqrt(batch.costs_N))
    spent_K_N = p_K_N * costs_K_N
    row = {
        "support": float(np.median(product(reached_K_N, costs_K_N, p_K_N) * least_K**2)),
        "missing": float(1 - reached_K_N.sum(axis=1).mean() / batch.sizes_N.sum()),
        "silent_cost": float((spent_K_N[:, ~batch.live_N].sum(axis=1) / spent_K_N.sum(axis=1)).mean()),
    }
    for name, values_K in (("smoothed", smoothed_K), ("unreachable", (p_K_N[:, batch.live_N] == 0).mean(axis=1))):
        row[name], row[f"{name}_low"], row[f"{name}_high"] = mean_and_interval(values_K)
    return row
