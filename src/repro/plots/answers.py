"""Answers as a forest plot: differences from the baseline, and whether each is higher, lower, equal or inconclusive.

A difference far outside the range of the others would compress their scale: it is drawn as an arrow at the edge, with
its value.
"""

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from repro.plots.interactive import estimates
from repro.plots.style import ANSWERS, STRIPE, new_figure
from repro.plots.words import says
from repro.stats.answers import MARGIN

FEW = 6  # answers that are named; more are counted
LINE = 66  # letters of all panels' labels side by side
ROW = 0.27  # inches
FAR = 4.0  # times the usual distance from 0: beyond it, an arrow
ENDS = ["difference", "difference_low", "difference_high"]


def answers(
    panels: Mapping[str, pd.DataFrame], titles: Mapping[str, str], title: str, far: float = FAR, what: str = ""
) -> Figure:
    """A panel for each of `panels`, {label: table}; arms by family, on the same axes everywhere. `what`: the measure,
    where the labels do not say it.

    A table has a row per arm (the index): family, difference, difference_low, difference_high, answer, and each, if it
    has it, a list of values that are dots. A panel leaves blank what its table lacks. Grey: within MARGIN of 0.
    """
    family = pd.concat([table["family"] for table in panels.values()])
    family = family[~family.index.duplicated()]
    family = family.iloc[np.argsort(pd.factorize(family)[0], kind="stable")]
    places, headings = _places(family)
    limits = _limits(list(panels.values()), far)
    figure, axes = new_figure(1.6 + ROW * (len(places) + len(headings)), 1, len(panels), width=9.6, sharey=True)
    for ax, (label, table) in zip(axes[0], panels.items(), strict=True):
        _panel(ax, table.reindex(family.index), places, limits)
        ax.set_xlabel(textwrap.fill(", ".join(filter(None, (what, label))), LINE // len(panels)))
    axes[0, 0].set_yticks([*places, *headings], [*family.index.map(titles), *headings.values()])
    for name in axes[0, 0].get_yticklabels()[len(places) :]:
        name.set_fontweight("bold")
    axes[0, 0].set_ylim(max([*places, *headings], default=0) + 0.8, -0.8)
    figure.suptitle(title, x=0.01, ha="left")
    told = pd.concat(panels, names=["panel", "arm"]).reset_index()
    _legend(figure, told["answer"])
    says(figure, "; ".join(f"{label}: {_found(table['answer'], titles)}" for label, table in panels.items()))
    told = told.iloc[np.argsort(family.index.get_indexer(told["arm"]), kind="stable")].reset_index(drop=True)
    return estimates(
        figure,
        told.assign(arm=told["arm"].map(titles)),
        by="arm",
        value="difference",
        choices={"panel": {label: label for label in panels}},
        group="family",
        limits=limits,
        label=what,
        note="After correction, blue: higher; orange: lower; white: inconclusive.",
    )


def _found(answer: pd.Series, titles: Mapping[str, str]) -> str:
    told = answer[answer != "inconclusive"]
    named = [f"{titles[arm]} {word}" for arm, word in told.items()] if len(told) <= FEW else []
    counted = answer[answer == "inconclusive"] if named else answer
    counts = counted.value_counts().reindex(ANSWERS, fill_value=0)
    return ", ".join([*named, *(f"{count} {word}" for word, count in counts.items() if count)])


def _places(family: pd.Series) -> tuple[list[int], dict[int, str]]:
    """(line of each arm, {line: family}): one line for each arm, and one above each family."""
    first = ~family.duplicated()
    place = np.arange(len(family)) + first.cumsum()
    return place.tolist(), dict(zip(place[first] - 1, family[first], strict=True))


def _limits(tables: Sequence[pd.DataFrame], far: float) -> tuple[float, float]:
    """The axis of all panels: as far as their intervals and dots reach, with a margin."""
    dots = [table["each"].explode().to_numpy(float) for table in tables if "each" in table]
    ends = np.concatenate([table[ENDS].to_numpy(float).ravel() for table in tables])
    low, high = reach(ends, far, np.concatenate([[], *dots]))
    margin = 0.06 * (high - low) or 0.05
    return low - margin, high + margin


def reach(distances: np.ndarray, far: float = FAR, more: Sequence[float] = ()) -> tuple[float, float]:
    """(smallest, largest) signed distance from 0 that a panel must show, including 0, without outliers.

    An outlier, also among `more`, exceeds `far` times the third quartile of absolute `distances`. NaN and infinities
    are ignored."""
    known = distances[np.isfinite(distances)]
    usual = np.quantile(np.abs(known), 0.75) if len(known) else 0.0
    known = np.append(known, np.asarray(more)[np.isfinite(more)])
    kept = known[np.abs(known) <= far * usual] if usual > 0 else known
    return float(min(kept.min(initial=0.0), 0.0)), float(max(kept.max(initial=0.0), 0.0))


def _panel(ax: Axes, table: pd.DataFrame, places: list[int], limits: tuple[float, float]) -> None:
    ax.axvline(0, color="0.1", linewidth=1.2)
    for place in places:
        if place % 2:
            ax.axhspan(place - 0.5, place + 0.5, color=STRIPE, zorder=0, linewidth=0)
    for place, row in zip(places, table.itertuples(), strict=True):
        if np.isfinite(row.difference):
            _row(ax, row, place, limits)
    ax.axvspan(-MARGIN, MARGIN, color="0.9", zorder=0)
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.set_xlim(limits)
    ax.grid(visible=False, axis="y")


def _row(ax: Axes, row: tuple, place: int, limits: tuple[float, float]) -> None:
    """One arm: its interval and point, or an arrow towards it."""
    (left, right), (color, inside) = limits, ANSWERS[row.answer]
    value, low, high = (getattr(row, name) for name in ENDS)
    if not left <= value <= right:
        text, edge, side = (f"{value:.2g} ▶", 1.0, "right") if value > right else (f"◀ {value:.2g}", 0.0, "left")
        ax.text(edge, place, text, transform=ax.get_yaxis_transform(), ha=side, va="center", color=color, fontsize=10)
        return
    ax.plot([max(low, left), min(high, right)], [place, place], color=color, linewidth=1.8, zorder=2)
    if isinstance(each := getattr(row, "each", None), list):
        ax.plot(each, [place] * len(each), "o", color="0.6", markersize=3.5, zorder=2.5)
    ax.plot(value, place, "o", color=color, markerfacecolor=inside, markersize=6.5, markeredgewidth=1.6, zorder=3)


def _legend(figure: Figure, given: pd.Series) -> None:
    """The marks of the answers that are given, below; some studies never ask whether two are equal."""
    look = {"linestyle": "none", "marker": "o", "markeredgewidth": 1.6}
    handles = [
        Line2D(
            [],
            [],
            color=color,
            markerfacecolor=inside,
            label=f"equal within {MARGIN:g}" if answer == "equal" else answer,
            **look,
        )
        for answer, (color, inside) in ANSWERS.items()
        if answer in {*given, "inconclusive"}
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), handletextpad=0.5, columnspacing=1.2)
