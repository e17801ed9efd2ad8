"""How much sGPO's plan depends on the profile's size K and on its temperature: what the paper leaves open.

A seed's first K samples make a plan, the other seeds' samples judge it (`describe.truth`), so that no sample counts in
both. A group of G is informative when its rewards differ; the truth's samples give the chance of that without bias, for
every subset of G of them is such a group.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from repro.experiments.profile.describe import Rule, classes, spread, truth
from repro.settings import Statistics
from repro.stats.pass_at_k import pass_at_k
from repro.theory.group_size import informative

SAMPLES = (2, 4, 8, 16, 32)  # the K that are tried, as far as the profiles reach
# Of the plan under the truth; the others compare a profile with the truth, or with another profile.
GAINS = ("informative", "informative_charged", "saving", "saving_charged")
AGAINST_TRUTH = ("rank_correlation", "wrong_class", "misfiled", "size_error", "size_changed")
AGAINST_PROFILE = ("shift", "moved", "rank_correlation", "class_changed", "size_changed", "size_error")


def by_samples(
    correct_S_Q_K: np.ndarray, seeds: Sequence[int], rule: Rule, *, price: float, rollouts: int
) -> pd.DataFrame:
    """One row per K of SAMPLES and seed: AGAINST_TRUTH and GAINS, and uniform_informative.

    rank_correlation     Spearman's, of p̂ with the truth
    wrong_class          share of queries filed in another class than the truth's; misfiled: of these, filed as trivial
                         or unsolvable, so that they are lost to training or seldom seen
    size_error           mean |difference| of the group sizes by p̂ and by the truth; size_changed: share that differs
    informative          expected informative groups per rollout of the plan; uniform_informative: of equal groups
    informative_charged  the same where `rollouts` of training pay the profile, a rollout of it `price` of training's
    saving, _charged     informative and informative_charged over uniform_informative
    """
    true_S_Q, true_samples = truth(correct_S_Q_K)
    rows = []
    for K in (K for K in SAMPLES if correct_S_Q_K.shape[2] >= K):
        for place, seed in enumerate(seeds):
            rate_Q, true_Q = correct_S_Q_K[place, :, :K].mean(1), true_S_Q[place] / true_samples
            charge = rollouts / (rollouts + price * K * len(rate_Q))
            rows.append(
                {"samples": K, "seed": seed}
                | _against_truth(rate_Q, true_Q, rule)
                | _gains(rate_Q, true_S_Q[place], true_samples, rule, charge)
            )
    return pd.DataFrame(rows)


def by_temperature(
    others: Mapping[float, np.ndarray],
    correct_S_Q_K: np.ndarray,
    seeds: Sequence[int],
    rule: Rule,
    *,
    price: float,
    rollouts: int,
) -> pd.DataFrame:
    """One row per temperature and seed: AGAINST_PROFILE and GAINS.

    `others`: {temperature: correct_S_Q_K}, each held to as many of the same seed's first samples at training's
    temperature, `correct_S_Q_K`. shift: the mean of p̂ less p̂ of those; moved: of its absolute value; class_changed and
    size_changed: shares of queries; size_error: the mean |change| of the group size. A fresh profile at training's
    temperature among `others` says what resampling alone moves. Gains are those of training at its own temperature by
    the plan of the other.
    """
    true_S_Q, true_samples = truth(correct_S_Q_K)
    rows = []
    for temperature, other_S_Q_K in others.items():
        K = other_S_Q_K.shape[2]
        for place, seed in enumerate(seeds):
            rate_Q, usual_Q = other_S_Q_K[place].mean(1), correct_S_Q_K[place, :, :K].mean(1)
            size_Q, usual_size_Q = rule.sizes(rate_Q), rule.sizes(usual_Q)
            charge = rollouts / (rollouts + price * K * len(rate_Q))
            rows.append(
                {
                    "temperature": temperature,
                    "seed": seed,
                    "samples": K,
                    "rate": rate_Q.mean(),
                    "shift": (rate_Q - usual_Q).mean(),
                    "moved": np.abs(rate_Q - usual_Q).mean(),
                    "rank_correlation": spearman(rate_Q, usual_Q),
                    "class_changed": (classes(rate_Q) != classes(usual_Q)).mean(),
                    "size_changed": (size_Q != usual_size_Q).mean(),
                    "size_error": np.abs(size_Q - usual_size_Q).mean(),
                }
                | _gains(rate_Q, true_S_Q[place], true_samples, rule, charge)
            )
    return pd.DataFrame(rows)


def beyond_noise(table: pd.DataFrame, usual: float, statistics: Statistics) -> pd.DataFrame:
    """`by_temperature`'s measures less those of a fresh profile at the `usual` temperature, paired by seed: one row per
    other temperature (index), each measure with _low and _high. Empty where `usual` was not measured."""
    measures = [*AGAINST_PROFILE, *GAINS]
    by_seed = table.set_index(["temperature", "seed"])[measures]
    temperatures = [t for t in table["temperature"].unique() if t != usual]
    if usual not in table["temperature"].unique():
        temperatures = []
    rows = {t: spread(by_seed.loc[t] - by_seed.loc[usual], statistics) for t in temperatures}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("temperature")


def summarise(table: pd.DataFrame, by: str, statistics: Statistics) -> pd.DataFrame:
    """One row per value of column `by` (index): every measure's mean over seeds, with _low and _high."""
    measures = [name for name in table.columns if name not in (by, "seed", "samples", "temperature")]
    rows = {value: spread(own[measures], statistics) for value, own in table.groupby(by)}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(by)


def informative_groups(successes_Q: np.ndarray, samples: int, size_Q: np.ndarray) -> np.ndarray:
    """The chance that a group of size_Q has both a success and a failure, from `samples` of each query without bias:
    the share of all subsets of that size that do. A group larger than `samples` takes the rate for p."""
    chance_Q = np.zeros(len(successes_Q))
    for size in np.unique(size_Q).tolist():
        own, count_Q = size_Q == size, successes_Q[size_Q == size]
        if size > samples:
            chance_Q[own] = informative(count_Q / samples, size)
            continue
        solved_Q, failed_Q = (pass_at_k(number_Q, samples, size) for number_Q in (count_Q, samples - count_Q))
        chance_Q[own] = solved_Q + failed_Q - 1
    return chance_Q


def spearman(x_Q: np.ndarray, y_Q: np.ndarray) -> float:
    """The correlation of ranks, ties at their mean; NaN where all of one are equal."""
    ranks = [rankdata(values_Q) for values_Q in (x_Q, y_Q)]
    if any(np.ptp(rank_Q) == 0 for rank_Q in ranks):
        return float("nan")
    return float(np.corrcoef(*ranks)[0, 1])


def _against_truth(rate_Q: np.ndarray, true_Q: np.ndarray, rule: Rule) -> dict[str, float]:
    wrong_Q = classes(rate_Q) != rule.true_classes(true_Q)
    error_Q = np.abs(rule.sizes(rate_Q) - rule.sizes(true_Q))
    return {
        "rank_correlation": spearman(rate_Q, true_Q),
        "wrong_class": float(wrong_Q.mean()),
        "misfiled": float((wrong_Q & (classes(rate_Q) != 1)).mean()),
        "size_error": float(error_Q.mean()),
        "size_changed": float((error_Q > 0).mean()),
    }


def _gains(rate_Q: np.ndarray, true_Q: np.ndarray, true_samples: int, rule: Rule, charge: float) -> dict[str, float]:
    """GAINS of the plan from rate_Q; NaN where it keeps no query."""
    size_Q, kept_Q = rule.sizes(rate_Q), rule.kept(rate_Q)
    used = float(kept_Q @ size_Q)
    found = float(kept_Q @ informative_groups(true_Q, true_samples, size_Q)) / used if used else float("nan")
    equal_Q = np.full(len(rate_Q), rule.uniform)
    uniform = float(informative_groups(true_Q, true_samples, equal_Q).mean() / rule.uniform)
    saving = found / uniform if uniform else float("nan")
    return {
        "informative": found,
        "informative_charged": found * charge,
        "uniform_informative": uniform,
        "saving": saving,
        "saving_charged": saving * charge,
    }
