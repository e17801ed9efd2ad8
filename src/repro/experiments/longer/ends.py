"""Runs four times as long: where their accuracy would end, and how fast it gets there, by fitted curves."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from repro.settings import Statistics
from repro.stats import panels
from repro.stats.multiplicity import holm
from repro.stats.nested import nested
from repro.stats.outcomes import at_shares, compare, for_the_same_flops, paired
from repro.stats.saturation import Curves, scaled, together

PANEL = "longer"
OF_ITS_CURVE = ("asymptote", "half")
LOGS = ("factor", "half")  # measures whose differences are logarithms of ratios
MEASURES = {
    "steps": "accuracy after as many steps",
    "flops": "accuracy for the same FLOPs",
    "factor": "FLOPs to be as accurate, over the baseline's",
    "asymptote": "asymptote",
    "half": "half cost, over the baseline's",
}


def load() -> pd.DataFrame:
    """The panel's curves with policy, arm and seed, GFLOP in place of FLOPs; of base policies on which every arm is
    made. NoRuns where there is none."""
    runs = panels.whole(panels.made([PANEL], ["policy", "arm", "seed"]), ["policy"])[["run", "policy", "arm", "seed"]]
    curves = runs.merge(panels.load("curves", PANEL), on="run").sort_values(["run", "step"], kind="stable")
    return curves.assign(gflop=curves["flops"] / 1e9)


def fitted(curves: pd.DataFrame, arms: Sequence[str]) -> Curves:
    """A curve for each arm from the evaluations of one base policy, over GFLOP (repro.stats.saturation.together)."""
    return together(*_evaluations(curves, arms))


def _evaluations(curves: pd.DataFrame, arms: Sequence[str]) -> tuple:
    """What a fit of one base policy takes: cost_N, accuracy_N, arm_N, start, weight_N."""
    start = curves.loc[curves["step"] == 0, "accuracy"].mean()
    later = curves[(curves["step"] > 0) & curves["arm"].isin(list(arms))]
    return later["gflop"], later["accuracy"], pd.Categorical(later["arm"], arms).codes, start, later["samples"]


def measured(curves: pd.DataFrame, arms: Sequence[str]) -> pd.DataFrame:
    """A row per run: policy, arm, seed and each of MEASURES.

    steps      accuracy after the last step
    flops      accuracy when the most economical run of the base policy has ended, linear between evaluations
    factor     what the arm spends over what the first of `arms` does to be as accurate, if one factor holds for the
               whole curve (repro.stats.saturation.scaled); a logarithm
    asymptote, half  of the arm's own curve (`fitted`); half is a logarithm

    The last three are of the base policy, as pseudo-values of a jackknife over seeds, S θ − (S−1) θ without the seed,
    whose mean over seeds is nearly θ and whose scatter is that of θ.
    """
    last = curves.groupby(["policy", "arm", "seed", "run"], sort=False).last().reset_index()
    spent = for_the_same_flops(curves, ["policy"])
    rows = last[["policy", "arm", "seed"]].assign(steps=last["accuracy"], flops=last["run"].map(spent))
    pseudo = [_pseudo(own, arms).assign(policy=policy) for policy, own in curves.groupby("policy", sort=False)]
    return rows.merge(pd.concat(pseudo, ignore_index=True), on=["policy", "arm", "seed"])


def _pseudo(curves: pd.DataFrame, arms: Sequence[str]) -> pd.DataFrame:
    seeds = sorted(curves["seed"].unique())
    whole = _parameters(curves, arms)
    rows = []
    for seed in seeds:
        values = len(seeds) * whole - (len(seeds) - 1) * _parameters(curves[curves["seed"] != seed], arms)
        rows.append(values.assign(seed=seed))
    return pd.concat(rows).rename_axis("arm").reset_index()


def untold(curves: pd.DataFrame, fits: Mapping[str, Curves], arms: Sequence[str]) -> list[str]:
    """Those of `arms` whose own curve on some base policy has not made half of its rise when its runs end, so that its
    asymptote is a guess. `fits`: {base policy: of `fitted`, for the same arms}."""
    found = set()
    for policy, own in curves.groupby("policy"):
        spent = own.groupby("arm")["gflop"].max()
        half = pd.Series(fits[policy].half_A, list(arms))
        found |= set(half.index[half > spent.reindex(arms)])
    return [arm for arm in arms if arm in found]


def _parameters(curves: pd.DataFrame, arms: Sequence[str]) -> pd.DataFrame:
    own = fitted(curves, arms)
    values = {"factor": scaled(*_evaluations(curves, arms)), "asymptote": own.asymptote_A, "half": own.half_A}
    return pd.DataFrame(values, index=list(arms)).apply(
        lambda column: np.log(column) if column.name in LOGS else column
    )


def differences(
    table: pd.DataFrame, arms: Sequence[str], baseline: str, statistics: Statistics, without: Sequence[str] = ()
) -> pd.DataFrame:
    """A row per arm and measure: arm, measure, value, value_low, value_high, adjusted, answer, by_policy.

    value: arm less baseline over base policies and seeds (repro.stats.nested), for LOGS as a ratio. adjusted: p of no
    difference, corrected by Holm over the arms of a measure; answer: higher, lower or open. `without`: arms that have
    no row for the measures of their own curve.
    """
    parts, every = [], arms
    for measure in MEASURES:
        arms = [arm for arm in every if measure not in OF_ITS_CURVE or arm not in without]
        fit = compare(table, measure, arms, baseline)
        adjusted = holm(fit.p_values())
        sign = np.where(fit.estimate_A > 0, "higher", "lower")
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
                    "adjusted": adjusted,
                    "answer": np.where(adjusted < 1 - statistics.confidence, sign, "open"),
                    "by_policy": list(map(list, each_A_P)),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def on_the_way(
    curves: pd.DataFrame, arms: Sequence[str], baseline: str, shares: Sequence[float], statistics: Statistics
) -> pd.DataFrame:
    """A row per arm and share of the budget: arm; share; difference from `baseline` when that was spent; since, how far
    it has changed since the first share, 0 there; each with _low and _high. Variances are drawn together over arms."""
    accuracy = at_shares(curves, shares)
    runs = curves.drop_duplicates("run")[["policy", "arm", "seed", "run"]].join(accuracy, on="run")
    first = paired(runs, shares[0], arms, baseline)
    rows = []
    for share in shares:
        d_A_P_S = paired(runs, share, arms, baseline)
        columns = {"arm": list(arms), "share": share}
        for name, values in (("difference", d_A_P_S), ("since", d_A_P_S - first)):
            fit = nested(values)
            ends = (fit.estimate_A, *fit.interval(statistics.confidence))
            columns |= dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
        rows.append(pd.DataFrame(columns))
    return pd.concat(rows, ignore_index=True)
