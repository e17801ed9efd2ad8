"""The figures of the exploratory arms. Drawing only."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from repro.experiments.exploratory.compared import MEASURES
from repro.plots import answers as drawn_answers
from repro.plots.style import COLORS, MARKERS, new_figure
from repro.plots.words import says

LINE = 0.05  # of a name, share of the axis


def answers(table: pd.DataFrame, titles: Mapping[str, str], baseline: str, title: str) -> Figure:
    """Partially pooled differences with their intervals, a panel for each measure, raw ones of each base policy as
    dots; filled by the test of the raw difference. `table`: of `compared.differences`."""
    panels = {}
    for measure, words in MEASURES.items():
        own = table[table["measure"] == measure].set_index("arm")
        ends = {f"difference{end}": own[f"pooled{end}"] for end in ("", "_low", "_high")}
        panels[f"accuracy less {baseline}'s, {words}"] = own.assign(**ends, each=own["by_policy"])
    return drawn_answers.answers(panels, titles, title)


def both(
    table: pd.DataFrame,
    titles: Mapping[str, str],
    baseline: str,
    policies: tuple[str, str],
    title: str,
    named: int = 3,
) -> Figure:
    """An arm's difference on one base policy against that on the other, a panel for each measure; the line on which
    both are equal; the `named` highest and lowest arms by their mean have their name. `policies`: in the order of
    by_policy."""
    figure, axes = new_figure(5.6, 1, len(MEASURES), width=9.6)
    looks = dict(zip(table["family"].unique(), zip(COLORS * 2, MARKERS * 2, strict=True), strict=False))
    found = []
    for ax, (measure, words) in zip(axes[0], MEASURES.items(), strict=True):
        own = table[table["measure"] == measure].sort_values("difference")
        points_A_P = np.array(own["by_policy"].tolist())
        for family, (color, marker) in looks.items():
            of = (own["family"] == family).to_numpy()
            ax.plot(*points_A_P[of].T, marker, color=color, markerfacecolor="white", label=family, markersize=6)
        ends = (points_A_P.min() - 0.01, points_A_P.max() + 0.01)
        ax.plot(ends, ends, color="0.6", linewidth=1, zorder=0)
        ax.axhline(0, color="0.35", linewidth=0.8, zorder=0)
        ax.axvline(0, color="0.35", linewidth=0.8, zorder=0)
        ax.set(xlim=ends, ylim=ends, aspect="equal")
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.yaxis.set_major_locator(MaxNLocator(4))
        names = own["arm"].map(titles).to_list()
        _name(ax, points_A_P[:named], names[:named], "left")
        _name(ax, points_A_P[-named:], names[-named:], "right")
        ax.set_title(words, loc="left", fontsize=12)
        ax.set_xlabel(f"accuracy less {baseline}'s, base policy {policies[0]}")
        order = pd.DataFrame(points_A_P).corr("spearman").iloc[0, 1]
        found.append(f"{words}, rank correlation {order:.2f}")
    axes[0, 0].set_ylabel(f"accuracy less {baseline}'s, base policy {policies[1]}")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.suptitle(title, x=0.01, ha="left")
    return says(figure, "; ".join(found))


def _name(ax: Axes, points_A_P: np.ndarray, names: list[str], side: str) -> None:
    """Names beside points, `side` of the text to the point, no two on one line."""
    line = LINE * np.ptp(ax.get_ylim())
    height = -np.inf
    for place in np.argsort(points_A_P[:, 1]):
        x, y = points_A_P[place]
        height = max(y, height + line)
        shift = {"left": 8, "right": -8}[side]
        ax.annotate(names[place], (x, height), (shift, 0), textcoords="offset points", fontsize=9, ha=side, va="center")
