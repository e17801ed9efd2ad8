"""What a run of a panel reached: at its end, at a share of the budget, on the way."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from repro.stats import panels
from repro.stats.nested import Nested, nested
from repro.stats.panels import RATE

AREA = np.arange(1, 11) / 10  # shares of the budget at which the area under a curve is read off

READ = {  # columns
    "runs": ("panel", "policy", "arm", "seed", "varied"),
    "curves": ("share", "accuracy", "flops", "trained_tokens", "paper_tokens", "diverged"),
}


def outcomes(curves: pd.DataFrame) -> pd.DataFrame:
    """A row per run (the index): from the rows of its evaluations,

    final       accuracy at its end
    at_1, at_1.5  accuracy when 1 or 1.5 times the base policy's budget was spent
    area        mean accuracy at ten tenths of the budget
    flops, trained_tokens, paper_tokens
                what it had spent at its end; tokens as computed, and as the papers count
    paper_tokens_at_1  the last of these when 1 budget was spent
    diverged    whether an update was not finite

    Accuracy is linear between a run's evaluations. A run that ends short of a share keeps its last accuracy, whether it
    is out of steps or diverged.
    """
    rows, accuracy, tokens = {}, at_shares(curves, [*AREA, 1.5]), at_shares(curves, [1.0], "paper_tokens")[1.0]
    for run, own in _in_order(curves):
        at, last = accuracy.loc[run].to_numpy(), own.iloc[-1]
        spent = {name: float(last[name]) for name in ("flops", "trained_tokens", "paper_tokens")}
        ends = {"final": float(last["accuracy"]), "at_1": at[-2], "at_1.5": at[-1], "area": at[:-1].mean()}
        spent["paper_tokens_at_1"] = float(tokens[run])
        rows[run] = {**ends, **spent, "diverged": bool(own["diverged"].any())}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("run")


def reached(names: Sequence[str], rate: float | None = None) -> pd.DataFrame:
    """A row per run of the panels `names`: panel, policy, arm, seed, its learning rate, and its `outcomes`; NoRuns
    where none has been made. `rate`: of runs that vary none; Unreadable names one where there is none."""
    runs = panels.made(names, READ["runs"])
    parts = [panels.load("curves", panel, columns=READ["curves"]) for panel in runs["panel"].unique()]
    whole = runs.merge(outcomes(pd.concat(parts, ignore_index=True)), left_on="run", right_index=True)
    return whole.assign(rate=panels.varied(whole, RATE, float, rate))


def at_shares(curves: pd.DataFrame, shares: Sequence[float], measure: str = "accuracy") -> pd.DataFrame:
    """Runs × shares: `measure` when each share of the budget was spent, linear between evaluations and constant after
    the last."""
    rows = {run: np.interp(shares, own["share"], own[measure]) for run, own in _in_order(curves)}
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(shares)).rename_axis("run")


def for_the_same_flops(curves: pd.DataFrame, where: Sequence[str]) -> pd.Series:
    """Accuracy of each run (the index) when the most economical run of its place, the columns `where`, has ended:
    linear between evaluations."""
    least = curves.groupby([*where, "run"])["flops"].max().groupby(list(where)).min().rename("least")
    return at_shares(curves.assign(share=curves["flops"] / curves.join(least, on=list(where))["least"]), [1.0])[1.0]


def _in_order(curves: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame]]:
    return curves.sort_values(["run", "share"], kind="stable").groupby("run", sort=False)


def paired(table: pd.DataFrame, measure: str, arms: Sequence[str], baseline: str, factor: str = "arm") -> np.ndarray:
    """differences_A_P_S of `measure`, arm less baseline, on the policies and seeds that all of them have.

    `table`: a row per run with policy, arm, seed and the measure; of several runs of an arm with one policy and seed,
    on several mixes, say, the mean counts. `factor`: the column whose levels `arms` and `baseline` are. ValueError
    names an arm without runs, or says that the arms share no seed.
    """
    wide = table.pivot_table(index=["policy", "seed"], columns=factor, values=measure)
    absent = [arm for arm in (baseline, *arms) if arm not in wide]
    if absent:
        raise ValueError(f"there are no runs of {absent[0]!r} here")
    wide = wide[list(dict.fromkeys([baseline, *arms]))].dropna()
    if wide.empty:
        raise ValueError(f"{', '.join(map(str, arms))} and {baseline} have no base policy and seed in common")
    counts = wide.groupby("policy").size()
    kept = wide.groupby("policy").head(counts.min())  # as many seeds of each base policy
    values_P_S_A = kept.to_numpy().reshape(len(counts), counts.min(), -1)
    base_P_S = values_P_S_A[:, :, 0]
    columns = [kept.columns.get_loc(arm) for arm in arms]
    return np.moveaxis(values_P_S_A[:, :, columns], -1, 0) - base_P_S


def compare(table: pd.DataFrame, measure: str, arms: Sequence[str], baseline: str) -> Nested:
    """The arms' differences from the baseline over base policies and seeds: see repro.stats.nested."""
    return nested(paired(table, measure, arms, baseline))
