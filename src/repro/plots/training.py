"""Figures over training: accuracy against cost, and dynamics, of a few arms or of a panel per group. Drawing only."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from repro.plots.interactive import lines
from repro.plots.style import BASELINE, group_styles, new_figure
from repro.plots.words import says
from repro.settings import Settings, Statistics
from repro.stats.intervals import t_intervals
from repro.stats.runs import at_budgets

AXES = {
    "trained_tokens": "tokens trained on\n(computed)",
    "paper_tokens": "tokens trained on\n(papers' count)",
    "total_tokens": "tokens generated and\ntrained on (computed)",
    "flops": "FLOPs, rollouts\nand updates",
}
DYNAMICS = {
    "usefulness": "share of useful groups",
    "kl": "KL to the base policy (nats/token)",
    "entropy": "entropy (nats/token)",
    "gradient_norm": "gradient norm before clipping",
    "selected_tokens": "tokens selected, per step",
    "loss_tokens": "tokens in the loss, per step",
    "reward": "mean reward of the batch",
    "groups_without_signal": "share of groups without signal",
    "response_tokens": "response length (tokens)",
    "distinct_rollouts": "distinct rollouts, per step",
    "effective_sample_size": "effective sample size (rollouts)",
    "largest_weight": "largest weight",
    "gradient_clipped": "share of gradients clipped",
    "clipped": "share of tokens clipped",
    "truncated": "share of responses truncated",
}
SHARES = {"accuracy", *(name for name, label in DYNAMICS.items() if label.startswith("share"))}  # from 0 to 1
OVERVIEW = ("usefulness", "kl", "entropy", "gradient_norm", "selected_tokens", "loss_tokens")  # D³S, Fig. 1 to 4
PER_PANEL = 8  # arms that a reader can tell apart in one panel, besides the baseline
WIDE = 9.6  # inches, of the figure with two panels and their names in a row
CUT = 0.25  # of the panels of differences
MEASURES = {"accuracy": "held-out accuracy (pass@1)", "gain": "accuracy minus the baseline's, same cost"}
CHOSEN = ("flops", "trained_tokens")  # the costs among which a reader of the drawing chooses, besides the figure's own
THINNED = 60  # points of a curve over steps in the drawing
WINDOW = 5  # steps of a running mean: batches are small and their metrics noisy


def panels(settings: Settings) -> dict[str, list[str]]:
    """{title: arms} of the panels: the compared arms by group, the baseline left out, large groups cut into parts."""
    groups: dict[str, list[str]] = {}
    for name in settings.compared_arms:
        if name != settings.baseline:
            groups.setdefault(settings.arm(name).group, []).append(name)
    cut = {}
    for group, names in groups.items():
        parts = np.array_split(names, -(-len(names) // PER_PANEL))
        for number, part in enumerate(parts, 1):
            cut[f"{group} ({number} of {len(parts)})" if len(parts) > 1 else group] = part.tolist()
    return cut


def accuracy_by_group(evaluations: pd.DataFrame, settings: Settings, axis: str, title: str) -> Figure:
    """Held-out accuracy against one cost, a row for each group of arms, the baseline in each.

    Left: the mean over seeds at equal shares of the budget (repro.stats.runs.at_budgets), at the seeds' mean cost.
    Right: the difference from the baseline at the same cost, which separates arms that overlap on the left; cut at
    ±`CUT`. Bars: t intervals, on the right of paired differences. The names next to a row are in the order of final
    accuracy.
    """
    charged, evaluations = evaluations, at_budgets(with_axis(evaluations, axis))
    groups = panels(settings)
    ahead = gain_at_equal_cost(evaluations, settings.baseline, axis)
    figure, axes = new_figure(0.9 + 2.6 * len(groups), len(groups), 2, width=WIDE, sharex=True)
    for (left, right), (group, arms) in zip(axes, groups.items(), strict=True):
        right.axhline(0.0, **{**BASELINE, "linewidth": 1.6})
        for arm, style in group_styles(arms, settings.baseline).items():
            runs, gain = (table[table["arm"] == arm] for table in (evaluations, ahead))
            label = settings.arm(arm).title
            _curve(left, runs, axis, "accuracy", style, label, settings.statistics, "bars")
            if arm != settings.baseline:
                _curve(right, gain, axis, "gain", style, label, settings.statistics, "bars")
        left.set_title(group, loc="left", fontweight="bold")
        left.sharey(axes[0, 0])
        low, high = right.get_ylim()
        right.set_ylim(max(-CUT, low), min(CUT, high))
        right.yaxis.set_major_locator(MaxNLocator(5))
        _names_at_the_side(left, right)
    axes[0, 1].set_title("minus the baseline's, same cost", loc="left", fontsize=13)
    for ax in axes[-1]:
        _cost_axis(ax, axis)
    figure.supylabel(MEASURES["accuracy"], fontsize=13)
    _headline(figure, title)
    says(figure, _furthest(ahead, settings, axis))
    drawn = [settings.baseline, *(arm for arms in groups.values() for arm in arms)]
    shown = [settings.baseline, *(arms[0] for arms in groups.values())]
    return _answering(figure, charged, drawn, settings, [axis, *CHOSEN], shown)


def accuracy_curves(
    evaluations: pd.DataFrame, arms: Sequence[str], settings: Settings, axes: Sequence[str], title: str
) -> Figure:
    """Held-out accuracy against each cost in `axes`, one panel each, for the baseline and a few arms.

    Thin lines: every seed. Thick line: mean over seeds at equal shares of the budget, at the seeds' mean cost. Band:
    t interval of the mean.
    """
    curves = at_budgets(evaluations)
    figure, panels_ = new_figure(4.1, 1, len(axes), sharey=True)
    for ax, axis in zip(panels_[0], axes, strict=True):
        for arm, style in group_styles(arms, settings.baseline).items():
            runs = curves[curves["arm"] == arm]
            for _, run in evaluations[evaluations["arm"] == arm].groupby("seed"):
                ax.plot(run[axis], run["accuracy"], color=style["color"], linewidth=0.7, alpha=0.4)
            _curve(ax, runs, axis, "accuracy", style, settings.arm(arm).title, settings.statistics, "band")
        _cost_axis(ax, axis)
    panels_[0, 0].set_ylabel(MEASURES["accuracy"])
    panels_[0, -1].legend(loc="lower right")
    _headline(figure, title)
    drawn = list(group_styles(arms, settings.baseline))
    if settings.baseline in set(evaluations["arm"]):
        ahead = gain_at_equal_cost(curves[curves["arm"].isin(drawn)], settings.baseline, axes[-1])
        says(figure, _furthest(ahead, settings, axes[-1]) or _end_of(curves, settings))
    return _answering(figure, evaluations, drawn, settings, [*axes, *CHOSEN], drawn)


def dynamics(
    steps: pd.DataFrame, arms: Sequence[str], settings: Settings, title: str, metrics: Sequence[str] = tuple(DYNAMICS)
) -> Figure:
    """Each metric over training steps: running mean over five steps, then mean over seeds; two panels a row.

    t intervals of the mean: a band for one arm and the baseline, else bars to the right of the last step. Steps
    at which a metric is undefined, as when the update was skipped, are left out; so is a metric that no arm has.
    """
    shown = [metric for metric in metrics if metric in steps and steps[metric].notna().any()]
    styles = group_styles(arms, settings.baseline)
    few = len(styles) < 3
    rows = max(1, -(-len(shown) // 2) if few else len(shown) // 2 + 1)  # of many arms, the names take a cell
    figure, axes = new_figure(0.5 + 2.25 * rows, rows, 2, sharex=True)
    for ax, metric in zip(axes.flat, shown, strict=False):
        for place, (arm, style) in enumerate(styles.items()):
            runs = steps[steps["arm"] == arm]
            smooth = runs.assign(**{metric: running_mean(runs, metric)})
            sparse = {"linewidth": 1.6, "markersize": 5, "markevery": (4 + place, 12), **style}
            form = "band" if few else 1.0 + 0.6 * place
            _curve(ax, smooth, "step", metric, sparse, settings.arm(arm).title, settings.statistics, form)
        ax.set_title(DYNAMICS[metric], loc="left", fontsize=12)
        ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        ax.yaxis.set_major_locator(MaxNLocator(4))
        ax.yaxis.set_major_formatter(_short)
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    if shown:
        handles, labels = axes[0, 0].get_legend_handles_labels()
        named = axes[0, 0] if few else axes.flat[len(shown)]
        named.legend(handles, labels, loc="best" if few else "center left", handlelength=3)
    for column in axes.T:  # the last panel that is drawn in each column carries the axis
        drawn = [ax for ax in column if ax.axison]
        for ax in drawn[-1:]:
            ax.set_xlabel("training step")
            ax.tick_params(labelbottom=True)
    _headline(figure, title)
    says(figure, _on_the_way(steps, shown[0], settings) if shown else "No metric is known")
    return _answering_steps(figure, steps, list(styles), settings, shown)


def _end_of(curves: pd.DataFrame, settings: Settings) -> str:
    """The finding of the baseline's own curves."""
    ends = curves[(curves["arm"] == settings.baseline) & (curves["share"] == curves["share"].max())]["accuracy"]
    return f"{settings.arm(settings.baseline).title} ends at {ends.mean():.3f}"


def _on_the_way(steps: pd.DataFrame, metric: str, settings: Settings) -> str:
    """The finding of a figure of dynamics: an arm's mean of its first metric, of many arms the ends of their range."""
    means = steps.groupby("arm", sort=False)[metric].mean().dropna().sort_values()
    ends = means if len(means) < 3 else means.iloc[[0, -1]]
    said = ", ".join(f"{settings.arm(arm).title} {mean:.2f}" for arm, mean in ends.items())
    return f"{DYNAMICS[metric]}, mean over steps: " + ("from " if len(means) > 2 else "") + said


def _furthest(ahead: pd.DataFrame, settings: Settings, axis: str) -> str:
    """The finding of a figure of curves: how many arms end above the baseline at the same cost, and which furthest."""
    ends = (
        ahead[ahead["share"] == ahead["share"].max()]
        .groupby("arm")["gain"]
        .mean()
        .drop(settings.baseline, errors="ignore")
    )
    baseline = settings.arm(settings.baseline).title
    if ends.empty:
        return ""
    cost = " ".join(AXES[axis].split())
    best, worst = ends.idxmax(), ends.idxmin()
    titles = {arm: settings.arm(arm).title for arm in (best, worst)}
    if best == worst:
        return f"{titles[best]} ends {ends[best]:+.3f} from {baseline} at the same cost in {cost}"
    return (
        f"{(ends > 0).sum()} of {len(ends)} arms end above {baseline} at the same cost in {cost}; furthest above "
        f"{titles[best]} ({ends[best]:+.3f}), furthest below {titles[worst]} ({ends[worst]:+.3f})"
    )


def _answering(
    figure: Figure,
    evaluations: pd.DataFrame,
    arms: Sequence[str],
    settings: Settings,
    axes: Sequence[str],
    shown: Sequence[str],
) -> Figure:
    """`figure` with its drawing: accuracy and the difference from the baseline against each cost, at shares of the
    budget."""
    curves = at_budgets(with_axis(evaluations, "total_tokens"))
    costs = [axis for axis in dict.fromkeys(axes) if axis in curves]
    parts = []
    for cost in costs:
        tables = {"accuracy": curves[curves["arm"].isin(arms)]}
        if settings.baseline in set(curves["arm"]):
            ahead = gain_at_equal_cost(curves, settings.baseline, cost)
            tables["gain"] = ahead[ahead["arm"].isin(arms)]
        for measure, table in tables.items():
            parts.append(_means(table, "share", cost, measure, settings.statistics).assign(cost=cost, measure=measure))
    choices = {
        "measure": {name: MEASURES[name] for name in tables},
        "cost": {name: " ".join(AXES[name].split()) for name in costs},
    }
    options = {"labels": ("cost", "measure"), "shown": [settings.arm(arm).title for arm in shown]}
    return _lines_of_arms(figure, parts, arms, settings, choices=choices, **options)


def _answering_steps(
    figure: Figure, steps: pd.DataFrame, arms: Sequence[str], settings: Settings, metrics: Sequence[str]
) -> Figure:
    """`figure` with its drawing: any of the metrics over steps."""
    parts = []
    for metric in metrics:
        runs = steps[steps["arm"].isin(arms)]
        smooth = [run.assign(**{metric: running_mean(run, metric)}) for _, run in runs.groupby("arm", sort=False)]
        means = _means(pd.concat(smooth), "step", "step", metric, settings.statistics)
        every = max(1, int(np.ceil(means["x"].nunique() / THINNED)))
        parts.append(means[means["at"] % every == 0].assign(measure=metric))
    if not parts:
        return figure
    choices = {"measure": {name: DYNAMICS[name] for name in metrics}}
    return _lines_of_arms(figure, parts, arms, settings, choices=choices, labels=("training step", "measure"))


def _means(table: pd.DataFrame, at: str, x: str, y: str, statistics: Statistics) -> pd.DataFrame:
    """arm, at, x, mean, low, high: `y` over seeds at each value of `at`, at the seeds' mean `x`; shares lie
    within 0 and 1."""
    parts = []
    for arm, runs in table.groupby("arm", sort=False):
        y_S_E = runs.pivot(index="seed", columns=at, values=y)
        x_E = runs.groupby(at)[x].mean() if x != at else pd.Series(y_S_E.columns, y_S_E.columns)
        mean_E, low_E, high_E = mean_and_interval(y_S_E.to_numpy(float), statistics)
        if y in SHARES:
            low_E, high_E = low_E.clip(0, 1), high_E.clip(0, 1)
        part = {"arm": arm, "at": y_S_E.columns, "x": x_E.loc[y_S_E.columns].to_numpy(float)}
        curve = pd.DataFrame({**part, "mean": mean_E, "low": low_E, "high": high_E}).dropna(subset="mean")
        parts.append(curve.drop_duplicates(["x", "mean"]))  # a run that has ended keeps its value
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["x", "mean", "low", "high"])


def _lines_of_arms(
    figure: Figure, means: list[pd.DataFrame], arms: Sequence[str], settings: Settings, **options: Any
) -> Figure:
    """`lines` of `_means`, in the order of `arms`, which are named and grouped as in figures."""
    table, titles = pd.concat(means, ignore_index=True), settings.titles_of(arms)
    place = table["arm"].map({arm: place for place, arm in enumerate(arms)})
    ordered = table.iloc[np.argsort(place.to_numpy(), kind="stable")]
    ordered = ordered.assign(arm=ordered["arm"].map(titles))
    options |= {"base": settings.arm(settings.baseline).title}
    options |= {"groups": {title: settings.arm(arm).group for arm, title in titles.items()}}
    return lines(figure, ordered, x="x", y="mean", by="arm", low="low", high="high", **options)


def with_axis(evaluations: pd.DataFrame, axis: str) -> pd.DataFrame:
    """`evaluations` with the column of that axis: total_tokens is added here, generated + trained."""
    if axis != "total_tokens":
        return evaluations
    return evaluations.assign(total_tokens=evaluations["generated_tokens"] + evaluations["trained_tokens"])


def gain_at_equal_cost(evaluations: pd.DataFrame, baseline: str, axis: str) -> pd.DataFrame:
    """A row per row of `evaluations` (`at_budgets`'s) that the baseline shares the seed of: arm, seed, share, cost, and
    `gain`: accuracy minus the baseline's with that seed at that cost, linear between its points; beyond its last, where
    it has spent less than the arm in all, minus where it ended."""
    parts = []
    by_seed = dict(iter(evaluations[evaluations["arm"] == baseline].sort_values("share").groupby("seed")))
    for seed, runs in evaluations.groupby("seed"):
        if seed in by_seed:
            at_cost = np.interp(runs[axis], by_seed[seed][axis], by_seed[seed]["accuracy"])
            parts.append(runs[["arm", "seed", "share", axis]].assign(gain=runs["accuracy"] - at_cost))
    return pd.concat(parts, ignore_index=True)


def running_mean(runs: pd.DataFrame, metric: str) -> pd.Series:
    """Mean of up to `WINDOW` steps, within each seed, over those at which the metric is defined."""
    return runs.groupby("seed")[metric].transform(lambda values: values.rolling(WINDOW, min_periods=1).mean())


def mean_and_interval(values_S_E: np.ndarray, statistics: Statistics) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean_E, low_E, high_E) over S seeds: the t intervals of `repro.stats.intervals`, point by point.

    NaN entries (a run that stopped, a skipped step) are left out; bounds are NaN where fewer than two are known.
    """
    whole_E = np.isfinite(values_S_E).all(axis=0)
    ends_3_E = np.full((3, values_S_E.shape[1]), np.nan)
    ends_3_E[:, whole_E] = t_intervals(values_S_E[:, whole_E].T, statistics.confidence)  # at once: there are thousands
    for place in np.flatnonzero(~whole_E):
        known = values_S_E[np.isfinite(values_S_E[:, place]), place]
        ends_3_E[:, place] = t_intervals(known, statistics.confidence) if len(known) else np.nan
    return tuple(ends_3_E)


def _curve(
    ax: Axes, runs: pd.DataFrame, x: str, y: str, style: Mapping, label: str, statistics: Statistics, form: str | float
) -> None:
    """Mean of the seeds with its interval: a `band`, `bars` at every point, or one bar this far after the last. The
    mean is at equal `x` over steps, else at equal shares of the budget."""
    means = _means(runs, "step" if x == "step" else "share", x, y, statistics)
    if means.empty:  # as when every step was skipped: the arm still appears in the legend
        ax.plot([], [], label=f"{label} (never)", **style)
        return
    place, low, high = means["x"], means["low"], means["high"]
    ax.plot(place, means["mean"], label=label, **style)
    if form == "band":
        ax.fill_between(place, low, high, color=style["color"], alpha=0.18, linewidth=0)
    elif form == "bars":
        ax.vlines(place, low, high, color=style["color"], linewidth=1.2)
    else:
        ax.vlines(place.iloc[-1] + form, low.iloc[-1], high.iloc[-1], color=style["color"], linewidth=2)


def _short(value: float, _: int) -> str:
    """1,500 as 1.5k; small numbers as they are."""
    return EngFormatter(sep="")(value) if abs(value) >= 1000 else f"{value:.3g}"


def _names_at_the_side(drawn: Axes, ax: Axes) -> None:
    """The arms of `drawn` to the right of the panel `ax`, from the highest end to the lowest."""
    handles, labels = drawn.get_legend_handles_labels()
    ends = [handle.get_ydata()[-1] if len(handle.get_ydata()) else -np.inf for handle in handles]
    order = np.argsort(ends, kind="stable")[::-1]
    look = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "handlelength": 2.6, "labelspacing": 0.3}
    ax.legend([handles[i] for i in order], [labels[i] for i in order], **look)


def _cost_axis(ax: Axes, axis: str) -> None:
    ax.set_xlabel(AXES[axis])
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))


def _headline(figure: Figure, title: str) -> None:
    figure.suptitle(title, x=0.01, ha="left")
