"""Which learning rate suits which arm: the tuning panels, and the rule that reads them."""

import json

import pandas as pd

from repro.atlas.design import RATE, Design
from repro.stats import atlas
from repro.stats.outcomes import outcomes

TUNING = ("tuning", "tuning-edges")


def sensitivity(design: Design) -> pd.DataFrame:
    """A row per tuning run: arm, policy, rate, area (under the curve up to the budget; repro.stats.outcomes)."""
    tables = [(atlas.load("runs", panel), atlas.load("curves", panel)) for panel in TUNING if panel in design.panels]
    rows = [runs.merge(outcomes(curves), left_on="run", right_index=True) for runs, curves in tables if len(runs)]
    if not rows:
        return pd.DataFrame(columns=["arm", "policy", "rate", "area"])
    table = pd.concat(rows, ignore_index=True)
    table["rate"] = table["varied"].map(lambda varied: json.loads(varied)[RATE])
    return table[["arm", "policy", "rate", "area"]]


def best_rates(table: pd.DataFrame) -> pd.DataFrame:
    """A row per arm (the index) from `sensitivity`, of the rates that ran on all base policies: best, that with the
    highest mean area; edge, -1 or 1 where it is the lowest or the highest, else 0; complete, their number. NaN without
    any."""
    policies = table["policy"].nunique()
    wide = table.groupby(["arm", "rate"])["area"].agg(["mean", "size"])
    mean = wide["mean"].where(wide["size"] == policies).unstack("rate")
    rows = {}
    for arm, areas in mean.iterrows():
        known = areas.dropna()
        best = known.idxmax() if len(known) else float("nan")
        edge = int(best == known.index.max()) - int(best == known.index.min())
        rows[arm] = {"best": best, "edge": edge, "complete": len(known)}
    return pd.DataFrame.from_dict(rows, orient="index")
