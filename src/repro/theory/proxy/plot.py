"""Figures of the proxy-gap notebook. Drawing only: the numbers come from repro.theory."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from repro.plots.style import BASELINE, arm_styles, new_figure
from repro.theory.proxy.noise import NOISES, noise_of
from repro.theory.proxy.validation import draw_instance, noise_curves

CORRELATIONS = (0.999, 0.99, 0.95, 0.8, 0.5)
REFERENCE = {**BASELINE, "linewidth": 2}


def identity_scatter(table: DataFrame, title: str) -> Figure:
    """J(p)/J(p*) − 1 against χ², one dot an instance (repro.theory.proxy.validation.check_identity's table).

    The drawn line is equality; what rounds to 0 is left out of the log axes, and counted.
    """
    figure, axes = new_figure(4.4)
    ax = axes[0, 0]
    shown = table[(table["excess"] > 0) & (table["direct"] > 1)]
    ends = np.array([shown["excess"].min(), shown["excess"].max()])
    dots = {"linestyle": "none", "marker": "o", "markersize": 2.5, "alpha": 0.4, "color": "0.35"}
    ax.plot(shown["excess"], shown["direct"] - 1, **dots, rasterized=True)  # or the SVG would hold a path for each
    ax.plot(ends, ends, color="#d55e00", linewidth=1.5)
    ax.axvline(np.finfo(float).eps, color="0.6", linewidth=1)
    ax.annotate("rounding of 1 ", (np.finfo(float).eps, 0.9), xycoords=("data", "axes fraction"), ha="right")
    ax.set(xscale="log", yscale="log", xlabel="χ² of the cost-biased distributions", ylabel="J(p)/J(p*) − 1, directly")
    ax.set_title(f"{title}\n{len(table)} instances, {len(table) - len(shown)} of them round to 0", loc="left")
    return figure


def noise_figure(curves: DataFrame, title: str) -> Figure:
    """The excess of a noisy proxy against the noise, with D.5: absolute, and relative to D.5.

    Dots: Monte Carlo means with 95% intervals (Gaussian: medians, for the mean is infinite); lines: exact. A family
    ends where its excess becomes infinite. `curves`: repro.theory.proxy.validation.noise_curves.
    """
    figure, axes = new_figure(4.9, 1, 2, width=10.0, sharex=True)
    _noise_panel(axes[0, 0], curves, relative=False)
    _noise_panel(axes[0, 1], curves, relative=True)
    axes[0, 0].legend(loc="upper left")
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def explore_norms(norm_low: float, *, n_components: int, norm_high: float, seed: int, **costs: float) -> Figure:
    """The right panel of `noise_figure` for another least norm, small enough to follow a slider.

    `costs`: cost_low and cost_high of repro.theory.proxy.validation.draw_instance.
    """
    norms_n, costs_n = draw_instance(n_components, min(norm_low, 0.99 * norm_high), norm_high, seed=seed, **costs)
    figure, axes = new_figure(4.6)
    _noise_panel(axes[0, 0], noise_curves(norms_n, costs_n, 200, seed), relative=True)
    axes[0, 0].legend(loc="upper left")
    axes[0, 0].set_title(f"What if the least norm is {norms_n.min() / norms_n.max():.2g} of the largest?", loc="left")
    return figure


def ablation_figure(table: DataFrame, beta: float, title: str) -> Figure:
    """What noise on |A| costs (left) and what it leaves out or wastes (right): repro.theory.proxy.ablation.ablate."""
    figure, axes = new_figure(4.9, 1, 2, width=10.0, sharex=True)
    left, right = axes[0]
    cost = {
        "smoothed": f"smoothed, β = {beta:g}",
        "support": "not smoothed, over what can be drawn",
        "taylor": "Theorem D.5, where A ≠ 0",
    }
    for (column, label), style in zip(cost.items(), arm_styles(list(cost)).values(), strict=True):
        left.plot(table["noise"], table[column], label=label, **style)
    left.fill_between(table["noise"], table["smoothed_low"], table["smoothed_high"], color="0.5", alpha=0.3, lw=0)
    left.plot(table["noise"], table["uniform"], label="uniform sampling", **REFERENCE)
    left.set(yscale="log", ylabel="cost to reach an error, 1 is ideal")
    left.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    left.legend(loc="upper left")
    shares = {
        "unreachable": "rollouts with A ≠ 0 out of reach",
        "missing": "their share of Σ|A|",
        "silent_cost": "cost spent where A = 0",
    }
    for (column, label), style in zip(shares.items(), arm_styles(list(shares)).values(), strict=True):
        right.plot(table["noise"], 100 * table[column], label=label, **style)
    right.plot(table["noise"], 100 * table["unreachable_predicted"], label="predicted, mean Φ(−|A|/σ)", **REFERENCE)
    right.set(ylabel="share without smoothing (%)")
    right.legend(loc="upper left")
    for ax in (left, right):
        ax.set(xscale="log", xlabel="noise (standard deviations of |A|)")
        ax.set_xticks([0.0625, 0.25, 1, 4], ["1/16", "1/4", "1", "4"])
        ax.minorticks_off()
        _correlation_axis(ax)
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def _noise_panel(ax: Axes, curves: DataFrame, relative: bool) -> None:
    d5 = curves.drop_duplicates("noise")
    ax.plot(d5["noise"], np.ones(len(d5)) if relative else d5["taylor"], label="Theorem D.5", **REFERENCE)
    for family, style in arm_styles(list(NOISES)).items():
        _family(ax, curves[curves["family"] == family], style, relative)
    ax.set(xscale="log", xlabel="noise (standard deviations of G)")
    ax.set_xticks([0.03, 0.1, 0.3, 1.0, 2.0], ["0.03", "0.1", "0.3", "1", "2"])
    ax.minorticks_off()
    if relative:
        ax.set(ylabel="excess / Theorem D.5's", ylim=(0.7, 2.1))
    else:
        ax.set(yscale="log", ylabel="excess, J(p̂)/J(p*) − 1")
    _correlation_axis(ax)


def _family(ax: Axes, rows: DataFrame, style: dict, relative: bool) -> None:
    scale = rows["taylor"] if relative else 1.0
    name = rows["family"].iloc[0]
    label = NOISES[name].label
    if name == "gaussian":
        finite = np.isfinite(rows["median"])
        ax.plot(rows["noise"][finite], (rows["median"] / scale)[finite], label=f"{label} (median)", **style)
        return
    finite = np.isfinite(rows["exact"])
    ax.plot(rows["noise"][finite], (rows["exact"] / scale)[finite], color=style["color"], linestyle=style["linestyle"])
    mean, reach = (rows["mean"] / scale)[finite], ((rows["high"] - rows["mean"]) / scale)[finite]
    dots = {"color": style["color"], "marker": style["marker"], "linestyle": "none"}
    ax.errorbar(rows["noise"][finite], mean, yerr=reach, label=label, capsize=3, **dots)


def _correlation_axis(ax: Axes) -> None:
    low, high = ax.get_xlim()
    shown = [rho for rho in CORRELATIONS if low <= noise_of(rho) <= high]
    top = ax.secondary_xaxis("top")
    top.set_xticks([float(noise_of(rho)) for rho in shown], [f"{rho:g}" for rho in shown])
    top.minorticks_off()
    top.set_xlabel("correlation ρ with the truth")
