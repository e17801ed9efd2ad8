"""Figures of the planner. Drawing only."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from repro.plots.style import COLORS, MARKERS, new_figure
from repro.plots.words import says

PHASES = {"generate": "", "score": "///", "train": "...", "other": "xx"}


def phases(plan: pd.DataFrame, names: Mapping[str, str], title: str) -> Figure:
    """GPU-hours of one arm at every scale, stacked by phase. `plan`: the arm's rows of
    repro.experiments.planner.plan.predict; `names`: titles of the scales."""
    figure, axes = new_figure(0.5 * len(plan) + 1.6)
    ax, left = axes[0, 0], 0.0
    labels = [names[scale] for scale in plan["scale"]]
    for (phase, hatch), color in zip(PHASES.items(), COLORS, strict=False):
        width = plan[f"hours_{phase}"].to_numpy() * plan["gpus"].to_numpy()
        ax.barh(labels, width, left=left, label=phase, color=color, hatch=hatch, edgecolor="white", linewidth=0.5)
        left = left + width
    ax.invert_yaxis()
    ax.set_xlabel("GPU-hours of a run")
    ax.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=len(PHASES))
    figure.suptitle(title, x=0.01, ha="left")
    share = plan["hours_generate"] / plan["hours"]
    total = plan["hours"] * plan["gpus"]
    spans = f"{share.min():.0%} to {share.max():.0%} of {total.min():,.0f} to {total.max():,.0f} GPU-hours"
    return says(figure, f"generation takes {spans}")


def savings(plan: pd.DataFrame, titles: Mapping[str, str], baseline: str, title: str) -> Figure:
    """Hours and trained tokens of a run, arm by arm at one scale, relative to the baseline. Bars: the range over draws.

    `plan`: rows of one scale from repro.experiments.planner.plan.relative, with the columns of
    repro.experiments.planner.sensitivity.over_draws.
    """
    ordered = plan.sort_values("hours_ratio", kind="stable")
    names = [titles[arm] for arm in ordered["arm"]]
    figure, axes = new_figure(0.28 * len(ordered) + 1.6)
    ax = axes[0, 0]
    for place, (column, label) in enumerate(
        {"hours_ratio": "hours", "trained_ratio": "trained tokens, as verl computes them"}.items()
    ):
        ends = ordered[f"{column}_low"], ordered[f"{column}_high"]
        ax.hlines(names, *ends, color=COLORS[place], linewidth=1.5)
        face = COLORS[place] if place == 0 else "white"  # filled or hollow: distinguishable in grey too
        ax.plot(ordered[column], names, MARKERS[place], color=COLORS[place], markerfacecolor=face, label=label)
    ax.margins(y=0.01)
    ax.axvline(1.0, color="0.1", linewidth=1)
    ax.invert_yaxis()
    ax.set_xlabel(f"of a whole run, {titles[baseline]}'s = 1")
    figure.legend(loc="outside lower center", ncols=2)
    figure.suptitle(title, x=0.01, ha="left")
    ends = (f"{titles[row.arm]} {row.hours_ratio:.2f}" for row in ordered.iloc[[0, -1]].itertuples())
    return says(figure, f"hours relative to {titles[baseline]}, least and most: {', '.join(ends)}")


def lengths(
    table: pd.DataFrame, stated: Mapping[tuple[str, str], float], names: Mapping[str, str], title: str
) -> Figure:
    """Predicted hours against mean response length, one line per run whose duration a paper reports. Dotted: these
    durations.

    `table`: from repro.experiments.planner.plan.by_length; `stated`: {(scale, arm): hours}; `names`: titles of the
    scales."""
    figure, axes = new_figure(4.6)
    ax = axes[0, 0]
    for place, (run, part) in enumerate(table.groupby(["scale", "arm"], sort=False)):
        ordered, color = part.sort_values("response_tokens"), COLORS[place % len(COLORS)]
        label = f"{run[1]}: {names[run[0]]}"
        ax.plot(ordered["response_tokens"], ordered["hours"], marker=MARKERS[place], color=color, label=label)
    for hours in sorted(set(stated.values())):
        arms = ", ".join(arm for (_, arm), value in stated.items() if value == hours)
        ax.axhline(hours, color="0.35", linestyle=(0, (1.2, 1.2)), linewidth=1.5)
        ax.annotate(f"the paper, {arms}: {hours:.0f} h", (0.02, hours), (0, 4), xycoords=("axes fraction", "data"),
                    textcoords="offset points", color="0.15", fontsize=11.5)  # fmt: skip
    ax.set(xlabel="mean response, tokens", ylabel="hours", ylim=(0, 1.1 * max(stated.values())))
    figure.legend(loc="outside lower center", ncols=1)
    figure.suptitle(title, x=0.01, ha="left")
    reached = table.groupby(["scale", "arm"])["hours"].max()
    ends = (f"{arm} {reached[scale, arm]:.0f} of {hours:.0f}" for (scale, arm), hours in stated.items())
    return says(figure, f"hours predicted at the greatest length, of the paper's: {', '.join(ends)}")
