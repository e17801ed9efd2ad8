"""The figure of learning rates. Drawing only."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from repro.plots.style import COLORS, DASHES, MARKERS, STRIPE, new_figure
from repro.plots.words import says

ROW = 0.3  # inches


def by_rate(areas: pd.DataFrame, gains: pd.DataFrame, titles: Mapping[str, str], title: str) -> Figure:
    """Left, each arm's mean area at each rate, filled at the best; right, what a rate chosen on the other base policies
    gains over the study's, a dot for every base policy and the mean with its interval.

    areas: arms × rates (`mean_areas`). gains: arms × (gain, gain_low, gain_high, then a column per base policy).
    """
    arms = list(areas.index)
    figure, axes = new_figure(1.8 + ROW * len(arms), 1, 2, sharey=True, width=9.6)
    left, right = axes[0]
    best = areas.idxmax(axis=1)
    for place, (rate, column) in enumerate(areas.items()):
        color, marker = COLORS[place % len(COLORS)], MARKERS[place % len(MARKERS)]
        left.plot([], [], linestyle="none", marker=marker, color=color, label=f"{rate:g}")
        for row, arm in enumerate(arms):
            fill = color if best[arm] == rate else "white"
            left.plot(column[arm], row, marker=marker, color=color, markerfacecolor=fill, markersize=7)
    for row, arm in enumerate(arms):
        own = gains.loc[arm]
        right.plot(own.drop(["gain", "gain_low", "gain_high"]), [row] * (len(own) - 3), "o", color="0.6", markersize=4)
        right.plot(own[["gain_low", "gain_high"]], [row, row], color="0.1", linewidth=1.5)
        right.plot(own["gain"], row, marker="|", color="0.1", markersize=12, markeredgewidth=2)
        for ax in (left, right) if row % 2 else ():
            ax.axhspan(row - 0.5, row + 0.5, color=STRIPE, zorder=0)
    right.axvline(0, color="0.35", linewidth=1)
    left.set_yticks(range(len(arms)), [titles[arm] for arm in arms])
    left.set_ylim(len(arms) - 0.4, -0.6)
    left.set_xlabel("mean accuracy over the budget")
    right.set_xlabel("gained by a rate chosen elsewhere")
    left.grid(axis="y", visible=False)
    right.grid(axis="y", visible=False)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=len(areas.columns), title="rate")
    figure.suptitle(title, x=0.01, ha="left")
    counts = ", ".join(f"{rate:g} for {count}" for rate, count in best.value_counts().sort_index().items())
    return says(figure, f"the best rate is {counts} of {len(arms)} arms")


def by_steps(means: pd.DataFrame, titles: Mapping[str, str], title: str) -> Figure:
    """A panel for each arm: mean area over base policies by the number of optimiser steps on a batch, a line for each
    rate, filled at the highest. `means`: (arm, rate) × steps."""
    arms = list(titles)
    figure, axes = new_figure(3.6, 1, len(arms), width=11.0, sharey=True)
    counts = list(means.columns)
    for ax, arm in zip(axes[0], arms, strict=True):
        own = means.loc[arm]
        highest = own.stack().idxmax()
        for place, (rate, area) in enumerate(own.iterrows()):
            look = {"color": COLORS[place], "marker": MARKERS[place], "linestyle": DASHES[place]}
            ax.plot(range(len(counts)), area, markerfacecolor="white", markersize=7, **look)
            if highest[0] == rate:
                best = counts.index(highest[1])
                ax.scatter(best, own.stack()[highest], marker=MARKERS[place], color=COLORS[place], s=49, zorder=3)
        ax.set_xticks(range(len(counts)), [str(count) for count in counts])
        ax.set_title(titles[arm], loc="left", fontsize=12)
    axes[0, 0].set_ylabel("accuracy, mean over budget")
    axes[0, len(arms) // 2].set_xlabel("optimiser steps on a batch")
    labels = [f"rate {rate:g}" for rate in means.index.unique("rate")]
    figure.legend(axes[0, 0].lines, labels, loc="outside lower center", ncols=len(labels))
    figure.suptitle(title, x=0.01, ha="left")
    best = means.groupby(level=0, sort=False).max().idxmax(axis=1)
    return says(figure, "; ".join(f"{titles[arm]} does best with {best[arm]}" for arm in arms))
