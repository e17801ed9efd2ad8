"""Figures of the subset-selection notebook. Drawing only: the numbers come from repro.theory.subset_*."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from repro.plots.style import BASELINE, arm_styles, new_figure
from repro.theory.sgd import Measured
from repro.theory.subset import sgd as subset_sgd
from repro.theory.subset.instances import FAMILIES
from repro.theory.subset.validation import METHODS, compare_methods

SHIFT = 0.24  # between the methods of one family


def ratios(table: pd.DataFrame, worst: pd.DataFrame, title: str) -> Figure:
    """Weight over the least. Left, by family: median to 95% quantile as a bar, the worst as a cross. Right: on three
    components, against the size M of the middle one. Tables of compare_methods and worst_cases."""
    figure, axes = new_figure(4.6, 1, 2, width_ratios=(1.5, 1))
    _families(axes[0, 0], table)
    ax = axes[0, 1]
    rows = worst[worst["instance"] == "three components"]
    for method, style in arm_styles(list(METHODS)).items():
        one = rows[rows["method"] == method]
        ax.plot(one["size"], one["ratio"], **style)
    ax.axhline(2, color="0.35", linewidth=1)
    ax.set(xscale="log", yscale="log", xlabel="M", title="G = (1, M, 1)")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(METHODS))
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def explore_tail(tail: float, *, n_components: int, n_instances: int, seed: int) -> Figure:
    """The left panel for another exponent of the Pareto draws, at a size that answers a slider at once."""
    figure, axes = new_figure(4.4)
    _families(axes[0, 0], compare_methods(n_components, n_instances, tail, seed))
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(METHODS))
    figure.suptitle(f"What if the tails have exponent {tail:.2g}?", x=0.01, ha="left")
    return figure


def gains(curves: pd.DataFrame, title: str) -> Figure:
    """What the best cost prefix saves against what the run on everything costs, in queries of the dearest component;
    gain_curves' table."""
    figure, axes = new_figure(3.9, 1, 2, sharey=True)
    for ax, (kind, rows) in zip(axes[0], curves.groupby("kind", sort=False), strict=True):
        for tail, style in arm_styles(sorted(rows["tail"].unique())).items():
            one = rows[rows["tail"] == tail]
            ax.plot(one["run"], one["gain"], label=f"{tail:g}", **{**style, "marker": None})
        ax.axvline(1, color="0.35", linewidth=1)
        ax.set(xscale="log", yscale="log", ylim=(0.9, 20), title=kind, xlabel="cost of the run / dearest query")
        _plain(ax.yaxis, (1, 2, 5, 10, 20))
    axes[0, 0].set_ylabel("saving by leaving out")
    axes[0, 0].legend(title="tail of costs", loc="upper right")
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def error_against_cost(measured: Mapping[tuple[str, str], Measured], budgets: Sequence[float], title: str) -> Figure:
    """The paper's Figure 6: mean error of f against mean cost for each bias budget, a panel for each case and kind of
    step; bands are 95% intervals of the mean. `measured`: subset_sgd.measure's, whose axis S is `budgets`, rising."""
    cases, kinds = (list(dict.fromkeys(key[place] for key in measured)) for place in (0, 1))
    figure, axes = new_figure(6.9, len(kinds), len(cases), sharex=True, sharey=True)
    for (case, kind), found in measured.items():
        ax = axes[kinds.index(kind), cases.index(case)]
        low_S_M, high_S_M = np.quantile(found.error_B_S_M[1:], [0.025, 0.975], axis=0)
        for s, style in enumerate(_budget_styles(budgets)):
            cost_M = found.cost_B_S_M[0, s]
            ax.plot(cost_M, found.error_B_S_M[0, s], label=_named(budgets[s]), **style)
            ax.fill_between(cost_M, low_S_M[s], high_S_M[s], color=style["color"], alpha=0.15, lw=0)
        ax.set(xscale="log", yscale="log", title=f"{case}\n{kind} step")
        _plain(ax.xaxis, (1e2, 1e3, 3e3, 1e4, 3e4, 1e5))
        _plain(ax.yaxis, (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2))
    for ax in axes[-1]:
        ax.set_xlabel("total cost (units of c)")
    for ax in axes[:, 0]:
        ax.set_ylabel("error f(x̄) − f*")
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=len(budgets), title="share of ΣG left out, dearest first")
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def savings(measured: Mapping[tuple[str, str], Measured], budgets: Sequence[float], title: str) -> Figure:
    """What each budget saves, against the error it reaches: a panel for each case, convex step, 95% intervals."""
    shown = {case: found for (case, kind), found in measured.items() if kind == "convex"}
    figure, axes = new_figure(4.2, 1, len(shown), sharex=True, sharey=True)
    for ax, (case, found) in zip(axes[0], shown.items(), strict=True):
        saved_B_S_M = subset_sgd.savings(found)
        low_S_M, high_S_M = np.quantile(saved_B_S_M[1:], [0.025, 0.975], axis=0)
        for s, style in list(enumerate(_budget_styles(budgets)))[1:]:
            error_M = found.error_B_S_M[0, s]
            ax.plot(error_M, saved_B_S_M[0, s], label=_named(budgets[s]), **style)
            ax.fill_between(error_M, low_S_M[s], high_S_M[s], color=style["color"], alpha=0.15, lw=0)
        ax.axhline(1, color="0.35", linewidth=1)
        ax.set(xscale="log", yscale="log", title=case, xlabel="error f(x̄) − f* reached")
        _plain(ax.xaxis, (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2))
        _plain(ax.yaxis, (0.1, 0.2, 0.5, 1, 2, 5))
    axes[0, 0].invert_xaxis()
    axes[0, 0].set_ylabel("saving (times the cost)")
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=len(budgets), title="share of ΣG left out, dearest first")
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def bias_floors(predicted: pd.DataFrame, title: str) -> Figure:
    """Where the minimiser of f_S leaves f, by case, under the two bounds on it; subset_sgd.predict's table."""
    figure, axes = new_figure(3.9)
    ax = axes[0, 0]
    partial = predicted[predicted["bias"] > 0]
    cases = list(partial["case"].unique())
    labels = {"bound": "bound DΔ", "bound_strong": "bound Δ²/(2μ)", **{case: case for case in cases}}
    for name, style in arm_styles(list(labels)).items():
        rows = partial[partial["case"] == (name if name in cases else cases[0])]
        ax.plot(rows["budget"], rows["floor" if name in cases else name], label=labels[name], **style)
    ax.set(yscale="log", xlabel="share of ΣG left out, dearest first", ylabel="bias f(x_S) − f*")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def _families(ax: Axes, table: pd.DataFrame) -> None:
    for shift, (method, style) in zip((-SHIFT, 0, SHIFT), arm_styles(list(METHODS)).items(), strict=True):
        by_family = table[table["method"] == method].groupby("family")["ratio"]
        place = np.arange(len(FAMILIES)) + shift
        middle, high, worst = (by_family.quantile(q).reindex(list(FAMILIES)) for q in (0.5, 0.95, 1.0))
        marks = {"color": style["color"], "marker": style["marker"], "linestyle": "none"}
        ax.hlines(place, middle, high, color=style["color"], linewidth=3)
        ax.plot(middle, place, label=method, **marks)
        ax.plot(worst, place, linestyle="none", marker="x", color=style["color"])
    ax.axvline(2, color="0.35", linewidth=1)
    ax.set(xscale="log", xlabel="weight / least weight", xlim=(0.93, None))
    ax.set_yticks(range(len(FAMILIES)), list(FAMILIES))
    ax.set_ylim(len(FAMILIES) - 0.5, -0.5)
    _plain(ax.xaxis, (1, 2, 5, 10, 20, 50))


def _budget_styles(budgets: Sequence[float]) -> list[dict]:
    return [BASELINE, *arm_styles([str(budget) for budget in budgets[1:]]).values()]


def _named(budget: float) -> str:
    return f"{budget:.0%}" if budget else "none"


def _plain(axis, ticks: Sequence[float]) -> None:
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1e4 else f"{value:g}")
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
