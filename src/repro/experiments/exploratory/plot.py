"""The figures of the exploratory arms. Drawing only."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from repro.experiments.exploratory.compared import MEASURES
from repro.plots import forest
from repro.plots.style import COLORS, MARKERS, new_figure
from repro.plots.words import says
from repro.stats.answers import MARGIN


def answers(table: pd.DataFrame, titles: Mapping[str, str], baseline: str, title: str) -> Figure:
    """Partially pooled differences with their intervals, a panel for each measure, raw ones of each base policy as
    dots. `table`: of `compared.differences`."""
    rows = table.drop_duplicates("arm")[["arm", "family"]].rename(columns={"family": "group"})
    rows = rows.assign(title=rows["arm"].map(titles)).sort_values("group", kind="stable", ignore_index=True)
    columns, found = [], []
    for measure, words in MEASURES.items():
        own = table[table["measure"] == measure].set_index("arm").loc[rows["arm"]]
        for end in ("", "_low", "_high"):
            rows[measure + end] = own[f"pooled{end}"].to_numpy()
        rows[f"{measure}_answer"], rows[f"{measure}_each"] = own["answer"].to_numpy(), own["by_policy"].to_numpy()
        label = f"accuracy less {baseline}'s,\n{words}"
        columns.append(forest.Column(measure, label, 0.0, alike=True))
        counts = own["answer"].value_counts().reindex(["higher", "lower", "open"], fill_value=0)
        found.append(f"{words}, " + ", ".join(f"{count} {answer}" for answer, count in counts.items()))
    return forest.answers(rows, columns, MARGIN, title, "; ".join(found))


def both(table: pd.DataFrame, titles: Mapping[str, str], baseline: str, title: str, named: int = 3) -> Figure:
    """An arm's difference on one base policy against that on the other, a panel for each measure; the line on which
    both are equal; the `named` highest and lowest arms by their mean have their name."""
    figure, axes = new_figure(5.6, 1, len(MEASURES), width=9.6)
    looks = dict(zip(table["family"].unique(), zip(COLORS * 2, MARKERS * 2, strict=True), strict=False))
    found = []
    for ax, (measure, words) in zip(axes[0], MEASURES.items(), strict=True):
        own = table[table["measure"] == measure].sort_values("difference")
        points_A_P = np.array(own["by_policy"].tolist())
        for family, (color, marker) in looks.items():
            of = (own["family"] == family).to_numpy()
            ax.plot(*points_A_P[of].T, marker, color=color, markerfacecolor="white", label=family, markersize=6)
        ends = [points_A_P.min() - 0.01, points_A_P.max() + 0.01]
        ax.plot(ends, ends, color="0.6", linewidth=1, zorder=0)
        ax.axhline(0, color="0.35", linewidth=0.8, zorder=0)
        ax.axvline(0, color="0.35", linewidth=0.8, zorder=0)
        for place in [*range(named), *range(len(own) - named, len(own))]:
            ax.annotate(
                titles[own["arm"].iloc[place]],
                points_A_P[place],
                (5, -4),
                textcoords="offset points",
                fontsize=9,
                ha="left" if place < named else "right",
            )
        ax.set_title(words, loc="left", fontsize=12)
        ax.set_xlabel(f"accuracy less {baseline}'s, base policy a")
        order = pd.DataFrame(points_A_P).corr("spearman").iloc[0, 1]
        found.append(f"{words}, rank correlation {order:.2f}")
    axes[0, 0].set_ylabel(f"accuracy less {baseline}'s, base policy b")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.suptitle(title, x=0.01, ha="left")
    return says(figure, "; ".join(found))
