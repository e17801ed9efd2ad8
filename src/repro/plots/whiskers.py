"""Estimates with their intervals, a row each: what a notebook's cell puts on its axes."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from repro.plots.style import COLORS, STRIPE


def whiskers(ax: Axes, table: pd.DataFrame, name: str, places: Sequence[float], **look) -> None:
    """`name` of each row of `table` at `places` along y, on a line from `name`_low to `name`_high. `look`: keywords of
    `Axes.plot` for the points."""
    look = {"color": COLORS[0], "marker": "o", "markersize": 6.5, "markeredgewidth": 1.6, **look, "linestyle": "none"}
    ax.hlines(places, table[f"{name}_low"], table[f"{name}_high"], color=look["color"], linewidth=1.7)
    ax.plot(table[name], places, **look)


def course(ax: Axes, table: pd.DataFrame, name: str, **look) -> None:
    """`name` along the index of `table`, at each place with a line from `name`_low to `name`_high. `look`: keywords of
    `Axes.plot`, `color` among them."""
    ax.vlines(table.index, table[f"{name}_low"], table[f"{name}_high"], color=look["color"], linewidth=1.2)
    ax.plot(table.index, table[name], **look)


def name_rows(ax: Axes, names: Sequence[str], reference: float | None = 0.0) -> None:
    """The names of rows 0, 1, … from top to bottom, every other one shaded, and a line at `reference`, if any."""
    ax.set_yticks(range(len(names)), list(names))
    ax.set_ylim(len(names) - 0.45, -0.55)
    ax.grid(axis="y", visible=False)
    if reference is not None:
        ax.axvline(reference, color="0.35", linewidth=1)
    for row in range(1, len(names), 2):
        ax.axhspan(row - 0.5, row + 0.5, color=STRIPE, zorder=0)
