"""Which learning rate suits which arm, from the panels of tuning."""

from collections.abc import Sequence

import pandas as pd

from repro.stats import panels
from repro.stats.outcomes import reached
from repro.stats.panels import NoRuns

PANELS = ("tuning", "tuning-edges")
AT_PRICES = ("rates",)  # each price's rates are asked apart
PRICE = "evaluation.price"


def sensitivity(names: Sequence[str] = PANELS) -> pd.DataFrame:
    """A row per run of tuning panels: panel, arm, policy, rate, area (under the curve; repro.stats.outcomes), diverged,
    and price, NaN where a panel varies none."""
    table = reached(names)
    table = table.assign(price=panels.varied(table, PRICE, float, float("nan")))
    return table[["panel", "arm", "policy", "rate", "price", "area", "diverged"]]


def by_price(names: Sequence[str] = AT_PRICES) -> dict[float, pd.DataFrame]:
    """{price: its rows of `sensitivity`}."""
    return {price: own for price, own in sensitivity(names).groupby("price", sort=True)}


def best_rates(table: pd.DataFrame) -> pd.DataFrame:
    """A row per arm (the index) from `sensitivity`, of the rates that ran on all `policies`: best, that with the
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
    """Mean area over `policies`: arms by rates, NaN where one of them has not been run."""
    on = policies(table)
    wide = table[table["policy"].isin(on)].groupby(["arm", "rate"], sort=False)["area"].agg(["mean", "size"])
    mean = wide["mean"].where(wide["size"] == len(on))
    return mean.unstack("rate").sort_index(axis=1).reindex(table["arm"].unique())


def policies(table: pd.DataFrame) -> list[str]:
    """The base policies of which the first panel of `table` has most runs: those on which it is whole, once it is on
    one."""
    runs = table.loc[table["panel"] == table["panel"].iloc[0], "policy"].value_counts()
    return sorted(runs.index[runs == runs.max()])


def held_out(table: pd.DataFrame, rate: float) -> pd.DataFrame:
    """What choosing a rate is worth where it was not chosen: a row per arm and base policy of `policies`, with chosen,
    the rate of the highest mean area on the *other* policies, and gain, this policy's area at it less that at `rate`.
    NoRuns with a single policy."""
    on, rows = policies(table), []
    if len(on) < 2:
        raise NoRuns(f"panel tuning is whole on base policy {on[0]} alone: `make runs PANEL=tuning`")
    for arm in table["arm"].unique():
        area = table[(table["arm"] == arm) & table["policy"].isin(on)].pivot(
            index="policy", columns="rate", values="area"
        )
        area = area.dropna(axis=1)
        for policy, chosen in chosen_elsewhere(area).items():
            gain = area.loc[policy, chosen] - area.loc[policy, rate]
            rows.append({"arm": arm, "policy": policy, "chosen": chosen, "gain": float(gain)})
    return pd.DataFrame(rows, columns=["arm", "policy", "chosen", "gain"])


def chosen_elsewhere(area: pd.DataFrame) -> dict[str, float]:
    """{base policy: the rate of the highest mean area on the *others*}, of areas by base policy (index) and rate."""
    return {policy: area.drop(index=policy).mean().idxmax() for policy in area.index}
