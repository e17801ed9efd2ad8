"""Figures of which rollouts of a batch trained the policy and which were left out. Drawing only."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from repro.experiments.arm.selection import CLASSES, shares_by, success_class
from repro.plots.style import COLORS, new_figure
from repro.plots.training import mean_and_interval
from repro.plots.words import says
from repro.settings import Statistics

TRAINED, LEFT = COLORS[0], COLORS[1]
BINS = 24
MEASURES = {"size": "|A|", "response_tokens": "response length (tokens)", "weight": "weight in the loss"}


def histograms(selection: pd.DataFrame, title: str) -> Figure:
    """|A|, response length and weight of the rollouts that trained and of those left out, in early and in late steps.

    `selection`: a row per rollout of the logged batches. Shares are of the rollouts trained on, each counted as often
    as it trained, and of those left out, which have no weight.
    """
    rows = selection.assign(size=selection["advantage"].abs())
    steps = sorted(rows["step"].unique())
    half = -(-len(steps) // 2)
    phases = {name: part for name, part in (("early", steps[:half]), ("late", steps[half:])) if part}
    figure, axes = new_figure(0.9 + 2.4 * len(phases), len(phases), len(MEASURES), sharex="col")
    for line, (phase, part) in zip(axes, phases.items(), strict=True):
        shown = rows[rows["step"].isin(part)]
        for ax, (measure, label) in zip(line, MEASURES.items(), strict=True):
            whole = rows if measure != "weight" else rows[rows["times_trained"] > 0]
            _histogram(ax, shown, measure, _edges(whole[measure]))
            ax.set_xlabel(label if phase == list(phases)[-1] else "")
        line[0].set_ylabel(f"share of rollouts,\n{phase} steps ({_span(part)})", fontsize=11.5)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    figure.suptitle(title, x=0.01, ha="left")
    return says(figure, _on_average(rows))


def shares(selection: pd.DataFrame, statistics: Statistics, title: str) -> Figure:
    """By family and by success of the group: the share of the batch (open) and of what was trained on (filled).

    Mean over seeds with its t interval; on the right the share of its rollouts that trained at all. Rollouts
    that a filter dropped are not in the batch.
    """
    parts = {"family": selection["family"], "success of the group": success_class(selection)}
    tables = {name: shares_by(selection, key) for name, key in parts.items()}
    order = {"success of the group": [name for name in CLASSES if name in set(parts["success of the group"])]}
    order["family"] = list(dict.fromkeys(sorted(parts["family"])))
    heights = [len(order[name]) for name in parts]
    figure, axes = new_figure(1.6 + 0.32 * sum(heights), 2, 1, sharex=True, height_ratios=heights)
    for ax, name in zip(axes[:, 0], parts, strict=True):
        _dumbbells(ax, tables[name], order[name], statistics)
        ax.set_title(f"by {name}", loc="left", fontsize=12)
    axes[-1, 0].set_xlabel("share of rollouts")
    axes[-1, 0].set_xlim(left=0)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    figure.suptitle(title, x=0.01, ha="left")
    return says(figure, _most_favoured(tables["success of the group"]))


def _on_average(rows: pd.DataFrame) -> str:
    """The finding of the histograms: mean |A| and length, each trained rollout counted as often as it trained."""
    means = []
    for label, times in (("trained", rows["times_trained"]), ("left", (rows["times_trained"] == 0).astype(float))):
        if times.sum():
            size, tokens = (np.average(rows[name], weights=times) for name in ("size", "response_tokens"))
            means.append(f"{label}: mean |A| {size:.2f}, {tokens:.1f} tokens")
    return "; ".join(means)


def _most_favoured(table: pd.DataFrame) -> str:
    """The finding of the shares: the class of groups whose share among the trained exceeds its share of the batch
    most."""
    means = table.groupby("key")[["batch", "trained"]].mean()
    if means["trained"].isna().all():
        return "Nothing was trained on"
    favoured = (means["trained"] - means["batch"]).idxmax()
    batch, trained = means.loc[favoured]
    return f"Groups that are {favoured} make up {batch:.0%} of the batch and {trained:.0%} of what was trained on"


def _dumbbells(ax: Axes, table: pd.DataFrame, order: Sequence[str], statistics: Statistics) -> None:
    wide = {name: table.pivot(index="seed", columns="key", values=name)[list(order)] for name in ("batch", "trained")}
    batch_E = wide["batch"].mean().to_numpy()
    trained_E, low_E, high_E = mean_and_interval(wide["trained"].to_numpy(float), statistics)
    used = table.groupby("key")["used"].mean()
    places = np.arange(len(order))
    ax.hlines(places, batch_E, trained_E, color="0.75", linewidth=4, zorder=1)
    ax.hlines(places, low_E, high_E, color=TRAINED, linewidth=1.5, zorder=2)
    ax.plot(batch_E, places, "o", color="0.35", markerfacecolor="white", markeredgewidth=1.6, label="of the batch")
    ax.plot(trained_E, places, "s", color=TRAINED, markersize=6, label="of what was trained on", zorder=3)
    for place, name in zip(places, order, strict=True):
        ax.text(1.01, place, f"{used[name]:.0%} trained", transform=ax.get_yaxis_transform(), va="center", fontsize=11)
    ax.set_yticks(places, order)
    ax.set_ylim(len(order) - 0.5, -0.5)
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.grid(visible=False, axis="y")


def _edges(values: pd.Series) -> np.ndarray:
    """Bins over the values of all phases, or around a single value, as when every weight is 1. The largest hundredth
    goes into the last bin, so that one weight does not flatten the rest."""
    if values.empty:
        return np.linspace(0.0, 1.0, BINS + 1)
    low, high = float(values.min()), float(values.quantile(0.99))
    return np.linspace(low, high, BINS + 1) if high > low else low + np.linspace(-0.5, 0.5, BINS + 2)


def _histogram(ax: Axes, rows: pd.DataFrame, measure: str, edges: np.ndarray) -> None:
    values = rows[measure].to_numpy(float).clip(edges[0], edges[-1])
    times = rows["times_trained"].to_numpy(float)
    forms = [(times, "trained on", {"color": TRAINED, "alpha": 0.45, "fill": True})]
    if measure != "weight":
        forms.append(
            (
                (times == 0).astype(float),
                "left out",
                {"color": LEFT, "linestyle": "--", "linewidth": 1.8, "fill": False},
            )
        )
    for counts, label, style in forms:
        total = counts.sum()
        heights, _ = np.histogram(values, edges, weights=counts / total if total else counts)
        ax.stairs(heights, edges, label=label, **style)
        if not total:
            ax.text(0.97, 0.93, f"none {label}", transform=ax.transAxes, ha="right", va="top", fontsize=11, color="0.3")
    ax.xaxis.set_major_locator(MaxNLocator(3))
    ax.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_ylim(0, None if ax.dataLim.y1 > 0 else 1)


def _span(steps: Sequence[int]) -> str:
    return f"{steps[0]}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
