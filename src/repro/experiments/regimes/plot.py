"""The figure of the regimes: every arm against the baseline, a panel for each mix of queries. Drawing only."""

import textwrap

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from repro.experiments.regimes.mixes import titles
from repro.experiments.regimes.summary import MEASURES
from repro.plots.forest import reach
from repro.plots.interactive import rows as answering_rows
from repro.plots.style import COLORS, new_figure
from repro.plots.words import says
from repro.settings import Settings
from repro.stats.tables import interval

# Filled and open, round and square, solid and dashed: distinguishable without colour.
MARKS = {
    "steps": {"color": COLORS[0], "marker": "o", "markerfacecolor": COLORS[0], "linestyle": "-"},
    "tokens": {"color": COLORS[1], "marker": "s", "markerfacecolor": "white", "linestyle": "--"},
}
SHAPES = {"steps": "circle", "tokens": "square"}  # the markers' names in a drawing


def differences(table: pd.DataFrame, mixes: pd.DataFrame, settings: Settings, title: str) -> Figure:
    """Difference to the baseline in held-out accuracy with its interval: rows are arms, panels are mixes.

    `table`: repro.experiments.regimes.summary.compare's; `mixes`: repro.experiments.regimes.mixes.describe's, whose
    figures head the panels.
    """
    arms = [arm for arm in dict.fromkeys(table["arm"]) if arm != settings.baseline]
    rows = -(-len(mixes) // 2)
    figure, axes = new_figure(1.4 + rows * (1.3 + 0.5 * len(arms)), rows, 2, sharex=True, sharey=True)
    for ax, (_, mix) in zip(axes.flat, mixes.iterrows(), strict=False):
        of_mix = table[table["mix"] == mix["mix"]].set_index("arm").loc[arms]
        for offset, (measure, mark) in zip((-0.15, 0.15), MARKS.items(), strict=True):
            places = np.arange(len(arms)) + offset
            low, high = of_mix[f"difference_{measure}_low"], of_mix[f"difference_{measure}_high"]
            ax.hlines(places, low, high, color=mark["color"], linestyle=mark["linestyle"], linewidth=1.6)
            point = {**mark, "linestyle": "none", "markersize": 7, "markeredgewidth": 1.6}
            ax.plot(of_mix[f"difference_{measure}"], places, label=MEASURES[measure], **point)
        ax.axvline(0.0, color="0.35", linewidth=1)
        ax.set_title(_heading(mix, titles(settings)[mix["mix"]]), loc="left", fontsize=12)
        ax.xaxis.set_major_locator(MaxNLocator(4))
    for ax in axes.flat[len(mixes) :]:
        ax.set_axis_off()
    axes[0, 0].set_yticks(range(len(arms)), [settings.arm(arm).title for arm in arms])
    axes[0, 0].set_ylim(len(arms) - 0.5, -0.5)
    baseline = settings.arms[settings.baseline].title
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=2,
        title=f"held-out accuracy, difference to {baseline}",
        title_fontsize=13,
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=14, fontweight="bold")
    says(figure, "; ".join(_resolved(table, measure, settings) for measure in MEASURES))
    return _answering(figure, table, settings)


def _answering(figure: Figure, table: pd.DataFrame, settings: Settings) -> Figure:
    """`figure` with its drawing: one mix and one measure at a time, all on the same axis."""
    others, parts = table[table["arm"] != settings.baseline], []
    for measure, mark in MARKS.items():
        ends = others[[f"difference_{measure}{end}" for end in ("", "_low", "_high")]].set_axis(
            ["value", "low", "high"], axis=1
        )
        filled = others[f"resolved_{measure}"].isin(["more", "less"])
        part = {"mix": others["mix"], "arm": [settings.arm(arm).title for arm in others["arm"]], "measure": measure}
        part |= {"said": [interval(*row, "+.3f") for row in ends.to_numpy(float)], "reference": 0.0}
        part |= {"colour": mark["color"], "fill": np.where(filled, mark["color"], "white"), "shape": SHAPES[measure]}
        parts.append(ends.assign(**part))
    points = pd.concat(parts, ignore_index=True)
    least, most = reach(points[["value", "low", "high"]].to_numpy(float))
    margin = 0.05 * (most - least) or 0.05
    points["shape"] = points["shape"].mask(points["value"] < least - margin, "triangle-left")
    points["shape"] = points["shape"].mask(points["value"] > most + margin, "triangle-right")
    return answering_rows(
        figure,
        points,
        by="arm", limits=dict.fromkeys(titles(settings), (least - margin, most + margin)),
        choices={"mix": titles(settings), "measure": MEASURES},
        note="Filled: significant after Holm's correction over all arms and mixes. An arrow: beyond the axis.",
    )  # fmt: skip


def _resolved(table: pd.DataFrame, measure: str, settings: Settings) -> str:
    """Which differences of the measure are significant after the correction."""
    others = table[table["arm"] != settings.baseline]
    resolved = others[others[f"resolved_{measure}"].isin(["more", "less"])]
    named = (f"{settings.arm(row.arm).title} on {row.mix}" for row in resolved.itertuples())
    return f"{MEASURES[measure]}, {len(resolved)} of {len(others)} significant" + "".join(f", {name}" for name in named)


def _heading(mix: pd.Series, title: str) -> str:
    title = textwrap.fill(title, 28)  # as many lines as it takes: panels are narrow
    silent, rho = mix["groups_without_signal"], mix["length_difficulty"]
    return f"{title}\n{silent:.0%} without signal,\nρ(success, length) {rho:+.2f}"
