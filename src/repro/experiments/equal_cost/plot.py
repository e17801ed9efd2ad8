"""The figures of the comparison for the same cost. Drawing only."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from repro.plots import forest
from repro.plots.interactive import lines
from repro.plots.style import COLORS, DASHES, new_figure
from repro.plots.words import says
from repro.stats.answers import MARGIN

COLUMNS = 3
FAR = 1.5  # times the usual distance: tokens and rewards by chance are so far that the others could not be told apart


def answers(rates: Mapping[str, pd.DataFrame], titles: Mapping[str, str], baseline: str, title: str) -> Figure:
    """A panel for each of `rates`, {what it is: `answered`'s table}; arms by family, base policies as dots."""
    family = pd.concat([table["family"] for table in rates.values()])
    family = family[~family.index.duplicated()]
    rows = pd.DataFrame({"arm": family.index, "title": family.index.map(titles), "group": family.to_numpy()})
    columns, found = [], []
    for place, (rate, table) in enumerate(rates.items()):
        name, own = f"rate_{place}", table.reindex(family.index)
        for end in ("", "_low", "_high"):
            rows[name + end] = own[f"difference{end}"].to_numpy()
        rows[f"{name}_answer"] = own["answer"].to_numpy()
        rows[f"{name}_each"] = [each if isinstance(each, list) else [] for each in own["by_policy"]]
        label = f"{rate}: difference\nfrom {baseline} when its budget is spent"
        columns.append(forest.Column(name, label, 0.0, absent="", alike=True, far=FAR))
        counts = table["answer"].value_counts()
        found.append(f"{rate}, " + ", ".join(f"{count} {answer}" for answer, count in counts.items()))
    return forest.answers(rows, columns, MARGIN, title, "; ".join(found))


def along(tables: Mapping[str, pd.DataFrame], titles: Mapping[str, str], baseline: str, title: str) -> Figure:
    """A panel for each arm: its difference from the baseline along the budget, a line for each of `tables`, {rate:
    `compared.along`}, with the interval."""
    arms = list(dict.fromkeys(arm for table in tables.values() for arm in table["arm"]))
    rows = -(-len(arms) // COLUMNS)
    figure, axes = new_figure(1.2 + 2.3 * rows, rows, COLUMNS, width=9.6, sharex=True, sharey=True)
    for ax, arm in zip(axes.flat, arms, strict=False):
        for (rate, table), color, dash in zip(tables.items(), COLORS, DASHES, strict=False):
            own = table[table["arm"] == arm]
            ax.plot(own["share"], own["difference"], color=color, linestyle=dash, label=rate)
            ax.fill_between(own["share"], own["difference_low"], own["difference_high"], color=color, alpha=0.15, lw=0)
        ax.axhline(0, color="0.1", linewidth=1)
        ax.set_title(titles[arm], loc="left", fontsize=12)
    for ax in axes.flat[len(arms) :]:
        ax.set_axis_off()
    axes[-1, COLUMNS // 2].set_xlabel("FLOPs spent, share of the budget")
    for ax in axes[:, 0]:
        ax.set_ylabel(f"accuracy less {baseline}'s")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(tables))
    figure.suptitle(title, x=0.01, ha="left")
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
