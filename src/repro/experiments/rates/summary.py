"""Which learning rate suits which arm, from the atlas's tuning panels, and what a rate of its own changes."""

import json

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from repro.errors import Refused
from repro.stats import atlas
from repro.stats.multiplicity import holm
from repro.stats.nested import moderate
from repro.stats.outcomes import outcomes

RATE = "engine.learning_rate"  # what these panels vary
PANELS = ("tuning", "tuning-edges")


class NoRuns(Refused):
    """One sentence: the atlas lacks the runs that a table is made of."""


def sensitivity() -> pd.DataFrame:
    """A row per tuning run: arm, policy, rate, area (under the curve; repro.stats.outcomes), diverged."""
    tables = [(atlas.load("runs", panel), atlas.load("curves", panel)) for panel in PANELS]
    rows = [runs.merge(outcomes(curves), left_on="run", right_index=True) for runs, curves in tables if len(runs)]
    if not rows:
        raise NoRuns("atlas/data has no run of panel tuning: `git checkout atlas/data`, or `make atlas PANEL=tuning`")
    table = pd.concat(rows, ignore_index=True)
    table["rate"] = table["varied"].map(lambda varied: json.loads(varied)[RATE])
    return table[["arm", "policy", "rate", "area", "diverged"]]


def best_rates(table: pd.DataFrame) -> pd.DataFrame:
    """A row per arm (the index) from `sensitivity`, of the rates that ran on all base policies: best, that with the
    highest mean area; edge, -1 or 1 where it is the lowest or the highest, else 0; complete, their number. NaN without
    any."""
    rows = {}
    for arm, areas in mean_areas(table).iterrows():
        known = areas.dropna()
        best = known.idxmax() if len(known) else float("nan")
        edge = int(best == known.index.max()) - int(best == known.index.min())
        rows[arm] = {"best": best, "edge": edge, "complete": len(known)}
    return pd.DataFrame.from_dict(rows, orient="index")


def mean_areas(table: pd.DataFrame) -> pd.DataFrame:
    """Mean area over base policies: arms by rates, NaN where a policy has not been run."""
    wide = table.groupby(["arm", "rate"], sort=False)["area"].agg(["mean", "size"])
    mean = wide["mean"].where(wide["size"] == table["policy"].nunique())
    return mean.unstack("rate").sort_index(axis=1).reindex(table["arm"].unique())


def against(table: pd.DataFrame, rates: pd.Series, baseline: str, confidence: float) -> pd.DataFrame:
    """A row per arm of `rates` (arm → rate) but the baseline: its area at that rate less the baseline's at its own.

    difference, difference_low, difference_high: mean over P base policies with its Student-t interval, variances drawn
    together over arms (repro.stats.nested.moderate); p_value of no difference, p_holm over these arms. One seed a
    policy: policy and seed are not told apart, and both are in the interval.
    """
    areas = table.set_index(["arm", "rate", "policy"])["area"].sort_index()
    areas_A_P = np.stack([areas.loc[arm, rate].to_numpy() for arm, rate in rates.items()])
    base = list(rates.index).index(baseline)
    differences_A_P = np.delete(areas_A_P - areas_A_P[base], base, axis=0)
    policies = differences_A_P.shape[1]
    variance_A, freedom = moderate(differences_A_P.var(1, ddof=1), policies - 1)
    mean_A, error_A = differences_A_P.mean(1), np.sqrt(variance_A / policies)
    half_A = stdtrit(freedom, (1 + confidence) / 2) * error_A
    p_A = 2 * stdtr(freedom, -np.abs(mean_A) / error_A)
    columns = {
        "rate": rates.drop(baseline),
        "difference": mean_A,
        "difference_low": mean_A - half_A,
        "difference_high": mean_A + half_A,
        "p_value": p_A,
        "p_holm": holm(p_A),
    }
    return pd.DataFrame(columns, index=rates.drop(baseline).index)
