"""Figures of the planner. Drawing only."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from repro.plots.interactive import lines, rows
from repro.plots.style import COLORS, MARKERS, new_figure
from repro.plots.words import says

PHASES = {"generate": "", "score": "///", "train": "...", "other": "xx"}
RATIOS = {"hours_ratio": "hours", "trained_ratio": "trained tokens, as verl computes them"}
SHAPES = ("circle", "square")  # the first of MARKERS, as a drawing calls them


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
    return _answering_phases(says(figure, f"generation takes {spans}"), plan, labels)


def _answering_phases(figure: Figure, plan: pd.DataFrame, labels: Sequence[str]) -> Figure:
    """`figure` with its drawing: the hours of one phase at a time beside those of the whole run."""
    parts, whole = [], (plan["hours"] * plan["gpus"]).to_numpy(float)
    for (phase, _), color in zip(PHASES.items(), COLORS, strict=False):
        value = (plan[f"hours_{phase}"] * plan["gpus"]).to_numpy(float)
        said = [f"{hours:,.0f} GPU-hours, {hours / of:.0%}" for hours, of in zip(value, whole, strict=True)]
        alone = dict.fromkeys(["value", "low", "high"], value)
        look = {"colour": color, "fill": color, "shape": "circle"}
        parts.append(pd.DataFrame({"scale": labels, "phase": phase, **alone, "reference": whole, "said": said, **look}))
    ends = dict.fromkeys(PHASES, (0.0, 1.05 * whole.max()))
    note = "GPU-hours of a run. Black: of all phases together."
    choices = {"phase": {phase: phase for phase in PHASES}}
    return rows(figure, pd.concat(parts, ignore_index=True), by="scale", limits=ends, choices=choices, note=note)


def savings(plan: pd.DataFrame, titles: Mapping[str, str], baseline: str, title: str) -> Figure:
    """Hours and trained tokens of a run, arm by arm at one scale, relative to the baseline. Bars: the range over draws.

    `plan`: rows of one scale from repro.experiments.planner.plan.relative, with the columns of
    repro.experiments.planner.sensitivity.over_draws.
    """
    ordered = plan.sort_values("hours_ratio", kind="stable")
    names = [titles[arm] for arm in ordered["arm"]]
    figure, axes = new_figure(0.28 * len(ordered) + 1.6)
    ax = axes[0, 0]
    for place, (column, label) in enumerate(RATIOS.items()):
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
    says(figure, f"hours relative to {titles[baseline]}, least and most: {', '.join(ends)}")
    return _answering(figure, ordered.assign(arm=names))


def _answering(figure: Figure, ordered: pd.DataFrame) -> Figure:
    """`figure` with its drawing: one ratio at a time."""
    parts, limits = [], {}
    for place, column in enumerate(RATIOS):
        ends = ordered[[column, f"{column}_low", f"{column}_high"]].set_axis(["value", "low", "high"], axis=1)
        limits[column] = (min(1.0, float(ends.min(axis=None))) - 0.03, max(1.0, float(ends.max(axis=None))) + 0.03)
        said = [f"{row.value:.2f}, draws from {row.low:.2f} to {row.high:.2f}" for row in ends.itertuples()]
        fill = COLORS[place] if place == 0 else "white"
        look = {"colour": COLORS[place], "fill": fill, "shape": SHAPES[place]}
        parts.append(ends.assign(arm=ordered["arm"], panel=column, said=said, reference=1.0, **look))
    points = pd.concat(parts, ignore_index=True)
    note = "Relative to the baseline, the black line. Lines: the range over draws of batches."
    return rows(figure, points, by="arm", limits=limits, choices={"panel": RATIOS}, note=note, order="by hours")


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
    says(figure, f"hours predicted at the greatest length, of the paper's: {', '.join(ends)}")
    named = table.assign(
        run=[f"{arm}: {names[scale]}" for scale, arm in zip(table["scale"], table["arm"], strict=True)]
    )
    span = table["response_tokens"].agg(["min", "max"]).to_numpy()
    papers = [pd.DataFrame({"run": f"the paper, {arm}", "response_tokens": span, "hours": hours})
              for (_, arm), hours in stated.items()]  # fmt: skip
    columns = ["run", "response_tokens", "hours"]
    curves = pd.concat([named.sort_values("response_tokens", kind="stable")[columns], *papers], ignore_index=True)
    named_axes = ("mean response (tokens)", "hours")
    return lines(figure, curves, x="response_tokens", y="hours", by="run", labels=named_axes)
