"""Do estimates hold elsewhere? One part of the runs predicts the rest."""

from collections.abc import Sequence
from itertools import combinations, permutations

import numpy as np
import pandas as pd

from repro.stats.intervals import predicted
from repro.stats.nested import nested
from repro.stats.outcomes import compare, paired
from repro.stats.partial import partially_pooled

ONE = ("one policy, predicted", "one policy, mean")


def calibration(differences_A_P_S: np.ndarray, confidence: float) -> pd.DataFrame:
    """A row per kind of interval (the index): cases, arms times cuts; `contained`, the share of them in which the
    interval from one part contains the mean difference of the other; and how sharp it is, since a wide interval
    contains much: `half`, half its width, median over cases, and `signed`, the share that excludes 0.

    other seeds          prediction, from more than half of a base policy's seeds: its other seeds; of three or more
    other policy         prediction, from all base policies but one: the one left out
    other half           prediction, from half of the base policies: the others' mean
    one policy, predicted   prediction, from one base policy's seeds as if base policies did not differ: another one
    one policy, mean        confidence interval, from one base policy's seeds: another one

    The last two are what a study on one base policy says about another. ValueError with fewer than four base policies.
    """
    d_A_P_S = np.asarray(differences_A_P_S, float)
    _, policies, seeds = d_A_P_S.shape
    if policies < 4:
        raise ValueError(f"calibration: runs on {policies} base policies; it takes four, for halves of two")
    found: dict[str, list[np.ndarray]] = {name: [] for name in ("other seeds", "other policy", "other half", *ONE)}
    for policy in range(policies):
        for part in map(list, combinations(range(seeds), seeds // 2 + 1) if seeds > 2 else ()):
            rest = [seed for seed in range(seeds) if seed not in part]
            fit = nested(d_A_P_S[:, [policy]][:, :, part])
            found["other seeds"].append(_case(fit.prediction(confidence, len(rest)), d_A_P_S[:, policy, rest].mean(1)))
        fit = nested(np.delete(d_A_P_S, policy, axis=1))
        found["other policy"].append(_case(fit.prediction(confidence, seeds), d_A_P_S[:, policy].mean(1)))
    for half in map(list, combinations(range(policies), policies // 2)):
        rest = [policy for policy in range(policies) if policy not in half]
        ends = nested(d_A_P_S[:, half]).prediction(confidence, seeds, policies=len(rest))
        found["other half"].append(_case(ends, d_A_P_S[:, rest].mean((1, 2))))
    for one, other in permutations(range(policies), 2):
        fit, mean_A = nested(d_A_P_S[:, [one]]), d_A_P_S[:, other].mean(1)
        for name, ends in zip(ONE, (fit.prediction(confidence, seeds), fit.interval(confidence)), strict=True):
            found[name].append(_case(ends, mean_A))
    rows = {}
    for name, cases in found.items():
        if not cases:
            continue
        inside, half, signed = np.concatenate(cases, axis=1)
        rows[name] = {"cases": len(half), "contained": inside.mean(), "half": np.median(half), "signed": signed.mean()}
    return pd.DataFrame.from_dict(rows, orient="index")


def repeated(first: pd.DataFrame, again: pd.DataFrame, measure: str, confidence: float) -> pd.DataFrame:
    """A row per base policy (the index), of runs of one arm: mean and scatter (standard deviation over seeds) of
    `measure` in `first`; low and high, between which it predicts the mean of as many seeds as `again` has; that mean.
    """
    rows = {}
    for policy, own in first.groupby("policy"):
        values_S, others_S = own[measure].to_numpy(), again.loc[again["policy"] == policy, measure].to_numpy()
        mean, low, high = predicted(values_S, len(others_S), confidence)
        scatter = values_S.std(ddof=1)
        rows[policy] = {"mean": mean, "scatter": scatter, "low": low, "high": high, "again": others_S.mean()}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("policy")


def foretold(
    first: pd.DataFrame, later: pd.DataFrame, arms: Sequence[str], baseline: str, measure: str, confidence: float
) -> pd.DataFrame:
    """A row per arm and base policy that only `later` has: low and high, between which the runs `first` predict the
    arm's mean difference from the baseline over as many seeds of another base policy as `later` has; that mean; and
    whether it is `inside`."""
    new = later[~later["policy"].isin(first["policy"])]
    d_A_P_S = paired(new, measure, arms, baseline)
    low_A, high_A = compare(first, measure, arms, baseline).prediction(confidence, d_A_P_S.shape[2])
    named = pd.MultiIndex.from_product([arms, sorted(new["policy"].unique())], names=["arm", "policy"])
    count = d_A_P_S.shape[1]
    table = {"low": low_A.repeat(count), "high": high_A.repeat(count), "mean": d_A_P_S.mean(2).ravel()}
    rows = pd.DataFrame(table, index=named)
    return rows.assign(inside=rows["mean"].between(rows["low"], rows["high"]))


def one_policy_foretells(differences_A_P_S: np.ndarray, family_A: Sequence[str]) -> pd.DataFrame:
    """A row per number of seeds: how well the arms' differences with as many seeds on one base policy predict those
    with all seeds on another; over both directions and every choice of seeds:

    raw, pooled, family, nothing   root mean square error of the raw difference, the partially pooled one, the family's
                                   mean, and of predicting no difference for all
    correlation                    mean rank correlation of the raw differences
    """
    d_A_P_S = np.asarray(differences_A_P_S, float)
    _, policies, seeds = d_A_P_S.shape
    rows = []
    for count in range(2, seeds + 1):
        found = [
            _missed(d_A_P_S[:, [one]][:, :, list(chosen)], d_A_P_S[:, other].mean(1), family_A)
            for one, other in permutations(range(policies), 2)
            for chosen in combinations(range(seeds), count)
        ]
        mean = pd.DataFrame(found).mean()
        errors = {name: float(np.sqrt(mean[name])) for name in ("raw", "pooled", "family", "nothing")}
        rows.append({"seeds": count, **errors, "correlation": float(mean["correlation"])})
    return pd.DataFrame(rows)


def _missed(d_A_P_S: np.ndarray, there_A: np.ndarray, family_A: Sequence[str]) -> dict[str, float]:
    """Mean square errors of what some seeds of one base policy say of another, `there_A`; and the rank correlation."""
    pooled = partially_pooled(d_A_P_S, family_A)
    raw_A = d_A_P_S.mean((1, 2))
    means_A = pd.Series(pooled.mean_G, pooled.families).loc[list(family_A)].to_numpy()
    said = {"raw": raw_A, "pooled": pooled.estimate_A, "family": means_A, "nothing": 0.0}
    errors = {name: float(np.mean((there_A - of) ** 2)) for name, of in said.items()}
    return {**errors, "correlation": float(pd.Series(raw_A).corr(pd.Series(there_A), "spearman"))}


def _case(ends: tuple[np.ndarray, np.ndarray], mean_A: np.ndarray) -> np.ndarray:
    """Of each interval whether it contains the mean, half its width, and whether it excludes 0."""
    low_A, high_A = ends
    inside_A = (low_A <= mean_A) & (mean_A <= high_A)
    return np.array([inside_A, (high_A - low_A) / 2, (low_A > 0) | (high_A < 0)], float)
