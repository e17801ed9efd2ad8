"""Figures of the theory notebooks. Drawing only: the numbers come from repro.theory."""

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from pandas import DataFrame

from repro.plots.style import arm_styles, use_style
from repro.theory.sgd.closed_forms import SAMPLINGS
from repro.theory.sgd.least_squares import draw_problem
from repro.theory.sgd.validation import compare_samplings, measure, summarise

PANELS = (("cost", "total cost (units of c)"), ("iteration", "iterations (one gradient each)"))


def error_curves(curves: DataFrame, epsilon: float, title: str) -> Figure:
    """Error against total cost and against iterations, side by side: mean and a band of one SD over trials.

    `curves` is repro.theory.sgd.validation.summarise's table; `epsilon` the target error, drawn as a level line.
    """
    use_style()
    figure, axes = plt.subplots(1, 2, figsize=(10.0, 4.8), sharey=True)
    for ax, (column, label) in zip(axes, PANELS, strict=True):
        _panel(ax, curves, column)
        ax.axhline(epsilon, color="0.35", linewidth=1)
        ax.set(xlabel=label)
    axes[0].set_ylabel("error f(x̄) − f(x*)")
    axes[0].legend(title="sampling", loc="lower left")
    axes[1].annotate("target ε", (0.02, epsilon), xycoords=("axes fraction", "data"), va="bottom")
    axes[1].set_xticks(horizons := sorted(curves["iteration"].unique()), [f"{T}" for T in horizons])
    figure.suptitle(title)
    plt.close(figure)  # the notebook shows the returned figure once, not a second time by itself
    return figure


def explore_costs(cost_high: float, *, n_iterations: int = 1024, n_trials: int = 100, **problem) -> Figure:
    """The same figure for another largest cost, at a size that answers a slider in well under a second.

    `problem` holds the other arguments of repro.theory.sgd.least_squares.draw_problem.
    """
    settings = {**problem, "cost_high": max(cost_high, problem["cost_low"])}
    drawn = draw_problem(**settings)
    trials = compare_samplings(drawn, n_iterations, n_trials, settings["seed"])
    epsilon = measure(trials, settings["seed"], n_resamples=1).epsilon
    return error_curves(summarise(drawn, trials), epsilon, f"What if costs reach {settings['cost_high']:g}?")


def _panel(ax: Axes, curves: DataFrame, column: str) -> None:
    for name, style in arm_styles(list(SAMPLINGS)).items():
        rows = curves[curves["sampling"] == name]
        ax.plot(rows[column], rows["error"], label=name, **style)
        # A band that reaches zero has no end on a log axis: cut it at a tenth of the mean.
        low = (rows["error"] - rows["error_sd"]).clip(lower=rows["error"] / 10)
        ax.fill_between(rows[column], low, rows["error"] + rows["error_sd"], color=style["color"], alpha=0.12, lw=0)
    ax.set(xscale="log", yscale="log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_formatter(NullFormatter())
