"""Figures of training runs: accuracy against cost, dynamics, cost ratios. Drawing only."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from repro.plots.style import arm_styles, use_style
from repro.settings import Statistics
from repro.study.intervals import mean_intervals

AXES = {
    "trained_tokens": "tokens trained on",
    "flops": "FLOPs, rollouts and updates",
    "seconds": "seconds, rollouts and updates, one thread",
}
DYNAMICS = {
    "reward": "mean reward of the batch",
    "groups_without_signal": "share of groups without signal",
    "entropy": "entropy (nats per token)",
    "kl": "KL to the base policy (nats per token)",
    "gradient_norm": "gradient norm before clipping",
    "gradient_clipped": "share of updates with a clipped gradient",
    "response_tokens": "response length (tokens)",
    "selected_tokens": "tokens trained on, per step",
    "distinct_rollouts": "distinct rollouts trained on, per step",
    "effective_sample_size": "effective sample size (rollouts)",
    "largest_weight": "largest weight",
    "clipped": "share of tokens clipped",
    "truncated": "share of responses truncated",
}


def accuracy_curves(
    evaluations: pd.DataFrame, titles: Mapping[str, str], axes: Sequence[str], statistics: Statistics, title: str
) -> Figure:
    """Held-out accuracy against each cost in `axes`, one panel each, for the arms of `titles` in their order.

    Thin lines: every seed. Thick line: mean over seeds, at the seeds' mean cost. Band: bootstrap interval of the mean.
    """
    use_style()
    figure, panels = plt.subplots(1, len(axes), figsize=(5.6 * len(axes), 4.8), sharey=True, squeeze=False)
    for ax, axis in zip(panels[0], axes, strict=True):
        for arm, style in arm_styles(list(titles)).items():
            runs = evaluations[evaluations["arm"] == arm]
            _seeds_and_mean(ax, runs, axis, "accuracy", style, titles[arm], statistics)
        ax.set_xlabel(AXES[axis])
        if axis != "seconds":
            ax.xaxis.set_major_formatter(EngFormatter(sep=" "))
    seeds = evaluations["seed"].nunique()
    panels[0][0].set_ylabel("held-out accuracy (pass@1)")
    panels[0][-1].legend(loc="lower right", title=f"mean of {seeds} seeds, {statistics.confidence:.0%} interval")
    figure.suptitle(title)
    plt.close(figure)
    return figure


def dynamics(
    steps: pd.DataFrame, titles: Mapping[str, str], metrics: Sequence[str], statistics: Statistics, title: str
) -> Figure:
    """Each metric of `DYNAMICS` over training steps: mean over seeds with its interval, one panel each, two a row."""
    use_style()
    rows = -(-len(metrics) // 2)
    figure, panels = plt.subplots(rows, 2, figsize=(10.0, 3.1 * rows), sharex=True, squeeze=False)
    for ax, metric in zip(panels.flat, metrics, strict=False):
        for arm, style in arm_styles(list(titles)).items():
            runs = steps[(steps["arm"] == arm) & steps[metric].notna()]
            smoothed = runs.assign(**{metric: _smoothed(runs, metric)})
            bare = {**style, "marker": None}
            _seeds_and_mean(ax, smoothed, "step", metric, bare, titles[arm], statistics, seeds=False)
        ax.set_title(DYNAMICS[metric], loc="left")
    for ax in panels.flat[len(metrics) :]:
        ax.set_axis_off()
    for ax in panels[-1]:
        ax.set_xlabel("training step")
    panels.flat[0].legend(loc="best")
    figure.suptitle(title)
    plt.close(figure)
    return figure


def cost_ratios(summary: pd.DataFrame, titles: Mapping[str, str], axis: str, level: float, title: str) -> Figure:
    """Cost to reach the baseline's level relative to the baseline, per arm, with its interval; an open marker where an
    arm never got there, so that the ratio is a lower bound."""
    use_style()
    name = f"{axis}_ratio_{round(100 * level)}"
    figure, ax = plt.subplots(figsize=(7.4, 1.6 + 0.55 * len(titles)))
    for place, (arm, style) in enumerate(arm_styles(list(titles)).items()):
        row = summary.set_index("arm").loc[arm]
        point = {"color": style["color"], "marker": style["marker"], "markersize": 9}
        ax.plot([row[f"{name}_low"], row[f"{name}_high"]], [place, place], color=style["color"])
        ax.plot(
            row[name],
            place,
            **point,
            markerfacecolor=style["color"] if row[f"{name}_reached"] else "white",
            linestyle="none",
        )
    ax.axvline(1.0, color="0.35", linewidth=1)
    ax.set_yticks(range(len(titles)), titles.values())
    ax.set_ylim(len(titles) - 0.5, -0.5)
    ax.set_xlabel(f"{AXES[axis]}, relative to the baseline (less is better)")
    ax.set_title(title, loc="left")
    plt.close(figure)
    return figure


def _smoothed(runs: pd.DataFrame, metric: str, window: int = 5) -> pd.Series:
    """Running mean over five steps within each seed; batches are small and their metrics noisy."""
    return runs.groupby("seed")[metric].transform(lambda values: values.rolling(window, min_periods=1).mean())


def _seeds_and_mean(
    ax: Axes,
    runs: pd.DataFrame,
    x: str,
    y: str,
    style: dict,
    label: str,
    statistics: Statistics,
    seeds: bool = True,
) -> None:
    if runs.empty:  # every step was skipped
        return
    if seeds:
        for _, run in runs.groupby("seed"):
            ax.plot(run[x], run[y], color=style["color"], linestyle=style["linestyle"], linewidth=0.7, alpha=0.35)
    means = runs.assign(x=runs[x], y=runs[y]).groupby("step")[["x", "y"]].mean()
    by_step = {str(step): group[y].to_numpy() for step, group in runs.groupby("step")}
    band = np.array([mean_intervals({"y": values}, statistics)["y"][1:] for values in by_step.values()])
    ax.plot(means["x"], means["y"], label=label, **style)
    ax.fill_between(means["x"], band[:, 0], band[:, 1], color=style["color"], alpha=0.15, linewidth=0)
