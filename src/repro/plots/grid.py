"""A figure with a small panel for each arm, all on the same axes. Drawing only."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from repro.plots.style import new_figure

COLUMNS = 3


def grid(
    arms: Sequence[str], titles: Mapping[str, str], labels: tuple[str, str], title: str
) -> tuple[Figure, dict[str, Axes]]:
    """The figure and its panels, {arm: axes}, still empty. `labels`: of the x axis, once, and of the y axis of each
    row."""
    rows = -(-len(arms) // COLUMNS)
    figure, axes = new_figure(1.3 + 2.3 * rows, rows, COLUMNS, width=9.6, sharex=True, sharey=True)
    panels = dict(zip(arms, axes.flat, strict=False))
    for arm, ax in panels.items():
        ax.set_title(titles[arm], loc="left", fontsize=12)
    for ax in axes.flat[len(arms) :]:
        ax.set_axis_off()
    for ax in axes[:, 0]:
        ax.set_ylabel(labels[1])
    axes[-1, min(COLUMNS // 2, (len(arms) - 1) % COLUMNS)].set_xlabel(labels[0])
    figure.suptitle(title, x=0.01, ha="left")
    return figure, panels


def legend(figure: Figure, panels: Mapping[str, Axes], columns: int = 2) -> None:
    """What the lines of the first panel are, once for all, below them."""
    handles = next(iter(panels.values())).get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=columns)
