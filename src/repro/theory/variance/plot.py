"""Figures of the notebook on advantage variance. Drawing only: the numbers come from repro.theory."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, PercentFormatter

from repro.plots.style import BASELINE, COLORS, arm_styles, new_figure
from repro.theory.variance.closed_forms import (
    averaged_bound,
    gradient_factor,
    lemma_bound,
    proposition_2,
    selected_variance,
    signal_probability,
    useful_groups,
)

TITLES = {"grpo": "GRPO, whole group", "d1s": "D¹S", "pods": "PODS", "random": "random subset", "d1s-c": "D¹S-C"}
METHOD_STYLES = arm_styles(["d1s", "pods", "random", "d1s-c"])
DOTS = 60  # groups per query in the scatter
RUNGS = {
    "norm": "measured ‖∇‖",
    "triangle": "mean of |A|·‖∇ log π‖",
    "score": "√2 γ E|A|",
    "elementary": "2γ √(E A²)",
    "eq_4": "Prop. 1: 4γ",
}


def lemma(vectors: pd.DataFrame, binary: pd.DataFrame, group_size: int, title: str) -> Figure:
    """Variance of the best subset against its size: random vectors (least of all drawn), and the worst binary group."""
    figure, axes = new_figure(6.6, 2, 1, sharex=True)
    top, bottom = axes[:, 0]
    for law, style in arm_styles(list(dict.fromkeys(vectors["law"]))).items():
        rows = vectors[vectors["law"] == law]
        top.plot(rows["keep"], rows["least"], label=law, markevery=2, **style)
    top.axhline(1.0, **{**BASELINE, "linewidth": 1.2})
    top.set(yscale="log", ylabel="Var(A′), least drawn")
    top.yaxis.set_minor_formatter(NullFormatter())
    top.set_yticks([1, 1.5, 2, 3, 4], ["1", "1.5", "2", "3", "4"])
    top.legend(title="rewards", ncols=2)
    sizes = np.arange(2, group_size + 1)
    worst = binary[binary["group_size"] == group_size].groupby("keep")["variance"].min()
    bottom.axhline(1.0, label="Lemma 1 as printed", **{**BASELINE, "linewidth": 1.2})
    bottom.plot(worst.index, worst, "o", color=COLORS[1], label="worst group of rewards 0 and 1")
    bottom.plot(sizes, lemma_bound(group_size, sizes), color=COLORS[0], label="1, or 1 − 1/n² for odd n < G")
    simple = averaged_bound(group_size, sizes)
    bottom.plot(sizes, simple, color=COLORS[2], linestyle=(0, (5, 1.5)), label="(n−1)/n · G/(G−1)")
    bottom.set(ylim=(0.72, 1.03), xlabel=f"n, rollouts kept of G = {group_size}", ylabel="Var(A′), worst case")
    bottom.legend(loc="lower right")
    _heading(figure, title)
    return figure


def propositions(groups: pd.DataFrame, group_size: int, title: str) -> Figure:
    """Gradient norms of subsets against their advantage variance with the bounds, and the ladder of bounds."""
    figure, axes = new_figure(8.2, 2, 1, height_ratios=(3, 2))
    top, bottom = axes[:, 0]
    shown = groups[(groups["group"] < DOTS) & (groups["norm"] > 0)]
    for subset, face in (("random", "none"), ("d1s", COLORS[0])):
        rows = shown[shown["subset"] == subset]
        mark = {"marker": "o" if subset == "random" else "^", "linestyle": "none", "markersize": 4, "alpha": 0.6}
        color = METHOD_STYLES[subset]["color"]
        top.plot(rows["variance"], rows["norm"], color=color, markerfacecolor=face, label=TITLES[subset], **mark)
    above = shown[shown["norm"] > shown["eq_5"]]
    top.plot(above["variance"], above["norm"], "x", color=COLORS[1], label="above the bound: all of one reward")
    variance = np.geomspace(1e-12, shown["variance"].max(), 400)
    top.plot(variance, proposition_2(variance, group_size), label="Prop. 2 (eq. 5)", zorder=1, **BASELINE)
    top.set(yscale="log", xlabel="Var(A′), advantage variance of the subset", ylabel="‖∇‖ / γ")
    top.set_ylim(shown["norm"].quantile(0.002) / 2, 2 * proposition_2(variance[-1], group_size))
    top.legend(loc="lower right")
    whole = groups[(groups["subset"] == "grpo") & (groups["norm"] > 0)]
    for place, column in enumerate(RUNGS):
        low, median, high = np.quantile(whole[column], [0, 0.5, 1])
        bottom.plot([low, high], [place, place], color=COLORS[0], linewidth=5, alpha=0.4, solid_capstyle="butt")
        bottom.plot(median, place, "o", color=COLORS[0])
        bottom.annotate(f" {median:.2g}", (high, place), xytext=(5, 0), textcoords="offset points", va="center")
    bottom.set_yticks(range(len(RUNGS)), RUNGS.values())
    bottom.set_ylim(-0.5, len(RUNGS) - 0.5)
    bottom.set(xscale="log", xlabel="whole groups, in units of γ: median, least to largest", xlim=(None, 9))
    _heading(figure, title)
    return figure


def renormalising(within: pd.DataFrame, factors: pd.DataFrame, group_size: int, keep: int, title: str) -> Figure:
    """Var(A′) by the successes of a group, and expected gradients over GRPO's by p: closed forms and measurements."""
    figure, axes = new_figure(4.6, 1, 2)
    left, right = axes[0]
    k, rates = np.arange(1, group_size), np.linspace(0.02, 0.98, 97)
    left.plot(k / group_size, selected_variance(group_size, k, keep), color=COLORS[0])
    left.axhline(1.0, color=COLORS[1], linestyle=METHOD_STYLES["pods"]["linestyle"])
    base = gradient_factor(rates, group_size, keep, "grpo")
    for method in ("d1s", "pods"):
        style = METHOD_STYLES[method]
        own = factors[factors["method"] == method]
        line = {"color": style["color"], "linestyle": style["linestyle"]}
        mark = {"color": style["color"], "marker": style["marker"], "linestyle": "none", "markersize": 5}
        left.plot(within["successes"] / group_size, within[method], **mark)
        right.plot(rates, gradient_factor(rates, group_size, keep, method) / base, **line)
        right.errorbar(own["rate"], own["measured"], 1.96 * own["se"], capsize=2, **mark)
        left.plot([], [], label=TITLES[method], **{**mark, **line})
    right.axhline(1.0, **{**BASELINE, "linewidth": 1.2})
    left.plot([], [], label="GRPO", **{**BASELINE, "linewidth": 1.2})
    left.set(xlabel="share of successes, k/G", ylabel="Var(A′)", ylim=(0, None))
    right.set(xlabel="success rate p", ylabel="expected gradient / GRPO's", ylim=(0, None))
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    _heading(figure, title)
    return figure


def usefulness(table: pd.DataFrame, signal: float, group_size: int, groups: int, title: str) -> Figure:
    """Usefulness rate against n: closed forms (lines) and batches (mean with its 95%
    interval); crosses: share of the groups with a signal of which D¹S-C keeps anything at all."""
    figure, axes = new_figure(4.4)
    ax = axes[0, 0]
    _usefulness_lines(ax, signal, group_size, groups)
    for sampler, own in table.groupby("sampler"):
        style = METHOD_STYLES[sampler]
        mark = {"color": style["color"], "marker": style["marker"], "linestyle": "none", "capsize": 2}
        ax.errorbar(own["keep"], own["useful"], 1.96 * own["useful_se"], **mark)
        if sampler == "d1s-c":
            ax.plot(
                own["keep"], own["coverage"], "x:", color="0.4", linewidth=1, label="D¹S-C: useful groups that train"
            )
    ax.legend(loc="lower left")
    _heading(figure, title)
    return figure


def explore_usefulness(spread: float, *, group_size: int, groups: int) -> Figure:
    """The closed forms alone for success rates p ~ Beta(spread, spread): the smaller, the more extreme queries."""
    figure, axes = new_figure(4.4)
    _usefulness_lines(axes[0, 0], float(signal_probability(spread, spread, group_size)), group_size, groups)
    _heading(figure, f"What if success rates follow Beta({spread:g}, {spread:g})?")
    return figure


def _usefulness_lines(ax, signal: float, group_size: int, groups: int) -> None:
    sizes = np.arange(2, group_size + 1)
    for sampler in ("d1s", "d1s-c"):
        style = METHOD_STYLES[sampler]
        rate = useful_groups(signal, groups, group_size, sizes, cross=sampler == "d1s-c")
        label = f"{TITLES[sampler]}, {'across groups' if sampler == 'd1s-c' else 'within groups (and GRPO)'}"
        ax.plot(sizes, rate, label=label, color=style["color"], linestyle=style["linestyle"])
    ax.axvline(signal * group_size, color="0.35", linewidth=1)
    ax.annotate("n = uG ", (signal * group_size, 0.05), ha="right")
    ax.set(xlabel=f"n, rollouts kept per group of G = {group_size}", ylabel="useful groups among those trained")
    ax.set_ylim(0, 1.05)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.legend(loc="lower left")


def _heading(figure: Figure, title: str) -> None:
    figure.suptitle(title, x=0.01, ha="left", fontsize=14, fontweight="bold")
