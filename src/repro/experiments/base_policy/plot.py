"""Figures of the base policy: success, response length and pre-training. Drawing only."""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from repro.plots.style import COLORS, new_figure
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


def pretraining_loss(history: pd.DataFrame, title: str) -> Figure:
    """Loss over pre-training steps, each step and a running mean of 50."""
    figure, [[ax]] = new_figure(3.8)
    ax.plot(history["step"], history["loss"], color="0.75", linewidth=0.6, label="each step")
    ax.plot(history["step"], history["loss"].rolling(50, min_periods=1).mean(), color=COLORS[0], label="mean of 50")
    ax.set(xlabel="pre-training step", ylabel="loss (nats per response token)", yscale="log")
    ax.legend()
    ax.set_title(title, loc="left", fontsize=14, fontweight="bold")
    first, last = history["loss"].head(50).mean(), history["loss"].tail(50).mean()
    return says(figure, f"the mean of 50 steps falls from {first:.2f} to {last:.2f} nats per token")
