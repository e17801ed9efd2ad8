"""How much sGPO's plan depends on the profile's size K, which the paper leaves open.

A seed's first K samples make a plan, the other seeds' samples judge it (`summary.truth`), so that no sample does both.
A group of G is informative when its rewards differ. The truth's samples give the probability of that without bias,
since every subset of G of them is such a group. Axes: S seeds, Q queries, K samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from repro.experiments.profile.summary import truth
from repro.methods.sgpo_rule import CLASSES, LEARNABLE, Rule, classes
from repro.stats.correlation import spearman
from repro.stats.pass_at_k import pass_at_k
from repro.theory.group_size import informative

SAMPLES = (2, 4, 8, 16, 32)  # the K that are compared, as far as the profiles have so many samples


@dataclass(frozen=True)
class Comparison:
    """A plan by `rule` against equal groups of `group`. The profile is charged to `rollouts` of training; one of its
    rollouts costs `price` of a training rollout."""

    rule: Rule
    group: int
    price: float
    rollouts: int

    def gains(self, rate_Q: np.ndarray, true_Q: np.ndarray, true_samples: int, samples: int) -> dict[str, float]:
        """Of the plan made from rate_Q, by `samples` of each query; NaN where it keeps no query.

        informative          expected informative groups per rollout of the plan
        informative_charged  the same with the profile's cost charged
        uniform_informative  of equal groups
        saving, _charged     informative and informative_charged over uniform_informative
        """
        charge = self.rollouts / (self.rollouts + self.price * samples * len(rate_Q))
        size_Q, kept_Q = self.rule.sizes(rate_Q, samples), self.rule.kept(rate_Q)
        used = float(kept_Q @ size_Q)
        plan = float(kept_Q @ informative_groups(true_Q, true_samples, size_Q)) / used if used else float("nan")
        equal_Q = np.full(len(rate_Q), self.group)
        uniform = float(informative_groups(true_Q, true_samples, equal_Q).mean() / self.group)
        saving = plan / uniform if uniform else float("nan")
        return {
            "informative": plan,
            "informative_charged": plan * charge,
            "uniform_informative": uniform,
            "saving": saving,
            "saving_charged": saving * charge,
        }


def by_samples(correct_S_Q_K: np.ndarray, seeds: Sequence[int], comparison: Comparison, margin: float) -> pd.DataFrame:
    """One row per K of SAMPLES and seed: `Comparison.gains`, and against the truth

    rank_correlation     Spearman's, of p̂ with the truth
    wrong_class          share of queries in another class than by the truth, with `margin`
    misfiled             share that are wrongly trivial or unsolvable, and so are filtered
    size_error           mean |difference| of the group sizes by p̂ and by the truth
    size_changed         share of queries whose group size differs
    """
    true_S_Q, true_samples = truth(correct_S_Q_K)
    rule, rows = comparison.rule, []
    for K in (K for K in SAMPLES if correct_S_Q_K.shape[2] >= K):
        for place, seed in enumerate(seeds):
            rate_Q, true_Q = correct_S_Q_K[place, :, :K].mean(1), true_S_Q[place] / true_samples
            wrong_Q = classes(rate_Q) != classes(true_Q, margin)
            error_Q = np.abs(rule.sizes(rate_Q, K) - rule.sizes(true_Q))
            against_truth = {
                "rank_correlation": spearman(rate_Q, true_Q),
                "wrong_class": float(wrong_Q.mean()),
                "misfiled": float((wrong_Q & (classes(rate_Q) != CLASSES.index(LEARNABLE))).mean()),
                "size_error": float(error_Q.mean()),
                "size_changed": float((error_Q > 0).mean()),
            }
            gains = comparison.gains(rate_Q, true_S_Q[place], true_samples, K)
            rows.append({"samples": K, "seed": seed} | against_truth | gains)
    return pd.DataFrame(rows)


def informative_groups(successes_Q: np.ndarray, samples: int, size_Q: np.ndarray) -> np.ndarray:
    """The probability that a group of size_Q has both a success and a failure, without bias from `samples` of each
    query: the share of all subsets of that size that do. A group larger than `samples` takes the success rate for p."""
    chance_Q = np.zeros(len(successes_Q))
    for size in np.unique(size_Q).tolist():
        of_size, count_Q = size_Q == size, successes_Q[size_Q == size]
        if size > samples:
            chance_Q[of_size] = informative(count_Q / samples, size)
            continue
        solved_Q, failed_Q = (pass_at_k(number_Q, samples, size) for number_Q in (count_Q, samples - count_Q))
        chance_Q[of_size] = solved_Q + failed_Q - 1
    return chance_Q
