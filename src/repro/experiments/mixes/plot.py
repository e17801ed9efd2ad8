"""The figures of the mixes: what choosing by advantage and cost should save and what it saves; arms on each mix.
Drawing only."""

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from repro.experiments.mixes.compared import MEASURES
from repro.experiments.mixes.made import WHERE
from repro.plots.forest import reach
from repro.plots.interactive import rows as answering_rows
from repro.plots.style import COLORS, new_figure
from repro.plots.words import says
from repro.stats.tables import interval

TICKS = (0.1, 0.3, 1.0, 3.0)
WIDEST = (0.05, 5.0)  # limits of the axis of factors; intervals are cut there
# Filled and open, round and square, solid and dashed: distinguishable without colour.
MARKS = {
    "steps": {"color": COLORS[0], "marker": "o", "markerfacecolor": COLORS[0], "linestyle": "-"},
    "flops": {"color": COLORS[1], "marker": "s", "markerfacecolor": "white", "linestyle": "--"},
}
SHAPES = {"steps": "circle", "flops": "square"}  # the markers' names in a drawing


def savings(
    measured: pd.DataFrame, arms: Sequence[str], titles: Mapping[str, str], names: Mapping[str, str], title: str
) -> Figure:
    """Tokens relative to uniform draws, predicted (a diamond) and measured (with its interval): rows are mixes and base
    policies, panels are `arms`. `measured`: of `repro.experiments.mixes.saving.beside`; `titles` of mixes, `names` of
    arms."""
    places = measured[measured["arm"] == arms[0]].sort_values("predicted", kind="stable")[WHERE]
    labels = [f"{titles[row.mix]}, {row.policy}" for row in places.itertuples()]
    figure, axes = new_figure(2.1 + 0.5 * len(places), 1, len(arms), width=10.4, sharex=True, sharey=True)
    rows = np.arange(len(places))
    for ax, arm in zip(axes[0], arms, strict=True):
        own = places.merge(measured[measured["arm"] == arm], on=WHERE, how="left")
        low, high = own["factor_low"].clip(*WIDEST), own["factor_high"].clip(*WIDEST)
        ax.hlines(rows, low, high, color=COLORS[0], linewidth=1.6)
        ax.plot(own["factor"], rows, "o", color=COLORS[0], markersize=7, label="measured, with its 95% interval")
        predicted = {"color": "0.1", "markerfacecolor": "white", "markersize": 7, "markeredgewidth": 1.6}
        ax.plot(own["predicted"], rows, "D", **predicted, label="predicted by eq. 8")
        ax.axvline(1.0, color="0.35", linewidth=1)
        ax.set_xscale("log")
        ax.set_xlim(*WIDEST)
        ax.xaxis.set_major_locator(FixedLocator(TICKS))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.set_title(textwrap.fill(names[arm], 12), loc="left", fontsize=12)
        ax.set_xlabel("tokens, uniform\ndraws = 1")
    axes[0, 0].set_yticks(rows, [textwrap.fill(label, 20) for label in labels])
    axes[0, 0].set_ylim(len(labels) - 0.5, -0.5)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.suptitle(title, x=0.01, ha="left")
    return _answering(says(figure, _finding(measured, arms, names)), places, measured, arms, labels, names)


def _finding(measured: pd.DataFrame, arms: Sequence[str], names: Mapping[str, str]) -> str:
    parts = []
    for arm in arms:
        own = measured[measured["arm"] == arm]
        spans = (f"{own[name].min():.2f} to {own[name].max():.2f}" for name in ("predicted", "factor"))
        parts.append("{}: predicted {}, measured {} of uniform draws' tokens".format(names[arm], *spans))
    return "; ".join(parts)


def _answering(
    figure: Figure,
    places: pd.DataFrame,
    measured: pd.DataFrame,
    arms: Sequence[str],
    labels: Sequence[str],
    names: Mapping[str, str],
) -> Figure:
    """`figure` with its drawing: one arm at a time, measured or predicted."""
    parts = []
    for arm in arms:
        own = places.merge(measured[measured["arm"] == arm], on=WHERE, how="left").assign(line=labels)
        ends = own[["factor", "factor_low", "factor_high"]].set_axis(["value", "low", "high"], axis=1)
        look = {"colour": COLORS[0], "fill": COLORS[0], "shape": "circle"}
        parts.append(own.assign(**ends, **look, figure="measured"))
        alone = dict.fromkeys(["value", "low", "high"], own["predicted"])
        parts.append(own.assign(**alone, colour="#1a1a1a", fill="white", shape="diamond", figure="predicted"))
    points = pd.concat(parts, ignore_index=True)
    shown = {name: name for name in ("measured", "predicted")}
    points["said"] = [interval(*row, ".2f") for row in points[["value", "low", "high"]].to_numpy(float)]
    return answering_rows(
        figure,
        points.assign(reference=1.0),
        by="line", limits={arm: WIDEST for arm in arms},
        choices={"arm": {arm: names[arm] for arm in arms}, "figure": shown},
        log=True, note="Tokens: those of uniform draws with replacement are 1. Intervals are cut at the axis's ends.",
    )  # fmt: skip


def differences(
    table: pd.DataFrame, arms: Sequence[str], titles: Mapping[str, str], names: Mapping[str, str], title: str
) -> Figure:
    """Difference from the baseline in held-out accuracy with its interval: rows are arms, panels are mixes. `table`: of
    `repro.experiments.mixes.compared.differences`."""
    rows = -(-len(titles) // 2)
    figure, axes = new_figure(1.4 + rows * (0.9 + 0.5 * len(arms)), rows, 2, sharex=True, sharey=True)
    for ax, mix in zip(axes.flat, titles, strict=False):
        for offset, (measure, mark) in zip((-0.15, 0.15), MARKS.items(), strict=True):
            own = table[(table["mix"] == mix) & (table["measure"] == measure)].set_index("arm").loc[list(arms)]
            places = np.arange(len(arms)) + offset
            line = {"color": mark["color"], "linestyle": mark["linestyle"], "linewidth": 1.6}
            ax.hlines(places, own["difference_low"], own["difference_high"], **line)
            point = {**mark, "linestyle": "none", "markersize": 7, "markeredgewidth": 1.6}
            ax.plot(own["difference"], places, label=MEASURES[measure], **point)
        ax.axvline(0.0, color="0.35", linewidth=1)
        ax.set_title(textwrap.fill(titles[mix], 24), loc="left", fontsize=12)
        ax.xaxis.set_major_locator(MaxNLocator(4))
    for ax in axes.flat[len(titles) :]:
        ax.set_axis_off()
    axes[0, 0].set_yticks(range(len(arms)), [names[arm] for arm in arms])
    axes[0, 0].set_ylim(len(arms) - 0.5, -0.5)
    handles = axes[0, 0].get_legend_handles_labels()
    words = "held-out accuracy, difference from the baseline"
    figure.legend(*handles, loc="outside lower center", ncols=2, title=words, title_fontsize=13)
    figure.suptitle(title, x=0.01, ha="left")
    told = says(figure, "; ".join(_resolved(table, measure, titles, names) for measure in MEASURES))
    return _answering_differences(told, table, titles, names)


def _answering_differences(
    figure: Figure, table: pd.DataFrame, titles: Mapping[str, str], names: Mapping[str, str]
) -> Figure:
    """`figure` with its drawing: one mix and one measure at a time, all on the same axis."""
    ends = table[["difference", "difference_low", "difference_high"]].set_axis(["value", "low", "high"], axis=1)
    colour = table["measure"].map({measure: mark["color"] for measure, mark in MARKS.items()})
    part = {"mix": table["mix"], "arm": table["arm"].map(names), "measure": table["measure"], "reference": 0.0}
    part |= {"said": [interval(*row, "+.3f") for row in ends.to_numpy(float)]}
    part |= {"colour": colour, "fill": colour.where(table["answer"] != "open", "white")}
    points = ends.assign(**part, shape=table["measure"].map(SHAPES))
    least, most = reach(points[["value", "low", "high"]].to_numpy(float))
    margin = 0.05 * (most - least) or 0.05
    points["shape"] = points["shape"].mask(points["value"] < least - margin, "triangle-left")
    points["shape"] = points["shape"].mask(points["value"] > most + margin, "triangle-right")
    return answering_rows(
        figure,
        points,
        by="arm", limits=dict.fromkeys(titles, (least - margin, most + margin)),
        choices={"mix": dict(titles), "measure": MEASURES},
        note="Difference in held-out accuracy from the baseline. Filled: significant at a false discovery rate of 5% "
        "over all arms and mixes. An arrow: beyond the axis.",
    )  # fmt: skip


def _resolved(table: pd.DataFrame, measure: str, titles: Mapping[str, str], names: Mapping[str, str]) -> str:
    """Which differences by the measure are significant."""
    own = table[table["measure"] == measure]
    found = own[own["answer"] != "open"]
    named = (f"{names[row.arm]} {row.answer} on {titles[row.mix]}" for row in found.itertuples())
    return f"{MEASURES[measure]}, {len(found)} of {len(own)} significant" + "".join(f", {name}" for name in named)
