"""Figures of the planner. Drawing only."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from repro.plots.style import COLORS, MARKERS, new_figure

PHASES = {"generate": "", "score": "///", "train": "...", "other": "xx"}


def phases(plan: pd.DataFrame, title: str) -> Figure:
    """GPU-hours of one arm at every scale, by phase, stacked. `plan`: its rows of repro.planner.predict's."""
    figure, axes = new_figure(0.5 * len(plan) + 1.6)
    ax, left = axes[0, 0], 0.0
    for (phase, hatch), color in zip(PHASES.items(), COLORS, strict=False):
        width = plan[f"hours_{phase}"] * plan["gpus"]
        ax.barh(
            plan["scale"], width, left=left, label=phase, color=color, hatch=hatch, edgecolor="white", linewidth=0.5
        )
        left = left + width
    ax.invert_yaxis()
    ax.set_xlabel("GPU-hours")
    ax.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=len(PHASES))
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def savings(plan: pd.DataFrame, titles: Mapping[str, str], title: str) -> Figure:
    """Each arm's hours and trained tokens of a run at one scale, relative to the baseline. `plan`: rows of one scale of
    repro.planner.plan.relative's."""
    ordered = plan.sort_values("hours_ratio", kind="stable")
    names = [titles[arm] for arm in ordered["arm"]]
    figure, axes = new_figure(0.28 * len(ordered) + 1.6)
    ax = axes[0, 0]
    for place, (column, label) in enumerate({"hours_ratio": "hours", "trained_ratio": "trained tokens"}.items()):
        ax.plot(ordered[column], names, MARKERS[place], color=COLORS[place], label=label)
    ax.margins(y=0.01)
    ax.axvline(1.0, color="0.1", linewidth=1)
    ax.invert_yaxis()
    ax.set_xlabel("relative to the baseline, a whole run")
    figure.legend(loc="outside lower center", ncols=2)
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def lengths(table: pd.DataFrame, stated: Mapping[tuple[str, str], float], title: str) -> Figure:
    """Predicted hours over the mean response, one line per run whose duration a paper states; dotted: that duration.

    `table`: repro.planner.plan.by_length's; stated: {(scale, arm): hours}."""
    figure, axes = new_figure(4.4)
    ax = axes[0, 0]
    for place, (run, part) in enumerate(table.groupby(["scale", "arm"], sort=False)):
        ordered, color = part.sort_values("response_tokens"), COLORS[place % len(COLORS)]
        label = f"{run[1]}, {run[0].removeprefix('paper-')}"
        ax.plot(ordered["response_tokens"], ordered["hours"], marker=MARKERS[place], color=color, label=label)
        ax.axhline(stated[run], color=color, linestyle=(0, (1.2, 1.2)), linewidth=1.5)
    ax.set(xlabel="mean response, tokens", ylabel="hours", ylim=(0, None))
    figure.legend(loc="outside lower center", ncols=1)
    figure.suptitle(title, x=0.01, ha="left")
    return figure
