"""Arms against the baseline on each mix, after the same number of steps and for the same FLOPs; are rankings alike?"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from repro.experiments.mixes.made import WHERE
from repro.settings import Statistics
from repro.stats.answers import told
from repro.stats.nested import nested
from repro.stats.outcomes import for_the_same_flops, paired

MEASURES = {"steps": "after the same number of steps", "flops": "for the same FLOPs"}


def outcomes(curves: pd.DataFrame) -> pd.DataFrame:
    """A row per run: mix, policy, arm, seed and its accuracy by each of MEASURES. The same FLOPs: what the most
    economical run of the mix and base policy spends in all, linear between evaluations."""
    last = curves.sort_values("step").groupby(["run", *WHERE, "arm", "seed"], sort=False).last().reset_index()
    spent = for_the_same_flops(curves, WHERE)
    return last[["run", *WHERE, "arm", "seed"]].assign(steps=last["accuracy"], flops=last["run"].map(spent))


def differences(table: pd.DataFrame, arms: Sequence[str], baseline: str, statistics: Statistics) -> pd.DataFrame:
    """A row per measure, mix and arm: measure, mix, arm, accuracy, difference, difference_low, difference_high,
    adjusted, answer, by_policy.

    `table`: of `outcomes`. The difference from the baseline is paired by base policy and seed; variances are drawn
    together over all arms and mixes (repro.stats.nested). `adjusted`: p of no difference at a false discovery rate over
    all rows of a measure; answer: higher, lower or open.
    """
    parts = []
    for measure in MEASURES:
        mixes = list(dict.fromkeys(table["mix"]))
        own = {mix: table[table["mix"] == mix] for mix in mixes}
        fit = nested(np.concatenate([paired(own[mix], measure, arms, baseline) for mix in mixes]))
        rows = pd.DataFrame([(mix, arm) for mix in mixes for arm in arms], columns=["mix", "arm"])
        mean = table.groupby(["mix", "arm"])[measure].mean()
        rows["accuracy"] = mean.reindex(pd.MultiIndex.from_frame(rows)).to_numpy()
        parts.append(rows.join(told(fit, statistics.confidence)).assign(measure=measure))
    return pd.concat(parts, ignore_index=True)


def agreement(table: pd.DataFrame) -> pd.DataFrame:
    """A row per measure and pair of mixes: measure, mix, other, tau, least, greatest. Kendall's τ between the rankings
    of arms by mean accuracy; least and greatest when a seed of every run is left out. A pair of a mix with itself:
    between two halves of its base policies, what a repetition could reach."""
    rows = []
    for measure in MEASURES:
        for mix, other in combinations(dict.fromkeys(table["mix"]), 2):
            parts = (table[table["mix"] == mix], table[table["mix"] == other])
            rows.append((measure, mix, other, *_taus(*parts, measure)))
        for mix, own in table.groupby("mix", sort=False):
            policies = sorted(own["policy"].unique())
            if len(policies) > 1:
                first = own["policy"].isin(policies[: len(policies) // 2])
                rows.append((measure, mix, mix, *_taus(own[first], own[~first], measure)))
    return pd.DataFrame(rows, columns=["measure", "mix", "other", "tau", "least", "greatest"])


def _taus(one: pd.DataFrame, two: pd.DataFrame, measure: str) -> tuple[float, float, float]:
    tau = _tau(one, two, measure)
    seeds = sorted(set(one["seed"]) & set(two["seed"]))
    without = [_tau(one[one["seed"] != seed], two[two["seed"] != seed], measure) for seed in seeds if len(seeds) > 1]
    return tau, min(without, default=tau), max(without, default=tau)


def _tau(one: pd.DataFrame, two: pd.DataFrame, measure: str) -> float:
    means = [part.groupby("arm")[measure].mean() for part in (one, two)]
    return float(kendalltau(means[0], means[1].reindex(means[0].index)).statistic)
