"""The exploratory arms less the baseline on two base policies: raw, and partially pooled by family."""

from collections.abc import Mapping, Sequence
from itertools import combinations, permutations

import numpy as np
import pandas as pd

from repro.settings import Statistics
from repro.stats import panels
from repro.stats.answers import told
from repro.stats.nested import nested
from repro.stats.outcomes import paired
from repro.stats.panels import NoRuns
from repro.stats.partial import partially_pooled

PANELS = ("steps", "others")  # on base policy a, and on b
MEASURES = {"steps": "after as many steps", "flops": "for the same FLOPs"}


def load(baseline: str) -> pd.DataFrame:
    """A row per run: policy, arm, seed and its accuracy by each of MEASURES, of the arms that all of PANELS have, on
    seeds that all of these arms have. NoRuns where a panel has fewer than two such seeds, or lacks the baseline.

    steps    when the run ends, after as many steps as any
    flops    less the baseline's of that base policy and seed, when both have spent what the cheaper of the two spends
             in all, linear between evaluations; 0 for the baseline
    """
    runs = pd.concat([panels.made([panel], ["policy", "arm", "seed"]) for panel in PANELS], ignore_index=True)
    shared = set.intersection(*(set(own["arm"]) for _, own in runs.groupby("panel")))
    runs = runs[runs["arm"].isin(shared)]
    runs = runs[runs.groupby(["panel", "seed"])["arm"].transform("nunique") == len(shared)]
    for panel in PANELS:
        if baseline not in shared or runs.loc[runs["panel"] == panel, "seed"].nunique() < 2:
            raise NoRuns(f"panel {panel} has not two seeds of every arm and {baseline}: `make runs PANEL={panel}`")
    curves = pd.concat([panels.load("curves", panel) for panel in PANELS], ignore_index=True)
    curves = curves[curves["run"].isin(runs["run"])].sort_values(["run", "step"], kind="stable")
    of_run = {run: own[["flops", "accuracy"]].to_numpy().T for run, own in curves.groupby("run")}
    first = runs[runs["arm"] == baseline].set_index(["policy", "seed"])["run"]
    table = runs[["run", "policy", "arm", "seed"]].reset_index(drop=True)
    less = [_less(of_run[row.run], of_run[first[row.policy, row.seed]]) for row in table.itertuples()]
    return table.assign(steps=[of_run[run][1, -1] for run in table["run"]], flops=less)


def _less(curve: np.ndarray, other: np.ndarray) -> float:
    """Accuracy of one curve, rows FLOPs and accuracy, less that of the other where the shorter ends."""
    spent = min(curve[0, -1], other[0, -1])
    return float(np.interp(spent, *curve) - np.interp(spent, *other))


def differences(
    table: pd.DataFrame, families: Mapping[str, str], baseline: str, statistics: Statistics
) -> pd.DataFrame:
    """A row per measure and arm of `families`, {arm: family}:

    difference, …, answer    arm less baseline, raw: the columns of `repro.stats.answers.told`
    pooled, _low, _high      the difference partially pooled with those of its family, and its interval
    weight                   how much of `pooled` is the arm's own difference
    """
    parts = []
    for measure in MEASURES:
        d_A_P_S = paired(table, measure, list(families), baseline)
        pooled = partially_pooled(d_A_P_S, list(families.values()))
        low, high = pooled.interval(statistics.confidence)
        known = {"measure": measure, "arm": list(families), "family": list(families.values())}
        drawn = {"pooled": pooled.estimate_A, "pooled_low": low, "pooled_high": high, "weight": pooled.weight_A}
        parts.append(pd.DataFrame(known).join(told(nested(d_A_P_S), statistics.confidence)).assign(**drawn))
    return pd.concat(parts, ignore_index=True)


def by_family(table: pd.DataFrame, families: Mapping[str, str], baseline: str, statistics: Statistics) -> pd.DataFrame:
    """A row per measure and family: mean, mean_low, mean_high of its arms' differences; spread, the standard deviation
    of arms within families, one for all."""
    parts = []
    for measure in MEASURES:
        pooled = partially_pooled(paired(table, measure, list(families), baseline), list(families.values()))
        means = pooled.means(statistics.confidence).reset_index()
        parts.append(means.assign(measure=measure, spread=pooled.spread))
    return pd.concat(parts, ignore_index=True)


def foretold(table: pd.DataFrame, families: Mapping[str, str], baseline: str) -> pd.DataFrame:
    """A row per measure and number of seeds: how well the arms' differences with as many seeds on one base policy
    foretell those with all seeds on another; over both directions and every choice of seeds:

    raw, pooled, family, nothing   root mean square error of the raw difference, the partially pooled one, the family's
                                   mean, and of foretelling no difference for all
    correlation                    mean rank correlation of the raw differences
    """
    rows = []
    for measure in MEASURES:
        d_A_P_S = paired(table, measure, list(families), baseline)
        _, policies, seeds = d_A_P_S.shape
        for count in range(2, seeds + 1):
            found = [
                _missed(d_A_P_S[:, [one]][:, :, list(chosen)], d_A_P_S[:, other].mean(1), families)
                for one, other in permutations(range(policies), 2)
                for chosen in combinations(range(seeds), count)
            ]
            mean = pd.DataFrame(found).mean()
            errors = {name: float(np.sqrt(mean[name])) for name in ("raw", "pooled", "family", "nothing")}
            rows.append({"measure": measure, "seeds": count, **errors, "correlation": float(mean["correlation"])})
    return pd.DataFrame(rows)


def _missed(d_A_P_S: np.ndarray, there_A: np.ndarray, families: Mapping[str, str]) -> dict[str, float]:
    """Mean square errors of what some seeds of one base policy say of another, `there_A`; and the rank correlation."""
    pooled = partially_pooled(d_A_P_S, list(families.values()))
    raw_A = d_A_P_S.mean((1, 2))
    means_A = pd.Series(pooled.mean_G, pooled.families).loc[list(families.values())].to_numpy()
    said = {"raw": raw_A, "pooled": pooled.estimate_A, "family": means_A, "nothing": 0.0}
    errors = {name: float(np.mean((there_A - of) ** 2)) for name, of in said.items()}
    return {**errors, "correlation": float(pd.Series(raw_A).corr(pd.Series(there_A), "spearman"))}


def families_of(arms: Sequence[str], groups: Mapping[str, str], baseline: str) -> dict[str, str]:
    """{arm: its group} of `arms` but the baseline, in the order of `groups`, {arm: group}; those that it lacks last."""
    known = [arm for arm in groups if arm in set(arms)]
    ordered = [*known, *sorted(set(arms) - set(known))]
    return {arm: groups.get(arm, "Not in params.yaml") for arm in ordered if arm != baseline}
