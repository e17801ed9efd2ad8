"""Differences to the baseline for the same FLOPs, over base policies and seeds: at one learning rate for all, and at a
rate of each arm's own."""

from collections.abc import Mapping, Sequence

import pandas as pd

from repro.stats import panels
from repro.stats.outcomes import at_shares, compare


def at_best(shared: pd.DataFrame, own: pd.DataFrame, best: Mapping[str, float]) -> pd.DataFrame:
    """The runs of each arm at its best rate, from either table; arms without any are left out."""
    both = pd.concat([shared, own], ignore_index=True)
    return both[both["rate"] == both["arm"].map(best)]


def on_every_policy(table: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """The runs of arms that have some on every base policy of the baseline's; the others are still being made."""
    on = table.groupby("arm")["policy"].agg(set)
    return table[table["arm"].isin([arm for arm, own in on.items() if own >= on[baseline]])]


def along(
    of: pd.DataFrame, arms: Sequence[str], baseline: str, shares: Sequence[float], confidence: float
) -> pd.DataFrame:
    """Arm, share, difference, _low, _high: the difference from the baseline when each share of the budget is spent.
    `of`: rows of `repro.stats.outcomes.reached`."""
    curves = pd.concat([panels.load("curves", panel) for panel in of["panel"].unique()], ignore_index=True)
    accuracy = at_shares(curves[curves["run"].isin(of["run"])], shares)
    wide = of[["run", "policy", "arm", "seed"]].join(accuracy, on="run")
    rows = []
    for share in shares:
        fit = compare(wide, share, arms, baseline)
        low_A, high_A = fit.interval(confidence)
        named = {"difference": fit.estimate_A, "difference_low": low_A, "difference_high": high_A}
        rows.append(pd.DataFrame({"arm": list(arms), "share": share, **named}))
    return pd.concat(rows, ignore_index=True)
