"""Figures of the lower-bound notebook. Drawing only: the numbers come from repro.theory."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from repro.plots.style import arm_styles, new_figure
from repro.theory.lower_bound.closed_forms import capped_bound, prefix_bound
from repro.theory.lower_bound.gap import FAMILIES, cost_quantiles
from repro.theory.lower_bound.simulation import ALGORITHMS

TITLES = {"uniform": "uniform", "pareto": "Pareto", "exponential": "exponentially growing"}
BOUNDS = {
    "sgd": "upper: SGD",
    "subset": "upper: SGD on the cheapest",
    "capped": "lower: ours, capped",
    "prefix": "lower: the paper's, on S",
}


def bounds_figure(table: pd.DataFrame, title: str) -> Figure:
    """Upper and lower bounds in units of Σc against the spread of costs, a panel per family.

    `table`: repro.theory.lower_bound.gap.gap_by_spread. A lower bound of zero has no place on the log axis: the line
    ends in a cross.
    """
    figure, axes = new_figure(4.9, 1, len(FAMILIES), width=10.0, sharex=True, sharey=True)
    for ax, family in zip(axes[0], FAMILIES, strict=True):
        rows = table[table["family"] == family]
        for (column, label), style in zip(BOUNDS.items(), arm_styles(list(BOUNDS)).values(), strict=True):
            shown = rows[rows[column] > 0]
            ax.plot(shown["spread"], shown[column] / shown["total"], label=label, **style, markevery=4)
            if len(shown) < len(rows) and len(shown):
                last = shown.iloc[-1]
                ax.plot(last["spread"], last[column] / last["total"], marker="x", color=style["color"], markersize=11)
        ax.axhline(1.0, color="0.5", linewidth=1)
        ax.set_yscale("log")
        _spread_axis(ax)
        ax.set_title(TITLES[family], loc="left")
    axes[0, 0].annotate("every component once", (1, 1), va="bottom")
    axes[0, 0].set_ylabel("cost to reach ε, in Σc")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, columnspacing=1.2)
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def gap_figure(table: pd.DataFrame, title: str) -> Figure:
    """Least upper bound over lower bound (left), and the share of components in the paper's S (right), by spread."""
    figure, axes = new_figure(4.8, 1, 2, width=10.0, sharex=True)
    left, right = axes[0]
    for family, style in arm_styles(list(FAMILIES)).items():
        rows = table[table["family"] == family]
        bare = {"color": style["color"], "marker": style["marker"], "markevery": 4}
        left.plot(rows["spread"], rows["gap_capped"], **bare, linestyle="-", label=f"{TITLES[family]}, ours")
        finite = rows[np.isfinite(rows["gap_prefix"])]
        left.plot(finite["spread"], finite["gap_prefix"], **bare, linestyle="--", label=f"{TITLES[family]}, paper's")
        right.plot(rows["spread"], 100 * rows["prefix_share"], **style, markevery=4, label=TITLES[family])
    left.set(yscale="log", ylabel="upper bound / lower bound", ylim=(10, 3e4))
    left.legend(fontsize=10.5)
    right.set(ylabel="components in S (%)", ylim=(-4, 104))
    right.legend(loc="lower left")
    for ax in (left, right):
        _spread_axis(ax)
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def instance_figure(runs: pd.DataFrame, frontiers: pd.DataFrame, epsilon: float, instance: str, title: str) -> Figure:
    """Mean error against cost on one hard instance, a panel per family; shaded: where no algorithm can be.

    `runs`: repro.theory.lower_bound.verdicts.means; bands are 95% intervals. Cost is in units of the bound at ε.
    """
    families = [f for f in FAMILIES if f in set(frontiers[frontiers["instance"] == instance]["family"])]
    figure, axes = new_figure(4.9, 1, len(families), width=10.0, sharex=True, sharey=True)
    for ax, family in zip(axes[0], families, strict=True):
        edge = _of(frontiers, instance, family).sort_values("error")
        edge = edge[edge["cost"] > 0]
        unit = edge["bound"].iloc[0]
        ax.fill_between(edge["cost"] / unit, edge["error"], epsilon / 100, color="0.85", lw=0)
        for algorithm, style in arm_styles(list(ALGORITHMS)).items():
            rows = _of(runs, instance, family)
            rows = rows[rows["algorithm"] == algorithm]
            cost, reach = rows["cost"] / unit, 1.96 * rows["standard_error"]
            ax.plot(cost, rows["error"], label=algorithm, **style, markevery=4 if len(rows) > 8 else 1, markersize=5)
            low = (rows["error"] - reach).clip(lower=epsilon / 100)
            ax.fill_between(cost, low, rows["error"] + reach, color=style["color"], alpha=0.15, lw=0)
        ax.plot([edge["cost"].min() / unit, 1], [epsilon] * 2, color="0.3", linewidth=1)
        ax.plot(1, epsilon, marker="o", color="0.1", markersize=7)
        ax.set(xscale="log", yscale="log", xlim=(0.05, 300), ylim=(epsilon / 10, 5 * epsilon))
        ax.set(xlabel="cost / lower bound")
        ax.set_xticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
        ax.set_yticks(ticks := [epsilon * k for k in (0.1, 0.3, 1, 3)], [f"{tick:.2g}" for tick in ticks])
        ax.minorticks_off()
        ax.set_title(TITLES[family], loc="left")
    axes[0, 0].set_ylabel("mean error f(x) − f(x*)")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def explore_spread(spread: float, *, family: str, n_components: int, lipschitz: float, epsilon: float) -> Figure:
    """The hard instances for another spread of costs: which mean each component gets, by its cost."""
    costs_n = cost_quantiles(family, n_components, max(spread, 1.0))
    figure, axes = new_figure(4.2)
    ax, shown = axes[0, 0], {"the paper's": prefix_bound, "ours": capped_bound}
    for (name, certify), style in zip(shown.items(), arm_styles(list(shown)).values(), strict=True):
        bound = certify(costs_n, lipschitz, epsilon)
        ax.plot(
            costs_n, bound.means_n, **style, markevery=0.1, label=f"{name}: cost ≥ {bound.cost / costs_n.sum():.2g} Σc"
        )
    ax.set(xscale="log", xlabel="cost of a component", ylabel="its mean slope |μ|", ylim=(-0.02, 0.55 * lipschitz))
    ax.legend(loc="upper left")
    ax.set_title(f"Who carries the signal, {TITLES[family]} costs up to {spread:.3g}?", loc="left")
    return figure


def _of(table: pd.DataFrame, instance: str, family: str) -> pd.DataFrame:
    return table[(table["instance"] == instance) & (table["family"] == family)]


def _spread_axis(ax: Axes) -> None:
    ax.set(xscale="log", xlabel="dearest / cheapest cost")
    ax.set_xticks([1, 1e2, 1e4, 1e6, 1e8])
    ax.minorticks_off()
