"""Figures of a language model's profile. Drawing only."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from repro.plots.style import COLORS, MARKERS, new_figure
from repro.plots.words import says

HATCHES = ("", "///", "...", "xx", "\\\\\\", "++")


def difficulty(table: pd.DataFrame, title: str) -> Figure:
    """How many queries were solved in how many of their samples, families stacked. `table`:
    repro.experiments.language_model.summary.per_query's."""
    samples = int(table["samples"].iloc[0])
    figure, axes = new_figure(4.4)
    ax, below_S = axes[0, 0], np.zeros(samples + 1)
    for place, (family, part) in enumerate(table.groupby("family", sort=False)):
        count_S = np.bincount(part["successes"], minlength=samples + 1)
        style = {"color": COLORS[place % len(COLORS)], "hatch": HATCHES[place % len(HATCHES)]}
        ax.bar(range(samples + 1), count_S, bottom=below_S, label=family, edgecolor="white", linewidth=0.5, **style)
        below_S += count_S
    ax.set(xlabel=f"samples of {samples} that were right", ylabel="queries")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(axis="x", visible=False)
    ax.legend()
    figure.suptitle(title, x=0.01, ha="left")
    ends = f"{below_S[0]:.0f} are never solved, {below_S[-1]:.0f} always"
    return says(figure, f"of {len(table)} queries with {samples} samples each, {ends}")


def uncertainty(table: pd.DataFrame, title: str) -> Figure:
    """Posterior of every query's success probability: mean and central 95%, from the easiest query to the hardest."""
    figure, axes = new_figure(4.6)
    ax, ordered = axes[0, 0], table.sort_values(["mean", "query"], ascending=[False, True]).reset_index(drop=True)
    for place, family in enumerate(dict.fromkeys(table["family"])):
        part = ordered[ordered["family"] == family]
        spread = np.abs(part[["low", "high"]].to_numpy().T - part["mean"].to_numpy())
        style = {"color": COLORS[place % len(COLORS)], "marker": MARKERS[place % len(MARKERS)]}
        ax.errorbar(
            part.index, part["mean"], spread, linestyle="none", markersize=4, elinewidth=1, label=family, **style
        )
    ax.set(xlabel="query, easiest first", ylabel="success probability", ylim=(-0.02, 1.02))
    ax.legend()
    figure.suptitle(title, x=0.01, ha="left")
    width = (table["high"] - table["low"]).median()
    return says(figure, f"the intervals of {len(table)} queries are {width:.2f} wide in the median")


def allocation(table: pd.DataFrame, uniform: int, title: str) -> Figure:
    """Where the rollouts of an epoch go: by how many of its samples were right, what all queries with that count get
    together, by the plan and by groups of `uniform` for every query."""
    samples = int(table["samples"].iloc[0])
    figure, axes = new_figure(4.2)
    ax, count_S = axes[0, 0], np.bincount(table["successes"], minlength=samples + 1)
    plan_Q = np.where(table["kept"], table["group_size"], 0)
    plan_S = np.bincount(table["successes"], weights=plan_Q, minlength=samples + 1)
    bars = {f"uniform, {uniform} each": (uniform * count_S, "0.8", ""), "plan": (plan_S, COLORS[0], "///")}
    for place, (label, (rollouts_S, color, hatch)) in enumerate(bars.items()):
        at_S = np.arange(samples + 1) + 0.4 * (place - 0.5)
        ax.bar(at_S, rollouts_S, 0.4, label=label, color=color, hatch=hatch, edgecolor="white", linewidth=0.5)
    ax.set(xlabel=f"samples of {samples} that were right", ylabel="rollouts in an epoch")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(axis="x", visible=False)
    ax.legend()
    figure.suptitle(title, x=0.01, ha="left")
    most = f"{plan_S[0] / max(plan_S.sum(), 1):.0%} of the plan's {plan_S.sum():,.0f} rollouts"
    return says(figure, f"queries never solved get {most}, {count_S[0] / len(table):.0%} of uniform groups'")
