"""What a profile says of its queries, and what K and its temperature change."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from repro.methods.group_sizes.posterior import beta_binomial
from repro.plots.style import BASELINE, COLORS, new_figure
from repro.plots.words import says

GREY = "0.75"


def difficulty(table: pd.DataFrame, title: str) -> Figure:
    """Share of queries by successes among the profile's samples: all, with the fitted population, then every family.

    Bars are means over seeds, lines the range of the seeds. `table`: summary.describe_queries's.
    """
    names = ["all", *dict.fromkeys(table["family"])]
    rows, K = -(-len(names) // 4), int(table["samples"].iloc[0])
    figure, axes = new_figure(0.9 + 2.1 * rows, rows, 4, sharex=True, sharey=True)
    for ax, name in zip(axes.flat, names, strict=False):
        part = table if name == "all" else table[table["family"] == name]
        counts = part.groupby(["seed", "successes"]).size().unstack(fill_value=0).reindex(columns=range(K + 1))
        share_S_K = counts.fillna(0).div(part.groupby("seed").size(), axis=0).to_numpy()
        ax.bar(range(K + 1), share_S_K.mean(0), color=COLORS[0] if name == "all" else COLORS[4], width=0.85)
        ax.vlines(range(K + 1), share_S_K.min(0), share_S_K.max(0), color="0.15", linewidth=1.2)
        ax.set_title(f"{name} ({part['query'].nunique()})", loc="left")
    populations = table.groupby("seed")[["alpha", "beta"]].first()
    fitted = np.mean([beta_binomial(alpha, beta, K) for alpha, beta in populations.to_numpy()], axis=0)
    axes[0, 0].plot(range(K + 1), fitted, color=COLORS[1], marker="o", markersize=4, linewidth=1.2, label="fit")
    axes[0, 0].legend(loc="upper center")
    for ax in axes.flat[len(names) :]:
        ax.set_visible(False)
    axes[0, 0].set_xticks(sorted({0, K // 2, K}))
    figure.supxlabel(f"successes among {K} samples of a query")
    figure.supylabel("share of queries")
    figure.suptitle(title, x=0.01, ha="left")
    never, always = (table["successes"] == 0).mean(), (table["successes"] == K).mean()
    return says(figure, f"by {K} samples {never:.0%} of all queries are never solved, {always:.0%} always")


def uncertainty(table: pd.DataFrame, confidence: float, title: str) -> Figure:
    """For every number of successes, the posterior of p (mean and interval, mean over seeds), and the success rate in
    the other seeds' samples: a dot per seed and query. `table`: summary.describe_queries's."""
    K, number = int(table["samples"].iloc[0]), int(table["true_samples"].iloc[0])
    figure, axes = new_figure(4.6)
    ax, rng = axes[0, 0], np.random.default_rng(0)
    place_N = table["successes"] + rng.uniform(-0.32, 0.32, len(table))
    rate_N = table["true_successes"] / table["true_samples"]
    ax.plot(place_N, rate_N, linestyle="none", marker="o", markersize=2.5, color=GREY, rasterized=True)
    by_count = table.groupby("successes")[["mean", "low", "high"]].mean()
    ends = [by_count["mean"] - by_count["low"], by_count["high"] - by_count["mean"]]
    style = {"fmt": "o", "color": COLORS[0], "markersize": 7, "capsize": 5, "linewidth": 2.2}
    ax.errorbar(by_count.index, by_count["mean"], ends, label=f"posterior, {confidence:.0%} interval", **style)
    ax.plot(by_count.index, by_count.index / K, linestyle="none", marker="x", color=COLORS[1], label="p̂")
    ax.plot([], [], linestyle="none", marker="o", color=GREY, label=f"{number} samples of the other seeds")
    ax.set(xlabel=f"successes among {K} samples of a query", ylabel="success rate", ylim=(-0.04, 1.04))
    ax.set_xticks(range(0, K + 1, max(1, K // 8)))
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.suptitle(title, x=0.01, ha="left")
    ends = by_count.loc[[by_count.index.min(), by_count.index.max()]].itertuples()
    said = (f"{row.Index} of {K} right: {row.mean:.2f} [{row.low:.2f}, {row.high:.2f}]" for row in ends)
    return says(figure, f"posterior of the success rate, {'; '.join(said)}")


def by_samples(summary: pd.DataFrame, table: pd.DataFrame, used: int, title: str) -> Figure:
    """What K changes: agreement with the truth, wrong classes, group sizes, and informative groups per rollout of the
    plan. Points: mean over seeds with its interval; grey: each seed; dotted: the K that arms use.

    `table`: sensitivity.by_samples's; `summary`: its over_seeds by samples.
    """
    panels = {
        "rank correlation with the truth": {"rank_correlation": "p̂"},
        "share of queries": {"wrong_class": "wrong class", "misfiled": "wrongly filtered"},
        "error of the group size (rollouts)": {"size_error": "mean"},
        "informative groups per rollout": {
            "informative": "sGPO",
            "informative_charged": "sGPO, profile charged",
            "uniform_informative": "equal groups",
        },
    }
    figure, axes = _panels(summary, table, "samples", panels)
    for ax in axes.flat:
        ax.axvline(used, color="0.5", linewidth=1, linestyle=(0, (1.2, 1.2)))
        ax.set_xscale("log", base=2)
        ax.set_xticks(summary.index, [str(K) for K in summary.index])
        ax.minorticks_off()
    for ax in axes[-1]:
        ax.set_xlabel("samples of each query, K")
    axes[0, 1].set_ylim(bottom=0)
    axes[0, 1].legend(loc="upper right")
    figure.suptitle(title, x=0.01, ha="left")
    ends = summary.iloc[[0, -1]].itertuples()
    said = (f"{row.rank_correlation:.2f} and {row.wrong_class:.0%} by {row.Index} samples" for row in ends)
    return says(figure, f"rank correlation and queries in a wrong class: {'; '.join(said)}")


def by_temperature(summary: pd.DataFrame, table: pd.DataFrame, usual: float, title: str) -> Figure:
    """What the profile's temperature changes, against as many samples at training's. Dashed: a second profile at
    training's temperature, the noise. Points: mean over seeds with its interval; grey: each seed.

    `table`: sensitivity.by_temperature's; `summary`: its over_seeds by temperature.
    """
    panels = {
        "success rate": {"rate": "mean over queries"},
        "rank correlation": {"rank_correlation": "p̂"},
        "share of queries that change": {"class_changed": "class", "size_changed": "group size"},
        "informative groups per rollout": {"informative": "sGPO", "uniform_informative": "equal groups"},
    }
    figure, axes = _panels(summary, table, "temperature", panels)
    for ax, names in zip(axes.flat, panels.values(), strict=True):
        for name in set(names) - {"uniform_informative"} if usual in summary.index else ():
            ax.axhline(summary.loc[usual, name], color="0.5", linewidth=1, linestyle=(0, (5, 1.5)), zorder=0)
        ax.set_xticks(summary.index, [f"{t:g}" for t in summary.index])
    for ax in axes[-1]:
        ax.set_xlabel("temperature of the profile")
    figure.suptitle(title, x=0.01, ha="left")
    said = (f"{row.rate:.2f} and {row.rank_correlation:.2f} at {row.Index:g}" for row in summary.itertuples())
    return says(figure, f"success rate and rank correlation by temperature: {'; '.join(said)}")


def _panels(
    summary: pd.DataFrame, table: pd.DataFrame, by: str, panels: Mapping[str, Mapping[str, str]]
) -> tuple[Figure, np.ndarray]:
    """Two columns of panels, {label of the axis: {measure: name}}; legends where a panel has more than one measure."""
    rows = -(-len(panels) // 2)
    figure, axes = new_figure(0.6 + 3.1 * rows, rows, 2, sharex=True)
    styles = (
        {"color": COLORS[0], "marker": "o", "linestyle": "-"},
        {"color": COLORS[1], "marker": "s", "linestyle": (0, (5, 1.5))},
        {**BASELINE, "linewidth": 1.8},
    )
    for ax, (label, names) in zip(axes.flat, panels.items(), strict=True):
        for (measure, name), style in zip(names.items(), styles, strict=False):
            if measure == "uniform_informative":
                style = styles[-1]
            by_seed = table.pivot(index=by, columns="seed", values=measure)
            ax.plot(by_seed, color=GREY, linewidth=0.7, zorder=1)
            mean = summary[measure]
            ends = np.maximum([mean - summary[f"{measure}_low"], summary[f"{measure}_high"] - mean], 0)
            ax.errorbar(mean.index, mean, ends if np.isfinite(ends).all() else None, label=name, capsize=3, **style)
        ax.set_ylabel(label)
        if len(names) > 1:
            ax.legend(loc="best")
    return figure, axes
