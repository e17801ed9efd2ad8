"""What each method does for the same bill, by measure and by what generation costs: a function of the bed's panels.

Runs of the panels of BILL, ONLINE and ALIKE end when they have paid what GRPO pays, so a measure is read off their last
evaluation."""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from repro.paths import DESIGN
from repro.plots import answers as drawn
from repro.settings import Statistics
from repro.settings.text import read_mapping
from repro.stats import compare, rates
from repro.stats.answers import together
from repro.stats.outcomes import at_shares

BILL = ("confirm-27", "confirm-75")  # each arm at its own rate
ONLINE = ("online-27", "online-75")  # plans that learn, filters and estimators, likewise
ONLINE_RATES = ("online-rates", "online-edges")  # that chose their rates
ALIKE = ("bill",)  # all at the rate that was chosen on GRPO
FRONT = ("random-quarter", "grpo-token-mean")  # on the front page, after the primaries
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
KNOWN = ["run", "panel", *compare.KEYS, "price"]  # of a run, before what it reached


def ended(names: Sequence[str]) -> pd.DataFrame:
    """A row per run of the panels: run, panel, policy, arm, seed, price, and MEASURES when its bill was paid."""
    return compare.ended(compare.load(names, {"price": (rates.PRICE, float)}), KS)


def answers(runs: pd.DataFrame, baseline: str, statistics: Statistics, measures: Iterable = MEASURES) -> pd.DataFrame:
    """A row per price, measure, of `measures` that the runs have, and arm of `ended` runs: price, measure and what
    repro.stats.answers tells, corrected over all measures and prices together: of the design's primaries by Holm, of
    the other arms by the false discovery rate."""
    primaries = read_mapping(DESIGN)["groups"]["primaries"]
    others = [arm for arm in runs["arm"].unique() if arm not in (*primaries, baseline)]
    families = {"Primaries": primaries, "Controls and objectives": others}
    asked = [
        ({"price": price, "measure": measure}, own, measure)
        for price, own in runs.groupby("price", sort=True)
        for measure in measures
        if measure in own
    ]
    return together(asked, families, baseline, statistics)


def verdict(told: pd.DataFrame, arm: str) -> str:
    """What `answers` tell of an arm at temperature 1, then what other measures resolve, each with its prices."""
    first, others = [], {}
    for (measure, answer), of in told.loc[[arm]].groupby(["measure", "answer"], sort=False)["price"]:
        words = f"{answer} " + ("at both prices" if len(of) == 2 else f"at {of.iloc[0]:.0%}")
        if measure == "accuracy":
            first.append(words)
        elif answer in ("higher", "lower"):
            others.setdefault(words, []).append(MEASURES[measure].replace(", ", "-split "))
    return "; ".join([", ".join(first), *(f"{', '.join(of)} {words}" for words, of in others.items())])


def paid_for(runs: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """`ended` runs with what their bills paid for:

    queries          groups generated
    drawn, trained   rollouts generated, and rollouts that an update read, over those of the baseline's run with the
                     same price, base policy and seed
    generation       its share of the bill, a profile's included
    profile          that of the profile alone
    silent           share of the groups generated whose rewards are all equal, mean over steps
    """
    parts = []
    for price, own in runs.groupby("price", sort=True):
        curves = compare.rows("curves", own[KNOWN])
        weight = compare.weight_of(curves, baseline, price)
        last = compare.priced(curves, baseline, weight).sort_values("step", kind="stable").groupby("run").last()
        shares = {name: weight * last[f"flops_{name}"] / last["cost"] for name in ("generate", "profile")}
        parts.append(pd.DataFrame({"queries": last["queries"], "drawn": last["rollouts"], **shares}))
    steps = compare.rows("steps", runs[["run", "panel"]]).groupby("run")
    of_steps = {"trained": steps["computed_rollouts"].sum(), "silent": steps["groups_without_signal"].mean()}
    whole = runs[KNOWN].join(pd.concat(parts).assign(**of_steps).rename(columns={"generate": "generation"}), on="run")
    place = ["price", "policy", "seed"]
    first = whole[whole["arm"] == baseline].set_index(place)
    for name in ("drawn", "trained"):
        whole[name] /= whole.join(first[name].rename("first"), on=place)["first"]
    return whole


def figure(told: pd.DataFrame, titles: Mapping[str, str], measure: str, title: str) -> Figure:
    """Differences by one measure, a panel for each price, base policies as dots."""
    own = told[told["measure"] == measure]
    by_price = {
        f"generation {price:.0%} of GRPO's bill": of.assign(each=of["by_policy"]) for price, of in own.groupby("price")
    }
    return drawn.answers(by_price, titles, title, what=f"accuracy less GRPO's, {MEASURES[measure]}")


def at_every(
    runs: pd.DataFrame, prices: Sequence[float], baseline: str, confidence: float, measures: Sequence[str]
) -> pd.DataFrame:
    """Differences from the baseline at any price: a row per price, measure and arm (price, measure, arm, difference and
    its interval, answer, short). Read off the curves of the panel whose price is nearer, linear between evaluations,
    when the bill at this price is paid; short, the share of an arm's runs that had ended before: their last value
    counts."""
    curves, parts = compare.rows("curves", runs[KNOWN]), []
    tuned = sorted(runs["price"].unique())
    for price in prices:
        nearest = min(tuned, key=lambda other: abs(other - price))
        own = curves[curves["price"] == nearest]
        paid = compare.priced(own, baseline, compare.weight_of(own, baseline, price))
        short = (paid.groupby("run")["share"].max() < 0.995).rename("short")
        of_run = runs[runs["price"] == nearest].set_index("run").join(short)
        table = of_run[["policy", "arm", "seed"]]
        for measure in measures:
            table = table.assign(**{measure: at_shares(paid, [1.0], measure)[1.0]})
        arms = [arm for arm in table["arm"].unique() if arm != baseline]
        told = compare.differences(table, list(measures), arms, baseline, confidence)
        told["short"] = told["arm"].map(of_run.groupby("arm")["short"].mean())
        parts.append(told.assign(price=price))
    return pd.concat(parts, ignore_index=True)
