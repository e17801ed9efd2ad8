"""What a run of the atlas reached: at its end, at a share of the budget, on the way."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from repro.stats.nested import Nested, nested

AREA = np.arange(1, 11) / 10  # shares of the budget at which the area under a curve is read off


def outcomes(curves: pd.DataFrame) -> pd.DataFrame:
    """A row per run (the index): from the rows of its evaluations,

    final       accuracy at its end
    at_1, at_1.5  accuracy when 1 or 1.5 times the base policy's budget was spent
    area        mean accuracy at ten tenths of the budget
    flops, trained_tokens, paper_tokens
                what it had spent at its end; tokens as computed, and as the papers count
    diverged    whether an update was not finite

    Accuracy is linear between a run's evaluations. A run that ends short of a share keeps its last accuracy, whether it
    is out of steps or diverged.
    """
    rows = {}
    for run, own in curves.sort_values(["run", "share"], kind="stable").groupby("run", sort=False):
        at = np.interp([1.0, 1.5, *AREA], own["share"], own["accuracy"])
        last = own.iloc[-1]
        spent = {name: float(last[name]) for name in ("flops", "trained_tokens", "paper_tokens")}
        ends = {"final": float(last["accuracy"]), "at_1": at[0], "at_1.5": at[1], "area": at[2:].mean()}
        rows[run] = {**ends, **spent, "diverged": bool(own["diverged"].any())}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("run")


def at_shares(curves: pd.DataFrame, shares: Sequence[float], measure: str = "accuracy") -> pd.DataFrame:
    """Runs × shares: `measure` when each share of the budget was spent, linear between evaluations and constant after
    the last."""
    ordered = curves.sort_values(["run", "share"], kind="stable").groupby("run", sort=False)
    rows = {run: np.interp(shares, own["share"], own[measure]) for run, own in ordered}
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(shares)).rename_axis("run")


def paired(table: pd.DataFrame, measure: str, arms: Sequence[str], baseline: str) -> np.ndarray:
    """differences_A_P_S of `measure`, arm less baseline, on the policies and seeds that all of them have.

    `table`: a row per run with policy, arm, seed and the measure. ValueError names an arm without runs, or says that
    the arms share no seed.
    """
    wide = table.pivot_table(index=["policy", "seed"], columns="arm", values=measure)
    absent = [arm for arm in (baseline, *arms) if arm not in wide]
    if absent:
        raise ValueError(f"there are no runs of {absent[0]!r} here")
    wide = wide[list(dict.fromkeys([baseline, *arms]))].dropna()
    if wide.empty:
        raise ValueError(f"{', '.join(arms)} and {baseline} have no base policy and seed in common")
    counts = wide.groupby("policy").size()
    kept = wide.groupby("policy").head(counts.min())  # as many seeds of each base policy
    values_P_S_A = kept.to_numpy().reshape(len(counts), counts.min(), -1)
    base_P_S = values_P_S_A[:, :, 0]
    columns = [kept.columns.get_loc(arm) for arm in arms]
    return np.moveaxis(values_P_S_A[:, :, columns], -1, 0) - base_P_S


def compare(table: pd.DataFrame, measure: str, arms: Sequence[str], baseline: str) -> Nested:
    """The arms' differences from the baseline over base policies and seeds: see repro.stats.nested."""
    return nested(paired(table, measure, arms, baseline))
