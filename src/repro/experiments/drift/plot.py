"""How a profile ages while the policy learns."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from repro.engine.snapshots import BASE
from repro.plots.interactive import lines
from repro.plots.style import COLORS, DASHES, MARKERS, arm_styles, new_figure
from repro.plots.words import says
from repro.settings import Statistics
from repro.stats.intervals import mean_intervals
from repro.stats.runs import at_budgets

PANELS = {
    "spearman": "rank correlation",
    "corrected": "the same, corrected for noise",
    "class_changed": "queries in another class",
    "doublings": "doublings of the group size",
}
BASE_AGAIN = "resampled"  # two profiles of the base policy
RESAMPLED = {"color": "0.35", "linestyle": (0, (1.2, 1.2)), "linewidth": 1.6}
FIRST = "step 0, resampled"
COLUMNS = {"x": "x", "y": "mean", "low": "low", "high": "high"}  # of `_means`, as `lines` takes them
SHADES = ("0.35", COLORS[0], COLORS[3], COLORS[2], COLORS[5], COLORS[1])  # the base policy, then steps


def over_training(summary: pd.DataFrame, titles: Mapping[str, str], statistics: Statistics, title: str) -> Figure:
    """Agreement of the initial profile with a new one, over training steps. Thin: seeds; thick: their mean with its
    t interval; dotted: two profiles of the base policy, the effect of resampling alone.

    `summary`: repro.experiments.drift.summary.summarise's. `titles`: of the arms to show.
    """
    arms = [arm for arm in titles if arm != BASE]
    figure, axes = new_figure(6.6, 2, 2, sharex=True)
    base = summary[summary["arm"] == BASE]
    for ax, (measure, label) in zip(axes.flat, PANELS.items(), strict=True):
        ax.axhline(base[measure].mean(), label=BASE_AGAIN, **RESAMPLED)
        for arm, style in arm_styles(arms).items():
            runs = summary[summary["arm"].isin([BASE, arm])].pivot(index="step", columns="seed", values=measure)
            ax.plot(runs, color=style["color"], linewidth=0.7, alpha=0.4)
            _bars(ax, runs, style, titles[arm], statistics)
        ax.set_title(label, loc="left")
        if measure == "class_changed":
            ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        if measure in ("class_changed", "doublings"):
            ax.set_ylim(0, 1.15 * summary[measure].max())
    for ax in axes[-1]:
        ax.set_xlabel("training step")
        ax.set_xticks(sorted(summary["step"].unique()))
    _finish(figure, axes[0, 0], title)
    last = summary[summary["step"] == summary["step"].max()].groupby("arm")["spearman"].mean()
    ends = ", ".join(f"{titles[arm]} {last[arm]:.2f}" for arm in arms if arm in last)
    says(figure, f"rank correlation at the last step: {ends}; by resampling alone {base['spearman'].mean():.2f}")
    rows = _rows_over_training(summary, {arm: titles[arm] for arm in arms}, statistics)
    note = "Resampled: two profiles of the base policy."
    options = {"choices": {"measure": PANELS}, "labels": ("training step", "measure"), "base": BASE_AGAIN, "note": note}
    return lines(figure, rows, by="arm", **options, **COLUMNS)


def _rows_over_training(summary: pd.DataFrame, titles: Mapping[str, str], statistics: Statistics) -> pd.DataFrame:
    """measure, arm, x, mean, low, high: what `over_training` draws, resampling alone at every step."""
    base, parts = summary[summary["arm"] == BASE], []
    for measure in PANELS:
        chance = dict.fromkeys(sorted(summary["step"].unique()), base[measure].to_numpy())
        by_arm = {BASE_AGAIN: pd.DataFrame.from_dict(chance, orient="index")}
        for arm, name in titles.items():
            runs = summary[summary["arm"].isin([BASE, arm])]
            by_arm[name] = runs.pivot(index="step", columns="seed", values=measure)
        parts += [_means(table, statistics).assign(arm=name, measure=measure) for name, table in by_arm.items()]
    return pd.concat(parts, ignore_index=True)


def by_initial(rates: pd.DataFrame, titles: Mapping[str, str], statistics: Statistics, title: str) -> Figure:
    """The success rate now of queries with each initial p̂: a panel per arm, a line per checkpoint, mean over seeds with
    its interval. The line of step 0, the base policy profiled again, leaves the diagonal by chance alone.

    `rates`: repro.experiments.drift.summary.by_initial's.
    """
    arms = [arm for arm in titles if arm != BASE]
    figure, axes = new_figure(4.6, 1, len(arms), sharey=True)
    parts = []
    for ax, arm in zip(axes[0], arms, strict=True):
        ax.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        for place, (step, rows) in enumerate(rates[rates["arm"].isin([BASE, arm])].groupby("step")):
            cycles = {"color": SHADES, "marker": MARKERS, "linestyle": DASHES}
            style = {name: cycle[place % len(cycle)] for name, cycle in cycles.items()}
            table = rows.pivot(index="initial", columns="seed", values="success")
            label = f"step {step}" if step else FIRST
            _bars(ax, table, style, label, statistics)
            parts.append(_means(table, statistics).assign(arm=arm, checkpoint=label))
        ax.set_title(titles[arm], loc="left")
        ax.set_xlabel("p̂ in the initial profile")
    axes[0, 0].set_ylabel("success rate now")
    _finish(figure, axes[0, 0], title)
    means = rates[rates["arm"].isin(arms)].groupby(["step", "initial"])["success"].mean().loc[rates["step"].max()]
    ends = " and ".join(f"{means.loc[p]:.0%} where it was {p:.0%}" for p in (means.index.min(), means.index.max()))
    says(figure, f"success at the last step: {ends}")
    return lines(
        figure,
        pd.concat(parts, ignore_index=True),
        by="checkpoint", choices={"arm": {arm: titles[arm] for arm in arms}},
        labels=("p̂ in the initial profile", "success rate now"), base=FIRST,
        **COLUMNS,
    )  # fmt: skip


def reprofiled(evaluations: pd.DataFrame, titles: Mapping[str, str], statistics: Statistics, title: str) -> Figure:
    """Held-out accuracy of every arm against steps and against FLOPs, profiling charged. Thin: seeds; thick: their
    mean at equal shares of the budget, at the seeds' mean cost, with its t interval."""
    curves = at_budgets(evaluations)
    figure, axes = new_figure(4.6, 1, 2, sharey=True)
    labels = {"step": "training step", "flops": "FLOPs (10⁹), profiling charged"}
    parts = []
    for ax, (axis, label) in zip(axes[0], labels.items(), strict=True):
        scale = 1e9 if axis == "flops" else 1
        for arm, style in arm_styles(evaluations["arm"].unique()).items():
            for _, run in evaluations[evaluations["arm"] == arm].groupby("seed"):
                ax.plot(run[axis] / scale, run["accuracy"], color=style["color"], linewidth=0.7, alpha=0.4)
            runs = curves[curves["arm"] == arm]
            table = runs.pivot(index="share", columns="seed", values="accuracy")
            places = runs.groupby("share")[axis].mean() / scale
            _bars(ax, table.set_axis(places.to_numpy()), style, titles[arm], statistics)
            part = _means(table.set_axis(places.to_numpy()), statistics)
            parts.append(part.assign(x=part["x"] * scale, arm=titles[arm], cost=axis))
        ax.set_xlabel(label)
        ax.xaxis.set_major_locator(MaxNLocator(5))
    axes[0, 0].set_ylabel("held-out accuracy (pass@1)")
    _finish(figure, axes[0, 0], title)
    last = evaluations.sort_values("step").groupby(["arm", "seed"], sort=False)[["accuracy", "flops"]].last()
    ends = last.groupby("arm", sort=False).mean().itertuples()
    said = (f"{titles[end.Index]} {end.accuracy:.3f} for {end.flops / 1e9:,.0f}" for end in ends)
    says(figure, f"accuracy at the end, for 10⁹ FLOPs: {'; '.join(said)}")
    choices = {"cost": labels | {"flops": "FLOPs, profiling charged"}}
    options = {"choices": choices, "labels": ("cost", "held-out accuracy (pass@1)")}
    return lines(figure, pd.concat(parts, ignore_index=True), by="arm", **options, **COLUMNS)


def _means(table: pd.DataFrame, statistics: Statistics) -> pd.DataFrame:
    """x, mean, low, high: the mean over seeds (columns) at each place (index) with its interval; seeds without a value
    are left out."""
    by_place = {place: row.dropna().to_numpy() for place, row in table.iterrows() if row.notna().any()}
    rows = [(place, *ends) for place, ends in mean_intervals(by_place, statistics).items()]
    return pd.DataFrame(rows, columns=["x", "mean", "low", "high"])


def _bars(ax, table: pd.DataFrame, style: Mapping, label: str, statistics: Statistics) -> None:
    """`_means` as a line with bars."""
    means = _means(table, statistics)
    bars = np.nan_to_num(np.abs(means[["low", "high"]].to_numpy() - means[["mean"]].to_numpy())).T
    ax.errorbar(means["x"].to_numpy(), means["mean"].to_numpy(), yerr=bars, label=label, elinewidth=1.2, **style)


def _finish(figure: Figure, ax, title: str) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4))
    figure.suptitle(title, x=0.01, ha="left")
