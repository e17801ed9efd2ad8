"""Figures of notebooks/theory_sgd_regimes.ipynb. Drawing only: the numbers come from repro.theory."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from pandas import DataFrame

from repro.plots.style import COLORS, arm_styles, new_figure
from repro.theory.sgd import SAMPLINGS, uniform_cost_ratio, variance_cost_ratio
from repro.theory.sgd_regimes.closed_forms import (
    dramatic_ratios,
    draw_scores,
    lognormal_costs,
    lognormal_threshold,
    lognormal_uniform_ratio,
    lognormal_variance_ratio,
)

ITERATES = {
    "average": {"color": COLORS[0], "marker": "o", "linestyle": "-"},
    "last": {"color": COLORS[1], "marker": "s", "linestyle": (0, (5, 1.5))},
}
ERRORS = {"non-convex": "target ε of ‖∇f‖²"}
GREY = "0.45"


def cost_figure(curves: DataFrame, rates: DataFrame, title: str) -> Figure:
    """Cost to reach ε under optimal sampling, one panel per study: both iterates, the bound and the average's limit.

    A point is one horizon: what it cost, and the mean error it reached, with its 95% interval.

    `curves` and `rates` are tables of repro.theory.sgd_regimes.validation, of all studies.
    """
    names = list(curves["study"].unique())
    figure, axes = new_figure(6.9, 2, 2)
    for ax, name in zip(axes.flat, names, strict=True):
        rows = curves[(curves["study"] == name) & (curves["sampling"] == "optimal")]
        for iterate, style in ITERATES.items():
            own = rows[rows["iterate"] == iterate]
            ends = own["epsilon"] - own["epsilon_low"], own["epsilon_high"] - own["epsilon"]
            ax.errorbar(own["epsilon"], own["cost"], xerr=ends, label=f"measured, {iterate}", **style)
        own = rows[rows["iterate"] == "average"]
        ax.plot(own["epsilon"], own["bound"], color=GREY, lw=2.6, label="bound, average")
        ax.plot(own["epsilon"], own["limit"], color="0.1", ls=":", label="limit, average", zorder=4)
        fitted = rates[(rates["study"] == name) & (rates["sampling"] == "optimal")].set_index("iterate")["exponent"]
        ax.set_title(f"{name}\nk = {fitted['average']:.2f}, last {fitted['last']:.2f}")
        ax.set(xscale="log", yscale="log", xlabel=ERRORS.get(name, "target error ε"))
        ax.invert_xaxis()
        _few_ticks(ax)
    for ax in axes[:, 0]:
        ax.set_ylabel("cost to reach ε (units of c)")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.suptitle(title)
    return figure


def regimes_figure(regimes: DataFrame, spreads: tuple[float, float], title: str) -> Figure:
    """Cost relative to optimal against the correlation ρ: closed forms as lines, measured as points with 95% bars."""
    figure, axes = new_figure(4.6)
    ax = axes[0, 0]
    _closed_forms(ax, *spreads)
    for sampling, style in _rivals().items():
        rows = regimes[regimes["pair"] == f"{sampling} / optimal"]
        for column, shift, face in (("linear", -0.012, style["color"]), ("squares", 0.012, "white")):
            ends = rows[column] - rows[f"{column}_low"], rows[f"{column}_high"] - rows[column]
            look = {"color": style["color"], "marker": style["marker"], "markerfacecolor": face}
            problem = {"linear": "linear", "squares": "least squares"}[column]
            label = f"{sampling}, {problem}"
            ax.errorbar(rows["correlation"] + shift, rows[column], ends, ls="none", label=label, **look)
        ax.plot(rows["correlation"], rows["eq_8"], ls="none", marker="_", ms=16, color="0.1", label=None)
    ax.plot([], [], ls="none", marker="_", ms=16, color="0.1", label="eq. 8, these components")
    _finish_regimes(ax, title)
    return figure


def explore_spreads(norm_spread: float, cost_spread: float, *, n_points: int, seed: int) -> Figure:
    """The closed forms for other spreads, and eq. 8 of one draw of `n_points` components: for sliders, at once."""
    figure, axes = new_figure(4.2)
    ax = axes[0, 0]
    _closed_forms(ax, norm_spread, cost_spread)
    z_n, w_n = draw_scores(n_points, seed)
    rho_L = np.linspace(-1, 1, 21)
    costs_L_n = np.array([lognormal_costs(z_n, w_n, cost_spread, rho) for rho in rho_L])
    norms_L_n = np.broadcast_to(np.exp(norm_spread * z_n), costs_L_n.shape)
    for ratio, (sampling, style) in zip((uniform_cost_ratio, variance_cost_ratio), _rivals().items(), strict=True):
        label = f"{sampling}, {n_points} components"
        ax.plot(rho_L, ratio(norms_L_n, costs_L_n), **{**style, "linestyle": "none"}, label=label)
    _finish_regimes(ax, f"What if log G spreads by {norm_spread:.2g} and log c by {cost_spread:.2g}?")
    return figure


def dramatic_figure(dramatic: DataFrame, title: str) -> Figure:
    """Cost relative to optimal against n for c = i², G = 1/i: closed forms, and measured with 95% bars."""
    figure, axes = new_figure(3.8)
    ax = axes[0, 0]
    points = np.unique(np.geomspace(dramatic["n"].min(), dramatic["n"].max(), 60).astype(int))
    for ratio, (sampling, style) in zip(dramatic_ratios(points), _rivals().items(), strict=True):
        ax.plot(points, ratio, color=style["color"], ls=style["linestyle"], label=f"{sampling}, eq. 8")
        rows = dramatic[dramatic["pair"] == f"{sampling} / optimal"]
        ends = rows["linear"] - rows["linear_low"], rows["linear_high"] - rows["linear"]
        look = {"color": style["color"], "marker": style["marker"]}
        ax.errorbar(rows["n"], rows["linear"], ends, ls="none", label=f"{sampling}, measured", **look)
    ax.set(xscale="log", yscale="log", xlabel="components n", ylabel="cost relative to optimal", title=title)
    _plain(ax)
    ax.legend()
    return figure


def last_figure(growth: DataFrame, title: str) -> Figure:
    """Error of the last iterate over that of the average against the horizon, per study, beside growth like log T."""
    figure, axes = new_figure(3.8)
    ax = axes[0, 0]
    for name, style in arm_styles(list(growth["study"].unique())).items():
        rows = growth[growth["study"] == name]
        ends = rows["ratio"] - rows["ratio_low"], rows["ratio_high"] - rows["ratio"]
        ax.errorbar(rows["iteration"], rows["ratio"], ends, label=name, **style)
    horizons = np.sort(growth["iteration"].unique())
    ax.plot(horizons, np.log(horizons) / np.log(horizons[0]), color=GREY, lw=2.6, label="growth like log T")
    ax.set(xscale="log", yscale="log", title=title, xlabel="horizon T (iterations)", ylabel="error, last / average")
    ax.set_xticks(horizons, [f"{T}" for T in horizons])
    _plain(ax, x=False)
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _rivals() -> dict[str, dict]:
    styles = arm_styles(list(SAMPLINGS))
    return {name: styles[name] for name in ("uniform", "variance")}


def _closed_forms(ax: Axes, norm_spread: float, cost_spread: float) -> None:
    rho_L = np.linspace(-1, 1, 101)
    flat_L = np.broadcast_to(lognormal_variance_ratio(cost_spread), rho_L.shape)
    lines = (lognormal_uniform_ratio(norm_spread, cost_spread, rho_L), flat_L)
    for values_L, (sampling, style) in zip(lines, _rivals().items(), strict=True):
        ax.plot(rho_L, values_L, color=style["color"], ls=style["linestyle"], label=f"{sampling}, closed form")
    if (turn := float(lognormal_threshold(norm_spread, cost_spread))) <= 1:
        ax.axvline(turn, color=GREY, lw=1)
        ax.annotate("Theorem D.1 ", (turn, 0.97), xycoords=("data", "axes fraction"), ha="right", va="top")


def _finish_regimes(ax: Axes, title: str) -> None:
    ax.set(yscale="log", xlabel="correlation ρ of log G and log c", ylabel="cost relative to optimal", title=title)
    _plain(ax, x=False)
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def _plain(ax: Axes, x: bool = True) -> None:
    """Ratios as 1, 2, 5, 10 rather than as powers of ten."""
    for axis in (ax.xaxis, ax.yaxis) if x else (ax.yaxis,):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_minor_formatter(NullFormatter())


def _few_ticks(ax: Axes) -> None:
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_formatter(NullFormatter())
