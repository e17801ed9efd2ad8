"""Runs four times as long: where their accuracy would end, and how fast it gets there, by fitted curves."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from repro.settings import Statistics
from repro.stats import atlas
from repro.stats.atlas import NoRuns
from repro.stats.multiplicity import holm
from repro.stats.nested import Nested, nested
from repro.stats.outcomes import at_shares
from repro.stats.saturation import Curves, together

PANEL = "longer"
LOGS = ("half",)  # measures whose differences are logarithms of ratios
MEASURES = {
    "steps": "accuracy after as many steps",
    "flops": "accuracy for the same FLOPs",
    "asymptote": "asymptote",
    "half": "half cost, over the baseline's",
}


def load() -> pd.DataFrame:
    """The panel's curves with policy, arm and seed, GFLOP in place of FLOPs; of base policies on which every arm is
    made. NoRuns where there is none."""
    runs = atlas.load("runs", PANEL, columns=["policy", "arm", "seed"])
    if runs.empty:
        raise NoRuns(f"atlas/data has no run of panel {PANEL}: `make atlas PANEL={PANEL}`")
    runs = atlas.whole(runs, ["policy"])[["run", "policy", "arm", "seed"]]
    curves = runs.merge(atlas.load("curves", PANEL), on="run").sort_values(["run", "step"], kind="stable")
    return curves.assign(gflop=curves["flops"] / 1e9)


def fitted(curves: pd.DataFrame, arms: Sequence[str]) -> Curves:
    """A curve for each arm from the evaluations of one base policy, over GFLOP (repro.stats.saturation.together)."""
    start = curves.loc[curves["step"] == 0, "accuracy"].mean()
    later = curves[(curves["step"] > 0) & curves["arm"].isin(list(arms))]
    arm_N = pd.Categorical(later["arm"], arms).codes
    return together(later["gflop"], later["accuracy"], arm_N, start, later["samples"])


def measured(curves: pd.DataFrame, arms: Sequence[str]) -> pd.DataFrame:
    """A row per run: policy, arm, seed and each of MEASURES.

    steps      accuracy after the last step
    flops      accuracy when the most economical run of the base policy has ended, linear between evaluations
    asymptote, half  of the arm's curve on the base policy, as pseudo-values of a jackknife over seeds, S θ − (S−1) θ
               without the seed, whose mean over seeds is nearly θ and whose scatter is that of θ; half is a logarithm
    """
    last = curves.groupby(["policy", "arm", "seed", "run"], sort=False).last().reset_index()
    least = last.groupby("policy")["gflop"].min()
    at_least = at_shares(curves.assign(share=curves["gflop"] / curves["policy"].map(least)), [1.0])[1.0]
    rows = last[["policy", "arm", "seed"]].assign(steps=last["accuracy"], flops=last["run"].map(at_least))
    pseudo = [_pseudo(own, arms).assign(policy=policy) for policy, own in curves.groupby("policy", sort=False)]
    return rows.merge(pd.concat(pseudo, ignore_index=True), on=["policy", "arm", "seed"])


def _pseudo(curves: pd.DataFrame, arms: Sequence[str]) -> pd.DataFrame:
    seeds = sorted(curves["seed"].unique())
    whole_2_A = _parameters(fitted(curves, arms))
    rows = []
    for seed in seeds:
        without_2_A = _parameters(fitted(curves[curves["seed"] != seed], arms))
        values_2_A = len(seeds) * whole_2_A - (len(seeds) - 1) * without_2_A
        rows.append(pd.DataFrame({"arm": list(arms), "seed": seed, "asymptote": values_2_A[0], "half": values_2_A[1]}))
    return pd.concat(rows, ignore_index=True)


def _parameters(curves: Curves) -> np.ndarray:
    return np.array([curves.asymptote_A, np.log(curves.half_A)])


def differences(table: pd.DataFrame, arms: Sequence[str], baseline: str, statistics: Statistics) -> pd.DataFrame:
    """A row per arm and measure: arm, measure, value, value_low, value_high, adjusted, answer, by_policy.

    value: arm less baseline over base policies and seeds (repro.stats.nested), for `half` as a ratio. adjusted: p of no
    difference, corrected by Holm over the arms of a measure; answer: higher, lower or open.
    """
    parts = []
    for measure in MEASURES:
        fit = nested(_paired(table, measure, arms, baseline))
        ends = np.array([fit.estimate_A, *fit.interval(statistics.confidence)])
        each_A_P = fit.own_A_P
        if measure in LOGS:
            ends, each_A_P = np.exp(ends), np.exp(each_A_P)
        parts.append(
            pd.DataFrame(
                {
                    "arm": list(arms),
                    "measure": measure,
                    **dict(zip(("value", "value_low", "value_high"), ends, strict=True)),
                    "adjusted": holm(fit.p_values()),
                    "answer": _answers(fit, statistics.confidence),
                    "by_policy": list(map(list, each_A_P)),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _paired(table: pd.DataFrame, measure: str, arms: Sequence[str], baseline: str) -> np.ndarray:
    wide = table.pivot(index=["policy", "seed"], columns="arm", values=measure)
    policies = wide.index.unique("policy")
    values_P_S_A = np.array([wide.loc[policy, [baseline, *arms]].to_numpy() for policy in policies])
    return np.moveaxis(values_P_S_A[:, :, 1:] - values_P_S_A[:, :, :1], -1, 0)


def _answers(fit: Nested, confidence: float) -> np.ndarray:
    sign = np.where(fit.estimate_A > 0, "higher", "lower")
    return np.where(holm(fit.p_values()) < 1 - confidence, sign, "open")
