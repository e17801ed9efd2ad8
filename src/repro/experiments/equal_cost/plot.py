"""The figures of the comparison for the same cost. Drawing only."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from repro.plots import answers as drawn_answers
from repro.plots import grid
from repro.plots.interactive import lines
from repro.plots.style import COLORS, DASHES
from repro.plots.words import says

FAR = 1.5  # times the usual distance: tokens and rewards by chance are so far that the others could not be told apart


def answers(rates: Mapping[str, pd.DataFrame], titles: Mapping[str, str], baseline: str, title: str) -> Figure:
    """A panel for each of `rates`, {what it is: `answered`'s table}; arms by family, base policies as dots."""
    panels = {
        f"{rate}: accuracy less {baseline}'s at its budget": table.assign(each=table["by_policy"])
        for rate, table in rates.items()
    }
    return drawn_answers.answers(panels, titles, title, FAR)


def along(tables: Mapping[str, pd.DataFrame], titles: Mapping[str, str], baseline: str, title: str) -> Figure:
    """A panel for each arm: its difference from the baseline along the budget, a line for each of `tables`, {rate:
    `compared.along`}, with the interval."""
    arms = list(dict.fromkeys(arm for table in tables.values() for arm in table["arm"]))
    labels = "FLOPs spent, share of the budget", f"accuracy less {baseline}'s"
    figure, panels = grid.grid(arms, titles, labels, title)
    for arm, ax in panels.items():
        for (rate, table), color, dash in zip(tables.items(), COLORS, DASHES, strict=False):
            own = table[table["arm"] == arm]
            ax.plot(own["share"], own["difference"], color=color, linestyle=dash, label=rate)
            ax.fill_between(own["share"], own["difference_low"], own["difference_high"], color=color, alpha=0.15, lw=0)
        ax.axhline(0, color="0.1", linewidth=1)
    grid.legend(figure, panels, len(tables))
    whole = pd.concat([table.assign(rate=rate) for rate, table in tables.items()], ignore_index=True)
    named = whole.assign(title=whole["arm"].map(titles))
    return lines(
        says(figure, "; ".join(_highest(named[named["rate"] == rate], rate) for rate in tables)),
        named,
        x="share",
        y="difference",
        by="title",
        low="difference_low",
        high="difference_high",
        choices={"rate": {rate: rate for rate in tables}},
        labels=("share of the budget", "difference in held-out accuracy"),
        shown=[titles[arm] for arm in arms[:3]],
    )


def _highest(table: pd.DataFrame, rate: str) -> str:
    last = table[table["share"] == table["share"].max()]
    best = last.loc[last["difference"].idxmax()]
    return f"{rate}: highest at the end {best['title']}, {best['difference']:+.3f}"
