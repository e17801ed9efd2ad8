"""Figures of how well proxies predict the gradient norm. Drawing only."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter

from repro.engine.snapshots import BASE
from repro.experiments.fidelity.probe import pearson
from repro.experiments.fidelity.proxies import PROXIES, UNIFORM
from repro.plots.interactive import lines, points, rows
from repro.plots.style import COLORS, arm_styles, new_figure
from repro.plots.words import says

# A proxy's measures, and the measures of one over training.
PANELS = {"product": "cost of draws, 1 is ideal", "pearson_signal": "correlation, where A ≠ 0"}
COURSES = {"pearson": "correlation", "chi2": "cost-biased χ²"}


def by_proxy(table: pd.DataFrame, titles: Mapping[str, str], title: str) -> Figure:
    """Every proxy's correlation with the norm and its cost beside the ideal: a dot for every checkpoint of every seed,
    coloured by the arm that trained it; a bar at their mean. `table`: repro.experiments.fidelity.probe's summary."""
    names = [*PROXIES, UNIFORM]
    figure, axes = new_figure(1.3 + 0.46 * len(names), 1, 2, sharey=True)
    for ax, (measure, label) in zip(axes[0], reversed(PANELS.items()), strict=True):
        for offset, (arm, style) in zip(_offsets(len(titles)), _styles(titles).items(), strict=True):
            runs = table[table["arm"] == arm]
            place = runs["proxy"].map(names.index) + offset
            ax.plot(runs[measure], place, linestyle="none", label=titles[arm], **style, markersize=4, alpha=0.7)
        means = table.groupby("proxy")[measure].mean().reindex(names)
        ax.plot(means, range(len(names)), linestyle="none", marker="|", markersize=20, markeredgewidth=2, color="0.1")
        ax.set_xlabel(label)
    axes[0, 0].set_yticks(range(len(names)), [*(proxy.label for proxy in PROXIES.values()), "uniform"])
    axes[0, 0].set_ylim(len(names) - 0.4, -0.6)
    axes[0, 1].set_xscale("log")
    axes[0, 1].set_xlim(left=0.95)
    _plain_ticks(axes[0, 1].xaxis, (1, 2, 5, 10, 20, 50))
    _legend_below(figure, axes, markerscale=1.5)
    figure.suptitle(title, x=0.01, ha="left")
    labels = {name: proxy.label for name, proxy in PROXIES.items()} | {UNIFORM: "uniform"}
    cost = ", ".join(f"{labels[name]} {mean:.2f}" for name, mean in means.sort_values().items())
    says(figure, f"mean cost of draws, the ideal being 1: {cost}")
    return _answering(figure, table, titles, labels)


def _answering(figure: Figure, table: pd.DataFrame, titles: Mapping[str, str], labels: Mapping[str, str]) -> Figure:
    """`figure` with its drawing: one measure at a time, the mean over all checkpoints or those of one arm and their
    range."""
    parts = []
    for policy in ("", *titles):
        runs = table[table["arm"] == policy] if policy else table
        for panel in PANELS:
            spans = runs.groupby("proxy")[panel].agg(["mean", "min", "max"]).reindex([*labels]).dropna()
            spans = spans.set_axis(["value", "low", "high"], axis=1).rename_axis("proxy").reset_index()
            parts.append(spans.assign(panel=panel, checkpoints=policy))
    points = pd.concat(parts, ignore_index=True)
    said = [f"{row.value:.2f}, from {row.low:.2f} to {row.high:.2f}" for row in points.itertuples()]
    points = points.assign(said=said, reference=1.0, colour=COLORS[0], fill=COLORS[0])
    limits = {panel: _limits(points[points["panel"] == panel]) for panel in PANELS}
    beyond = points["value"] > points["panel"].map(limits).str[1]
    return rows(
        figure,
        points.assign(proxy=points["proxy"].map(labels), shape=np.where(beyond, "triangle-right", "circle")),
        by="proxy", limits=limits, log=["product"],
        choices={"panel": PANELS, "checkpoints": {"": "all", **titles}},
        note="Points: means over checkpoints; lines: from the least to the greatest; black: the norm itself.",
    )  # fmt: skip


def _limits(points: pd.DataFrame) -> tuple[float, float]:
    """From the least to the greatest that is finite, with the norm's own 1."""
    ends = points[["low", "high"]].to_numpy(float)
    ends = np.append(ends[np.isfinite(ends)], 1.0)
    return float(ends.min()) - 0.05, 1.05 * float(ends.max())


def over_training(table: pd.DataFrame, titles: Mapping[str, str], proxies: Sequence[str], title: str) -> Figure:
    """Correlation over the batch and cost-biased χ² of a few proxies over training, a column for each arm, all from the
    base policy; thin lines: seeds; thick: their mean (Cost-Aware Learning, Fig. 3, 9 and 10)."""
    arms = [arm for arm in titles if arm != BASE]
    figure, axes = new_figure(5.6, 2, len(arms), sharex=True, sharey="row")
    for column, arm in enumerate(arms):
        runs = table[table["arm"].isin([BASE, arm])]
        for name, style in arm_styles(proxies).items():
            by_step = runs[runs["proxy"] == name].pivot(index="step", columns="seed", values=["pearson", "chi2"])
            for ax, measure in zip(axes[:, column], COURSES, strict=True):
                ax.plot(by_step[measure], color=style["color"], linewidth=0.7, alpha=0.4)
                ax.plot(by_step[measure].mean(axis=1), label=PROXIES[name].label, **style)
        axes[0, column].set_title(titles[arm], loc="left")
        axes[1, column].set_xlabel("training step")
        axes[1, column].set_xticks(sorted(runs["step"].unique()))
    for ax, label in zip(axes[:, 0], COURSES.values(), strict=True):
        ax.set_ylabel(label)
    axes[1, 0].set_ylim(bottom=0)
    _legend_below(figure, axes)
    figure.suptitle(title, x=0.01, ha="left")
    last = table[table["step"] == table["step"].max()].groupby("proxy")[["pearson", "chi2"]].mean().loc[[*proxies]]
    ends = (f"{PROXIES[row.Index].label} {row.pearson:.2f} and {row.chi2:.2f}" for row in last.itertuples())
    says(figure, f"correlation and χ² at the last step: {'; '.join(ends)}")
    parts = []
    for arm in arms:
        runs = table[table["arm"].isin([BASE, arm]) & table["proxy"].isin(proxies)]
        for measure in COURSES:
            spans = runs.groupby(["proxy", "step"])[measure].agg(["mean", "min", "max"]).loc[[*proxies]].reset_index()
            parts.append(spans.assign(measure=measure, arm=arm))
    courses = pd.concat(parts, ignore_index=True)
    return lines(
        figure,
        courses.assign(proxy=courses["proxy"].map({name: PROXIES[name].label for name in proxies})),
        x="step", y="mean", by="proxy", low="min", high="max", band="seeds",
        choices={"measure": COURSES, "arm": {arm: titles[arm] for arm in arms}}, labels=("training step", "measure"),
        note="Means over seeds; shaded: from the least of them to the greatest.",
    )  # fmt: skip


def scatter(sample: pd.DataFrame, proxies: Sequence[str], title: str) -> Figure:
    """The norm of rollouts against a few proxies, a panel each, all relative to their means; a proxy in proportion to
    the norm would lie on the line. Norms and proxies of 0 are left out; a panel without any other says so. `sample`:
    repro.experiments.fidelity.probe's, of one checkpoint."""
    figure, axes = new_figure(4.2, 1, len(proxies), sharey=True)
    found = {}
    for ax, name in zip(axes[0], proxies, strict=True):
        shown = sample[(sample["norm"] > 0) & (sample[name] > 0)]
        proxy_N, norms_N = (shown[column] / sample[column].mean() for column in (name, "norm"))
        ax.plot([proxy_N.min(), proxy_N.max()], [proxy_N.min(), proxy_N.max()], color="0.35", linewidth=1)
        ax.plot(proxy_N, norms_N, linestyle="none", marker="o", markersize=4, alpha=0.5)
        if shown.empty:
            ax.plot(1, 1, linestyle="none")  # a logarithmic axis needs a place
            ax.text(0.5, 0.5, "no rollout with both above 0", transform=ax.transAxes, ha="center")
        ax.set(xscale="log", yscale="log", xlabel=f"{PROXIES[name].label}, mean 1")
        for axis in (ax.xaxis, ax.yaxis):
            _plain_ticks(axis, (1e-4, 1e-3, 0.01, 0.1, 0.3, 1, 3, 10, 30))
        found[name] = pearson(sample[name].to_numpy(), sample["norm"].to_numpy())
        ax.set_title(f"correlation {found[name]:.2f}", loc="left")
    axes[0, 0].set_ylabel("gradient norm, mean 1")
    figure.suptitle(title, x=0.01, ha="left")
    ends = ", ".join(f"{PROXIES[name].label} {value:.2f}" for name, value in found.items())
    says(figure, f"correlation with the norm over {len(sample)} rollouts: {ends}")
    return _answering_points(figure, sample, found)


def _answering_points(figure: Figure, sample: pd.DataFrame, found: Mapping[str, float]) -> Figure:
    """`figure` with its drawing: one proxy at a time, `found` its correlation."""
    relative = sample[["norm", *found]] / sample[["norm", *found]].mean()
    long = relative.melt("norm", var_name="proxy").query("norm > 0 and value > 0").reset_index(drop=True)
    shown = {name: f"{PROXIES[name].label}, correlation {value:.2f}" for name, value in found.items()}
    note = "Both relative to their means; the proxy is on the horizontal axis. Norms and proxies of 0 are left out."
    named_axes = ("proxy", "gradient norm")
    return points(figure, long, x="value", y="norm", choices={"proxy": shown}, labels=named_axes, note=note)


def _styles(titles: Mapping[str, str]) -> dict[str, dict]:
    return {arm: {"color": style["color"], "marker": style["marker"]} for arm, style in arm_styles([*titles]).items()}


def _legend_below(figure: Figure, axes: np.ndarray, **options) -> None:
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), **options)


def _offsets(count: int) -> np.ndarray:
    """Places of the arms within the row of a proxy."""
    return np.linspace(-0.24, 0.24, count) if count > 1 else np.zeros(1)


def _plain_ticks(axis, places: Sequence[float]) -> None:
    """Plain numbers at `places` on a logarithmic axis."""
    axis.set_major_locator(FixedLocator(places))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())
