"""A figure of several columns as a phone shows it: the panels below each other, each with its own numbers."""

import pickle
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

WIDTH = 4.1  # inches: 390 px of a phone then show 13 pt as 17 px
TALLEST = 40.0  # inches: a taller column is worse to read than a small figure
LINE = 34  # characters of the title
XLABEL, NAME = 20, 9  # of a panel's axis, and of a row's name that leaves little width to it and to the panel's title
TICKS = 3  # steps of an axis then
PANEL = 2.5  # inches at least
NAMES = 40  # characters of a legend's line, marks included
MARK = 9  # of them, with the gap to the next
ENTRY = 0.24  # inches of height


def stacked(figure: "Figure") -> "Figure | None":
    """A copy of `figure` with its panels in one column; None where it has one column already, would be too tall, has
    names next to its panels, or cannot be copied."""
    axes = [ax for ax in figure.axes if ax.get_subplotspec() is not None]
    columns = max((ax.get_subplotspec().get_gridspec().ncols for ax in axes), default=1)
    rows = len(axes) / columns
    each = max(PANEL, figure.get_figheight() / max(1, rows))
    height = each * sum(map(_is_shown, axes))
    if columns < 2 or height > TALLEST or any(map(_has_names_at_the_side, axes)):
        return None
    import cloudpickle  # pickle takes no lambda, as ticks and second axes have

    try:
        copy = pickle.loads(cloudpickle.dumps(figure))
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    return _restack(copy, height)


def _restack(figure: "Figure", height: float) -> "Figure":
    from matplotlib.gridspec import GridSpec

    for ax in [ax for ax in figure.axes if not _is_shown(ax)]:
        ax.remove()
    axes = [ax for ax in figure.axes if ax.get_subplotspec() is not None]
    figure.set_size_inches(WIDTH, height)
    column = GridSpec(len(axes), 1, figure=figure)
    names = [_names(ax, axes) for ax in axes]
    for place, (ax, (xlabel, ylabel)) in enumerate(zip(axes, names, strict=True)):
        ax.set_subplotspec(column[place])
        if ax.axison:
            ax.tick_params(labelleft=True, labelbottom=True)
            ax.set_xlabel(textwrap.fill(xlabel, XLABEL))  # names of rows may leave it half of the width
            ax.set_ylabel(ylabel)
        if max((len(name.get_text()) for name in ax.get_yticklabels()), default=0) > NAME:
            _crowd(ax)
    if below := figure.get_supxlabel():
        figure.supxlabel(textwrap.fill(below, LINE))
    for legend in list(figure.legends):
        _refit(figure, legend)
    if title := figure.get_suptitle():
        figure.suptitle(textwrap.fill(title, LINE), x=0.01, ha="left")
    return figure


def _crowd(ax: "Axes") -> None:
    """A panel of half the width: fewer ticks, and its title in lines."""
    from matplotlib.text import Text
    from matplotlib.ticker import MaxNLocator

    if isinstance(locator := ax.xaxis.get_major_locator(), MaxNLocator):
        locator.set_params(nbins=TICKS)
    titles = {ax.get_title(side) for side in ("left", "center")} - {""}
    for text in ax.findobj(Text):
        if text.get_text() in titles:
            text.set_text("\n".join(textwrap.fill(line, XLABEL) for line in text.get_text().split("\n")))


def _names(ax: "Axes", axes: "list[Axes]") -> tuple[str, str]:
    """What its axes are called: a panel without a name has that of its column, below, and of its row, to the left."""
    spec = ax.get_subplotspec()
    below = (other.get_xlabel() for other in axes if other.get_subplotspec().colspan == spec.colspan)
    left = (other.get_ylabel() for other in axes if other.get_subplotspec().rowspan == spec.rowspan)
    return ax.get_xlabel() or next(filter(None, below), ""), ax.get_ylabel() or next(filter(None, left), "")


def _refit(figure: "Figure", legend: "Legend") -> None:
    """The figure's legend in as many columns as the width has room for."""
    labels = [text.get_text() for text in legend.get_texts()]
    drawn = {name: handle for ax in figure.axes for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)}
    handles = [drawn.get(name, handle) for name, handle in zip(labels, legend.legend_handles, strict=True)]
    columns = max(1, min(len(labels), NAMES // (MARK + max(map(len, labels), default=0))))
    title = legend.get_title().get_text() or None
    legend.remove()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, title=title)
    figure.set_figheight(figure.get_figheight() + ENTRY * -(-len(labels) // columns))


def _is_shown(ax: "Axes") -> bool:
    return ax.axison or ax.get_legend() is not None


def _has_names_at_the_side(ax: "Axes") -> bool:
    """Whether its legend stands outside of it, to the right."""
    legend = ax.get_legend()
    if legend is None:
        return False
    anchor = legend.get_bbox_to_anchor()._bbox if hasattr(legend.get_bbox_to_anchor(), "_bbox") else None
    return anchor is not None and anchor.x0 >= 1.0
