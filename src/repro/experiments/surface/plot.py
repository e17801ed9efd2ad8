"""The figure of sGPO's surface. Drawing only."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from repro.experiments.surface.cells import MEASURES
from repro.plots.interactive import lines
from repro.plots.style import COLORS, DASHES, MARKERS, new_figure
from repro.plots.words import says


def accuracy(cells: pd.DataFrame, groups: Mapping[int, str], weightings: Mapping[str, str], title: str) -> Figure:
    """Mean held-out accuracy with its interval: a panel per base policy and measure, a line per weighting, `groups`
    {size: label} along the axis. `cells`: policy, group, weighting and each of MEASURES with _low and _high."""
    policies = sorted(cells["policy"].unique())
    figure, axes = new_figure(1.6 + 2.6 * len(policies), len(policies), 2, width=9.6, sharex=True, sharey=True)
    places = {group: place for place, group in enumerate(groups)}
    for row, policy in zip(axes, policies, strict=True):
        for ax, (measure, label) in zip(row, MEASURES.items(), strict=True):
            for number, (weighting, name) in enumerate(weightings.items()):
                own = cells[(cells["policy"] == policy) & (cells["weighting"] == weighting)]
                x = own["group"].map(places) + 0.08 * (number - 0.5)
                look = {"color": COLORS[number], "linestyle": DASHES[number], "marker": MARKERS[number]}
                ax.plot(x, own[measure], **look, label=name)
                ax.vlines(x, own[f"{measure}_low"], own[f"{measure}_high"], color=COLORS[number], linewidth=1.4)
            ax.set_title(f"{label}, base policy {policy}", loc="left", fontsize=12)
        row[0].set_ylabel("held-out accuracy")
    for ax in axes[-1]:
        ax.set_xticks(range(len(groups)), list(groups.values()))
        ax.set_xlabel("group of an unsolved query")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.suptitle(title, x=0.01, ha="left")
    long = pd.concat([_long(cells, measure, weightings) for measure in MEASURES], ignore_index=True)
    means = long.groupby(["measure", "group"])["accuracy"].mean()
    spans = [
        f"{label}, {means[measure].min():.3f} to {means[measure].max():.3f}" for measure, label in MEASURES.items()
    ]
    return lines(
        says(figure, "mean accuracy by group: " + "; ".join(spans)),
        long,
        x="group",
        y="accuracy",
        by="weighting",
        low="low",
        high="high",
        choices={"measure": MEASURES, "policy": {policy: f"base policy {policy}" for policy in policies}},
        labels=("group of an unsolved query", "accuracy"),
        note="0: no such query is kept.",
    )


def _long(cells: pd.DataFrame, measure: str, weightings: Mapping[str, str]) -> pd.DataFrame:
    ends = cells[[measure, f"{measure}_low", f"{measure}_high"]].set_axis(["accuracy", "low", "high"], axis=1)
    return ends.assign(
        measure=measure, policy=cells["policy"], group=cells["group"], weighting=cells["weighting"].map(weightings)
    )
