"""The figures of longer runs: fitted ends and speeds, curves with their fits. Drawing only."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from repro.experiments.longer.ends import LOGS
from repro.plots import grid
from repro.plots.interactive import lines
from repro.plots.interactive import rows as answering_rows
from repro.plots.style import BASELINE, COLORS, STRIPE, new_figure
from repro.plots.words import says
from repro.stats.saturation import Curves
from repro.stats.tables import interval

TICKS = (0.25, 0.5, 1.0, 2.0, 4.0)
POINTS = 60  # of a fitted curve
LOOKS = {"higher": (COLORS[0], COLORS[0]), "lower": (COLORS[1], COLORS[1]), "open": ("0.35", "white")}


def parameters(table: pd.DataFrame, measures: Mapping[str, str], titles: Mapping[str, str], title: str) -> Figure:
    """A panel for each of `measures`, {measure: label}: arms against the baseline with intervals, base policies as
    dots. `table`: of `ends.differences`; `titles` of arms, from top to bottom."""
    figure, axes = new_figure(1.9 + 0.45 * len(titles), 1, len(measures), width=9.6, sharey=True)
    for ax, (measure, label) in zip(axes[0], measures.items(), strict=True):
        own = table[table["measure"] == measure].set_index("arm")
        for row, arm in enumerate(titles):
            if arm not in own.index:  # its curve does not tell
                continue
            of = own.loc[arm]
            edge, inside = LOOKS[of.answer]
            ax.plot(of.by_policy, [row] * len(of.by_policy), "o", color="0.65", markersize=4)
            ax.plot([of.value_low, of.value_high], [row, row], color=edge, linewidth=1.8)
            ax.plot(of.value, row, "o", color=edge, markerfacecolor=inside, markersize=7, markeredgewidth=1.6)
        _panel(ax, measure in LOGS, label, len(titles))
    axes[0, 0].set_yticks(range(len(titles)), list(titles.values()))
    axes[0, 0].set_ylim(len(titles) - 0.45, -0.55)
    figure.suptitle(title, x=0.01, ha="left")
    found = [_resolved(table[table["measure"] == measure], label, titles) for measure, label in measures.items()]
    return _answering(says(figure, "; ".join(found)), table, measures, titles)


def _panel(ax: Axes, log: bool, label: str, rows: int) -> None:
    if log:
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(FixedLocator(TICKS))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.axvline(1.0 if log else 0.0, color="0.35", linewidth=1)
    ax.set_xlabel(label)
    ax.grid(axis="y", visible=False)
    for row in range(1, rows, 2):
        ax.axhspan(row - 0.5, row + 0.5, color=STRIPE, zorder=0)


def _resolved(own: pd.DataFrame, label: str, titles: Mapping[str, str]) -> str:
    found = own[own["answer"] != "open"]
    named = (f"{titles[row.arm]} {row.answer}" for row in found.itertuples())
    return f"{' '.join(label.split())}: {', '.join(named) or 'no arm is told from the baseline'}"


def _answering(figure: Figure, table: pd.DataFrame, measures: Mapping[str, str], titles: Mapping[str, str]) -> Figure:
    """`figure` with its drawing: one measure at a time."""
    own = table[table["measure"].isin(list(measures)) & table["arm"].isin(list(titles))]
    ends = own[["value", "value_low", "value_high"]].set_axis(["value", "low", "high"], axis=1)
    looks = own["answer"].map(LOOKS).map(lambda pair: ["#595959" if part == "0.35" else part for part in pair])
    log = own["measure"].isin(LOGS)
    spec = np.where(log, ".2f", "+.3f")
    points = ends.assign(
        arm=own["arm"].map(titles),
        panel=own["measure"],
        reference=np.where(log, 1.0, 0.0),
        said=[interval(*row, form) for row, form in zip(ends.to_numpy(float), spec, strict=True)],
        colour=looks.str[0],
        fill=looks.str[1],
        shape="circle",
    )
    limits = {measure: _limits(points[points["panel"] == measure]) for measure in measures}
    choices = {"panel": {measure: " ".join(label.split()) for measure, label in measures.items()}}
    note = "Filled: higher or lower after correction; white: open."
    return answering_rows(figure, points, by="arm", limits=limits, choices=choices, log=LOGS, note=note)


def _limits(points: pd.DataFrame) -> tuple[float, float]:
    ends = points[["low", "high", "reference"]].to_numpy(float)
    return float(ends.min()), float(ends.max())


def curves(
    table: pd.DataFrame,
    fits: Mapping[str, Curves],
    arms: Sequence[str],
    baseline: str,
    titles: Mapping[str, str],
    title: str,
) -> Figure:
    """A panel for each of `arms`: mean accuracy at each evaluation, over seeds, of the arm and the baseline, and their
    fitted curves, a line style for each base policy of `fits`. `table`: of `ends.load`."""
    order = [baseline, *arms]
    figure, panels = grid.grid(arms, titles, ("GFLOP spent", "held-out accuracy"), title)
    means = table.groupby(["policy", "arm", "step"], sort=False)[["gflop", "accuracy"]].mean().reset_index()
    drawn = []
    for arm, ax in panels.items():
        for (policy, fit), dash in zip(fits.items(), ("-", (0, (5, 1.5))), strict=False):
            for name, color in ((baseline, BASELINE["color"]), (arm, COLORS[0])):
                own = means[(means["policy"] == policy) & (means["arm"] == name)]
                cost_E = np.linspace(0, own["gflop"].max(), POINTS)
                line = ax.plot(cost_E, fit(order.index(name), cost_E), color=color, linestyle=dash, linewidth=1.8)[0]
                ax.plot(own["gflop"], own["accuracy"], ".", color=color, markersize=3, alpha=0.6)
                line.set_label(f"{'the arm' if name == arm else titles[name]}, base policy {policy}")
                drawn.append(own.assign(title=titles[name], policy=policy))
    grid.legend(figure, panels)
    seen = pd.concat(drawn, ignore_index=True).drop_duplicates(["policy", "title", "step"])
    last = seen.groupby(["policy", "title"])["accuracy"].last().groupby("title").mean()
    base = last[titles[baseline]]
    finding = f"mean accuracy at the end: highest {last.idxmax()}, {last.max():.3f}; {titles[baseline]} {base:.3f}"
    return lines(
        says(figure, finding),
        seen,
        x="gflop",
        y="accuracy",
        by="title",
        choices={"policy": {policy: f"base policy {policy}" for policy in fits}},
        labels=("GFLOP", "accuracy"),
        base=titles[baseline],
        shown=[titles[arm] for arm in arms[:3]],
    )
