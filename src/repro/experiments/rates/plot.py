"""The figure of the rates: a panel for each arm, its area under the curve by learning rate."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from repro.experiments.rates.summary import best_rates, mean_areas
from repro.plots.style import BASELINE, COLORS, new_figure
from repro.plots.words import says

COLUMNS = 4


def by_rate(table: pd.DataFrame, titles: Mapping[str, str], baseline: str, title: str) -> Figure:
    """Small multiples of repro.experiments.rates.summary.sensitivity: a thin line for each base policy, a thick one
    with marks for their mean, a ring around the best; in every panel the baseline's mean, dashed."""
    means, best = mean_areas(table), best_rates(table)["best"]
    rows = -(-len(means) // COLUMNS)
    figure, axes = new_figure(0.9 + 1.75 * rows, rows, COLUMNS, sharex=True, sharey=True)
    for ax, (arm, mean) in zip(axes.flat, means.iterrows(), strict=False):
        for _, own in table[table["arm"] == arm].sort_values("rate").groupby("policy"):
            ax.plot(own["rate"], own["area"], color="0.72", linewidth=0.9)
        ax.plot(means.columns, means.loc[baseline], **{**BASELINE, "linestyle": "--", "linewidth": 1.6})
        known = mean.dropna()
        ax.plot(known.index, known, color=COLORS[0], marker="o", markersize=4, linewidth=2.2)
        if best[arm] == best[arm]:
            ring = {"marker": "o", "markersize": 11, "markerfacecolor": "none", "markeredgecolor": "0.1"}
            ax.plot(best[arm], mean[best[arm]], linestyle="none", **ring)
        ax.set_title(titles[arm], loc="left", fontsize=11)
        ax.set_xscale("log", base=2)
        ax.set_xticks(means.columns, [f"{1e4 * rate:g}" for rate in means.columns])
    for ax in axes.flat[len(means) :]:
        ax.set_axis_off()
    figure.supxlabel("learning rate, 1e-4", fontsize=13)
    figure.supylabel("mean accuracy up to the budget", fontsize=13)
    figure.suptitle(title, x=0.01, ha="left", fontsize=14, fontweight="bold")
    others, own = best.drop(baseline).dropna(), best[baseline]
    counts = f"{(others < own).sum()} at a lower one, {(others > own).sum()} at a higher one"
    return says(figure, f"{titles[baseline]} is best at {1e4 * own:g}e-4, of {len(others)} other arms {counts}")
