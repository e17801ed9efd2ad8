"""The figure of sharpening: gains at lower temperatures and with more samples. Drawing only."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from repro.plots.forest import reach
from repro.plots.interactive import rows as answering_rows
from repro.plots.style import COLORS, MARKERS, STRIPE, new_figure
from repro.plots.words import says
from repro.stats.tables import interval

Measure = tuple[float, int]  # temperature and k


def gains(
    table: pd.DataFrame,
    panels: Mapping[str, Mapping[Measure, str]],
    titles: Mapping[str, str],
    title: str,
) -> Figure:
    """A panel for each of `panels`, {what differs: {(temperature, k): label}}: the arms' gains over their base policy
    with intervals. `table`: of `gains.gains`; `titles` of arms, from top to bottom."""
    arms = list(titles)
    figure, axes = new_figure(1.7 + 0.62 * len(arms), 1, len(panels), width=9.6, sharex=True, sharey=True)
    for ax, (heading, measures) in zip(axes[0], panels.items(), strict=True):
        for place, (measure, label) in enumerate(measures.items()):
            own = _of(table, measure).loc[arms]
            at = [row + 0.17 * (place - (len(measures) - 1) / 2) for row in range(len(arms))]
            color, last = COLORS[place], place == len(measures) - 1
            ax.hlines(at, own["gain_low"], own["gain_high"], color=color, linewidth=1.6)
            look = {"color": color, "markerfacecolor": color if last else "white", "markeredgewidth": 1.6}
            ax.plot(own["gain"], at, MARKERS[place], label=label, markersize=6.5, **look)
        for row in range(1, len(arms), 2):
            ax.axhspan(row - 0.5, row + 0.5, color=STRIPE, zorder=0)
        ax.axvline(0, color="0.35", linewidth=1)
        ax.grid(axis="y", visible=False)
        ax.set_title(heading, loc="left", fontsize=12)
        ax.set_xlabel("gain over the base policy")
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    axes[0, 0].set_yticks(range(len(arms)), list(titles.values()))
    axes[0, 0].set_ylim(len(arms) - 0.45, -0.55)
    figure.suptitle(title, x=0.01, ha="left")
    measures = {label: measure for panel in panels.values() for measure, label in panel.items()}
    return _answering(says(figure, _finding(table, measures)), table, measures, titles)


def _of(table: pd.DataFrame, measure: Measure) -> pd.DataFrame:
    return table[(table["temperature"] == measure[0]) & (table["k"] == measure[1])].set_index("arm")


def _finding(table: pd.DataFrame, measures: Mapping[str, Measure]) -> str:
    spans = {label: _of(table, measure)["gain"] for label, measure in measures.items()}
    return "gains: " + "; ".join(f"{label}, {gain.min():+.3f} to {gain.max():+.3f}" for label, gain in spans.items())


def _answering(
    figure: Figure, table: pd.DataFrame, measures: Mapping[str, Measure], titles: Mapping[str, str]
) -> Figure:
    """`figure` with its drawing: one of `measures`, {label: (temperature, k)}, at a time."""
    parts = []
    for label, measure in measures.items():
        own = _of(table, measure).loc[list(titles)].reset_index()
        ends = own[["gain", "gain_low", "gain_high"]].set_axis(["value", "low", "high"], axis=1)
        parts.append(ends.assign(arm=own["arm"].map(titles), measure=label))
    look = {"colour": COLORS[0], "fill": COLORS[0], "shape": "circle", "reference": 0.0}
    points = pd.concat(parts, ignore_index=True).assign(**look)
    points["said"] = [interval(*row, "+.3f") for row in points[["value", "low", "high"]].to_numpy(float)]
    ends = reach(points[["value", "low", "high"]].to_numpy(float))
    return answering_rows(
        figure,
        points,
        by="arm",
        limits=dict.fromkeys(measures, ends),
        choices={"measure": {label: label for label in measures}},
    )
