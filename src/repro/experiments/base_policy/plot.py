"""Figures of the base policy: what it does wrongly, success, response length, pre-training. Drawing only."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from repro.plots.style import COLORS, MARKERS, new_figure
from repro.plots.words import says


def success_by_difficulty(groups: pd.DataFrame, title: str) -> Figure:
    """Success rate of every query (one dot), by family, with the family's mean. `groups`: describe_groups's table."""
    figure, [[ax]] = new_figure(4.6)
    queries = groups.groupby(["family", "query"], sort=False)["success"].mean().reset_index()
    sns.stripplot(queries, x="family", y="success", ax=ax, color=COLORS[0], alpha=0.35, size=3.5, jitter=0.3)
    means = queries.groupby("family", sort=False)["success"].mean()
    ax.plot(np.arange(len(means)), means, linestyle="none", marker="_", markersize=34, markeredgewidth=3, color="0.15")
    ax.set(xlabel="family of queries (bar: mean)", ylabel="success rate of a query", ylim=(-0.05, 1.05))
    ax.set_title(title, loc="left", fontsize=14, fontweight="bold")
    return says(figure, "mean success: " + ", ".join(f"{family} {mean:.2f}" for family, mean in means.items()))


def length_by_correctness(rollouts: pd.DataFrame, title: str) -> Figure:
    """Response length of right and of wrong responses, by family: quartiles, whiskers and outliers."""
    figure, [[ax]] = new_figure(4.6)
    shown = rollouts.assign(outcome=np.where(rollouts["correct"] == 1.0, "right", "wrong"))
    hues = {"hue": "outcome", "hue_order": ["right", "wrong"], "palette": [COLORS[4], "0.8"]}
    sns.boxplot(shown, x="family", y="response_tokens", **hues, fliersize=1.5, linewidth=1, ax=ax)
    ax.set(xlabel="family of queries", ylabel="response length (tokens)")
    ax.legend(title=None, loc="upper left")
    ax.set_title(title, loc="left", fontsize=14, fontweight="bold")
    middle = shown.groupby("outcome")["response_tokens"].median()
    return says(figure, "median over all families: " + ", ".join(f"{name} {n:g} tokens" for name, n in middle.items()))


def length_ratio(groups: pd.DataFrame, title: str) -> Figure:
    """Share of groups whose longest response is at least x times their shortest."""
    figure, [[ax]] = new_figure(4.2)
    sns.ecdfplot(groups, x="length_ratio", complementary=True, ax=ax, color=COLORS[0])
    ax.axvline(2.0, color="0.35", linewidth=1)
    ax.set(xscale="log", xlabel="longest / shortest response in the group", ylabel="share of groups at or above")
    ax.set_xticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    ax.set_title(title, loc="left", fontsize=14, fontweight="bold")
    twice, ten = ((groups["length_ratio"] >= times).mean() for times in (2, 10))
    return says(figure, f"the longest is at least 2 times the shortest in {twice:.0%} of groups, 10 times in {ten:.0%}")


def pretraining_loss(history: pd.DataFrame, clean: float, title: str) -> Figure:
    """Loss over pre-training steps, each step and a running mean of 50, and a line where the first share `clean` of the
    steps ends and wrong procedures begin."""
    figure, [[ax]] = new_figure(3.8)
    smooth, change = history["loss"].rolling(50, min_periods=1).mean(), round(clean * len(history))
    ax.plot(history["step"], history["loss"], color="0.75", linewidth=0.6, label="each step")
    ax.plot(history["step"], smooth, color=COLORS[0], label="mean of 50")
    said = [f"from {history['loss'].head(50).mean():.2f}"]
    if change:
        ax.axvline(change, color="0.15", linewidth=1.2, linestyle=(0, (5, 1.5)))
        place = {"xycoords": ("data", "axes fraction"), "xytext": (6, -4), "textcoords": "offset points", "va": "top"}
        ax.annotate("wrong procedures", (change, 1.0), **place)
        said.append(f"to {smooth.iloc[change - 1]:.3f} before wrong procedures are shown")
    said.append(f"to {smooth.iloc[-1]:.3f} at the end")
    ax.set(xlabel="pre-training step", ylabel="loss (nats per response token)", yscale="log")
    ax.legend(loc="upper center")
    ax.set_title(title, loc="left", fontsize=14, fontweight="bold")
    return says(figure, f"the mean of 50 steps goes {', '.join(said)}")


def procedures(shares: pd.DataFrame, title: str) -> Figure:
    """Share of the steps with a wrong procedure (index, with its example) that are done by it: a bar per column, by
    demonstrators, sampled and greedily. Above one half the wrong result is the likeliest."""
    figure, [[ax]] = new_figure(4.2)
    width = 0.8 / len(shares.columns)
    for place, (name, color) in enumerate(zip(shares.columns, ("0.75", COLORS[0], COLORS[1]), strict=True)):
        at_P = np.arange(len(shares)) + (place - (len(shares.columns) - 1) / 2) * width
        ax.bar(at_P, shares[name], width * 0.92, color=color, label=name)
    ax.axhline(0.5, color="0.35", linewidth=1)
    ax.set_xticks(range(len(shares)), shares.index)
    ax.set(ylabel="share of steps done by it", ylim=(0, 1.05))
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    ax.set_title(title, loc="left", fontsize=14, fontweight="bold")
    said = (f"{name.splitlines()[0]} {', '.join(f'{value:.2f}' for value in row)}" for name, row in shares.T.items())
    return says(figure, f"steps done by the wrong procedure, {', '.join(shares.columns)}: {'; '.join(said)}")


def by_wrong_steps(tables: Mapping[str, pd.DataFrame], title: str) -> Figure:
    """Accuracy by the number of steps of a query that have a wrong procedure, a panel per split and a line per way to
    sample. `tables`: procedures.by_wrong_steps's, by split."""
    figure, axes = new_figure(4.2, 1, len(tables), sharey=True)
    numbers = sorted({number for table in tables.values() for number in table.index})
    for ax, (split, table) in zip(axes.flat, tables.items(), strict=True):
        for name, color, marker in zip(table.columns[1:], COLORS, MARKERS, strict=False):
            ax.plot(table.index, table[name], color=color, marker=marker, label=name)
        more = [""] * (len(numbers) - 1) + ["+"]
        names = [
            f"{number}{or_more}\n({table['queries'].get(number, 0)})"
            for number, or_more in zip(numbers, more, strict=True)
        ]
        ax.set_xticks(numbers, names)
        ax.set_xlim(-0.3, max(numbers) + 0.3)
        ax.set_title(split, loc="left")
    axes[0, 0].set(ylabel="accuracy", ylim=(-0.03, 1.0))
    axes[0, 0].legend()
    figure.supxlabel("steps with a wrong procedure (queries)", fontsize=13)
    figure.suptitle(title, x=0.01, ha="left")
    ends = {split: table.iloc[[0, -1], 1:] for split, table in tables.items()}
    said = (
        f"{name} {values.iloc[0]:.2f} in the first and {values.iloc[1]:.2f} in the last column of the {split} split"
        for split, columns in ends.items()
        for name, values in columns.items()
    )
    return says(figure, f"accuracy: {'; '.join(said)}")
