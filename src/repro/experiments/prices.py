"""What each method does for the same bill, by measure and by what generation costs: a function of the bed's panels.

Panel `rates` tunes every method's learning rate at each price; those of CONFIRMED hold each at its rate against GRPO,
from more base policies, on seeds of their own. A run has paid its bill when it ends, so a measure is read off its last
evaluation."""

from collections.abc import Sequence

import pandas as pd

from repro.stats import compare
from repro.stats.panels import RATE

TUNED = "rates"
CONFIRMED = ("confirm-27", "confirm-75")  # a panel for each price
PRICE = "evaluation.price"
MEASURES = {
    "accuracy": "temperature 1",
    "greedy": "greedy",
    "pass@4": "pass@4",
    "pass@16": "pass@16",
    "harder": "harder, temperature 1",
    "harder greedy": "harder, greedy",
    "harder pass@4": "harder, pass@4",
    "harder pass@16": "harder, pass@16",
}
KS = (4, 16)


def ended(names: Sequence[str], where: Sequence[str] = ("policy",)) -> pd.DataFrame:
    """A row per run of the panels: run, panel, policy, arm, seed, price, rate, and MEASURES when its bill was paid."""
    factors = {"price": (PRICE, float, float("nan")), "rate": (RATE, float, float("nan"))}
    runs = compare.load(names, factors, where)
    last = compare.rows("curves", runs).sort_values("step", kind="stable").groupby("run").last()
    found = last[["accuracy", "greedy", "harder", "harder_greedy"]].rename(columns={"harder_greedy": "harder greedy"})
    for table, before in (("questions", ""), ("harder", "harder ")):
        passed = compare.pass_at(compare.rows(table, runs), KS)
        found = found.join(passed.rename(columns={k: f"{before}pass@{k}" for k in KS}))
    return runs.join(found, on="run")


def best_rates(table: pd.DataFrame, measure: str = "accuracy") -> pd.DataFrame:
    """A row per price and arm of `ended` runs of TUNED: best, the rate with the highest mean over base policies, and
    edge, -1 or 1 where it is the lowest or the highest tried, else 0."""
    rows = {}
    for (price, arm), own in table.groupby(["price", "arm"], sort=False):
        mean = own.groupby("rate")[measure].mean()
        best = mean.idxmax()
        rows[price, arm] = {"best": best, "edge": int(best == mean.index.max()) - int(best == mean.index.min())}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["price", "arm"])
