"""Forest plots: one row per arm, by group, with its interval. Drawing only, from `efficiency.summarise`.

An arm far outside the range of the others would compress their scale: it is drawn as an arrow at the edge, with its
value.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from repro.plots.interactive import rows as answering_rows
from repro.plots.style import COLORS, STRIPE, WIDTH, new_figure
from repro.plots.words import says
from repro.settings import Settings
from repro.stats.pass_at_k import KS
from repro.stats.tables import interval, ratio

BETTER, WORSE, PLAIN = COLORS[0], COLORS[1], "0.35"
ROW = 0.27  # inches
FAR = 4.0  # times the usual distance from the reference: beyond it, an arrow
# Ticks of a ratio: the first of these with at least three visible ticks.
TICKS = ((0.01, 0.1, 1, 10, 100), (0.2, 0.5, 1, 2, 5), (0.5, 0.7, 1, 1.4, 2), (0.8, 0.9, 1, 1.1, 1.25))
DIFFERENCES = {  # {prefix of a measure's columns: axis}
    "": "final accuracy minus\n{}'s",
    "greedy_": "greedy, minus\n{}'s",
    "harder_": "on the harder split,\nminus {}'s",
}
RATIO_AXES = {
    "paper_tokens": "trained tokens\n(papers' count)",
    "trained_tokens": "trained tokens\n(computed)",
    "total_tokens": "generated + trained\ntokens (computed)",
    "flops": "FLOPs",
    "seconds": "seconds",
}


@dataclass(frozen=True)
class Look:
    """Colours of the points, a column for each panel: of line and edge, and of the inside."""

    edge: pd.DataFrame
    inside: pd.DataFrame

    @classmethod
    def of(
        cls, rows: pd.DataFrame, columns: list["Column"], edge: pd.Series, filled: pd.Series | None = None
    ) -> "Look":
        """The same edge in every panel; the inside white but for rows that are `filled`, or else reached."""
        whole = pd.Series(True, rows.index)
        full = {c.name: rows.get(f"{c.name}_reached", whole) if filled is None else filled for c in columns}
        inside = {name: edge.where(of.astype(bool), "white") for name, of in full.items()}
        return cls(pd.DataFrame(dict.fromkeys(full, edge)), pd.DataFrame(inside))


@dataclass(frozen=True)
class Column:
    """One panel: `name`, `name_low`, `name_high` of the summary, a line at `reference`; `log`: a log axis. `name_each`,
    if there is one, has a list of values in every row: grey dots. `absent`: what stands where there is no value.
    `alike`: its unit is that of all others, so the axes are the same. `far`: see FAR."""

    name: str
    label: str
    reference: float
    log: bool = False
    absent: str = " undefined"
    alike: bool = False
    far: float = FAR


def difference(summary: pd.DataFrame, settings: Settings, title: str) -> Figure:
    """Where runs end minus where the baseline's do, paired by seed: held-out accuracy at temperature 1, greedily, and
    on the harder split, as far as known; filled if significant after Holm's correction."""
    others = summary[summary["arm"] != settings.baseline]
    baseline = settings.arm(settings.baseline).title
    known = {of: label.format(baseline) for of, label in DIFFERENCES.items() if f"{of}difference" in others}
    columns = [Column(f"{of}difference", label, 0.0) for of, label in known.items()]
    colours = {"more": BETTER, "less": WORSE}
    edge = pd.DataFrame({f"{of}difference": others[f"{of}resolved"].map(colours).fillna(PLAIN) for of in known})
    look = Look(edge, edge.where(edge != PLAIN, "white"))
    figure = _forest(others, columns, look, title, WIDTH if len(columns) == 1 else 9.6)
    marks = {
        "higher, resolved": (BETTER, BETTER),
        "lower, resolved": (WORSE, WORSE),
        "not resolved (Holm)": (PLAIN, "white"),
    }
    higher, lower = ((others["resolved"] == outcome).sum() for outcome in ("more", "less"))
    counted = f"{higher} of {len(others)} arms end significantly higher, {lower} significantly lower; {{}}"
    _say(figure, others, "difference", counted, "+.3f")
    said = {c.name: [interval(*ends, "+.3f") for ends in _ends(others, c.name)] for c in columns}
    note = "Filled: significant after Holm's correction. An arrow: beyond the axis."
    return _answering(_with_legend(figure, marks), others, columns, look, said, note)


def cost_ratios(summary: pd.DataFrame, settings: Settings, level: float, title: str) -> Figure:
    """Cost to reach a level of the baseline's rise, relative to the baseline's cost; one column per cost axis.

    Open marker: the curve is not at the level when the runs end, a lower bound. An interval that ends in an arrow
    leaves the panel, or its upper end is a lower bound (`_open`, see repro.stats.cost_ratios).
    """
    others = summary[summary["arm"] != settings.baseline]
    names = {axis: f"{axis}_ratio_{round(100 * level)}" for axis in RATIO_AXES}
    columns = [Column(name, RATIO_AXES[axis], 1.0, log=True) for axis, name in names.items() if name in others]
    look = Look.of(others, columns, pd.Series(BETTER, others.index))
    figure = _forest(others, columns, look, title, 9.6)
    marks = {
        "reached": (BETTER, BETTER),
        "not reached: a lower bound": (BETTER, "white"),
        "→ upper end not known, or beyond": (BETTER, ""),
    }
    said = {column.name: [ratio(row, column.name) for _, row in others.iterrows()] for column in columns}
    figure = _with_legend(figure, marks)
    if columns:
        shown = next((column for column in columns if column.name == names["flops"]), columns[-1])
        reached = others[others[f"{shown.name}_reached"].astype(bool)]
        cost = " ".join(shown.label.split())
        counted = f"{len(reached)} of {len(others)} arms reach the level; relative to the baseline, in {cost}, {{}}"
        _say(figure, reached, shown.name, counted, ".2f")
    note = "Open arrow: not reached, a lower bound. An interval that ends at the edge goes on, or its end is not known."
    return _answering(figure, others, columns, look, said, note)


def pass_at_k(summary: pd.DataFrame, settings: Settings, title: str) -> Figure:
    """pass@k of the final policies, one column per k, with a line at the baseline's."""
    base = summary.set_index("arm").loc[settings.baseline]
    columns = [Column(f"pass_{k}", f"pass@{k}", float(base[f"pass_{k}"])) for k in KS if np.isfinite(base[f"pass_{k}"])]
    look = Look.of(
        summary, columns, pd.Series(np.where(summary["arm"] == settings.baseline, "0.1", BETTER), summary.index)
    )
    figure = _forest(summary, columns, look, title, 9.0)
    said = {c.name: [interval(*ends) for ends in _ends(summary, c.name)] for c in columns}
    if columns:
        _say(figure, summary, columns[-1].name, f"{columns[-1].label}: {{}}", ".3f")
    figure = _with_legend(figure, {settings.arm(settings.baseline).title: ("0.1", "")})
    return _answering(figure, summary, columns, look, said)


def answers(
    rows: pd.DataFrame, columns: list[Column], margin: float, title: str, finding: str, width: float = 9.6
) -> Figure:
    """Differences with their `{name}_answer`, a panel for each column: higher and lower are filled, equal within
    `margin` (the grey band) is grey, open white."""
    looks = {"higher": (BETTER, BETTER), "lower": (WORSE, WORSE), "equal": (PLAIN, "0.75"), "open": (PLAIN, "white")}
    marked = {c.name: rows[f"{c.name}_answer"].fillna("open").map(looks) for c in columns}
    look = Look(*(pd.DataFrame({name: pair.str[i] for name, pair in marked.items()}) for i in (0, 1)))
    figure = _forest(rows, columns, look, title, width)
    for ax in figure.axes:
        ax.axvspan(-margin, margin, color="0.9", zorder=0)
    said = {
        c.name: [
            f"{interval(*ends, '+.3f')}, {answer}"
            for ends, answer in zip(_ends(rows, c.name), rows[f"{c.name}_answer"], strict=True)
        ]
        for c in columns
    }
    given = {answer for c in columns for answer in rows[f"{c.name}_answer"].dropna()} | {"open"}
    words = {"higher": "higher", "lower": "lower", "equal": f"equal within {margin:g}", "open": "open"}
    marks = {
        word: looks[answer] for answer, word in words.items() if answer in given
    }  # some studies never ask if equal
    grey = f"grey: {words['equal']}; " if "equal" in given else ""
    note = f"Filled: higher or lower after correction; {grey}white: open."
    figure = _with_legend(says(figure, finding), marks)
    return _answering(figure, rows, columns, look, said, note)


def _ends(rows: pd.DataFrame, name: str) -> np.ndarray:
    return rows[[name, f"{name}_low", f"{name}_high"]].to_numpy(float)


def _say(figure: Figure, rows: pd.DataFrame, name: str, sentence: str, spec: str) -> None:
    """The figure's finding: `sentence` with the highest and the lowest of the rows."""
    values = rows.set_index("title")[name].dropna()
    ends = "none is known"
    if len(values):
        high, low = values.idxmax(), values.idxmin()
        ends = f"highest {high} ({values.max():{spec}}), lowest {low} ({values.min():{spec}})"
    says(figure, sentence.format(ends))


def _answering(
    figure: Figure,
    rows: pd.DataFrame,
    columns: list[Column],
    look: Look,
    said: dict[str, list[str]],
    note: str = "",
) -> Figure:
    """`figure` with its drawing: one panel at a time, of the reader's choice, with the same marks."""
    if not columns:
        return figure
    parts, limits = [], {}
    for column in columns:
        limits[column.name] = _limits(rows, _alike(column, columns))
        least, most = limits[column.name]
        value, low, high = _ends(rows, column.name).T
        reached = rows.get(f"{column.name}_reached", pd.Series(True, rows.index)).to_numpy(bool)
        opened = rows.get(f"{column.name}_open", pd.Series(False, rows.index)).to_numpy(bool)
        part = {
            "arm": rows["title"], "group": rows["group"], "panel": column.name, "reference": column.reference,
            "value": value, "said": said[column.name],
            "low": low, "high": np.where(opened, most, high),
            "colour": look.edge[column.name].map(to_hex), "fill": look.inside[column.name].map(to_hex),
        }  # fmt: skip
        part["shape"] = np.select(
            [value < least, (value > most) | ~reached], ["triangle-left", "triangle-right"], "circle"
        )
        parts.append(pd.DataFrame(part, index=rows.index)[np.isfinite(value)])
    labels = {column.name: " ".join(column.label.split()) for column in columns}
    return answering_rows(
        figure,
        pd.concat(parts, ignore_index=True),
        by="arm", limits=limits, choices={"panel": labels}, group="group", log=columns[0].log, note=note,
    )  # fmt: skip


def reach(distances: np.ndarray, far: float = FAR) -> tuple[float, float]:
    """(smallest, largest) signed distance from the reference that a panel must show, including 0, without outliers.

    An outlier exceeds `far` times the third quartile of absolute distances. NaN and infinities are ignored."""
    known = distances[np.isfinite(distances)]
    usual = np.quantile(np.abs(known), 0.75) if len(known) else 0.0
    kept = known[np.abs(known) <= far * usual] if usual > 0 else known
    return float(min(kept.min(initial=0.0), 0.0)), float(max(kept.max(initial=0.0), 0.0))


def _forest(rows: pd.DataFrame, columns: list[Column], look: Look, title: str, width: float) -> Figure:
    places, headings = _places(rows)
    height = 1.6 + ROW * (len(places) + len(headings))
    figure, axes = new_figure(height, 1, max(1, len(columns)), width=width, sharey=True)
    limits = {column.name: _limits(rows, _alike(column, columns)) for column in columns}
    for ax, column in zip(axes[0], columns, strict=False):
        _panel(ax, rows, column, limits[column.name], places, look)
    first = axes[0, 0]
    ticks = [*places, *headings]
    first.set_yticks(ticks, [*rows["title"], *headings.values()])
    for label in first.get_yticklabels()[len(places) :]:
        label.set_fontweight("bold")
    first.set_ylim(max(ticks, default=0) + 0.8, -0.8)
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def _places(rows: pd.DataFrame) -> tuple[list[int], dict[int, str]]:
    """(line of each row, {line: group}): one line per row and one above each group."""
    places: list[int] = []
    headings: dict[int, str] = {}
    line = 0
    for group in rows["group"]:
        if group not in headings.values():
            headings[line] = group
            line += 1
        places.append(line)
        line += 1
    return places, headings


def _alike(column: Column, columns: list[Column]) -> list[Column]:
    """The columns with which one shares its axis."""
    return [other for other in columns if other.log or other.alike] or [column]


def _limits(rows: pd.DataFrame, columns: list[Column]) -> tuple[float, float]:
    """The axis limits of the panels of `columns`, which share a scale."""
    distances = [
        _distances(rows[[f"{c.name}{end}" for end in ("", "_low", "_high")]].to_numpy(float), c) for c in columns
    ]
    low, high = reach(np.concatenate(distances), columns[0].far)
    margin = 0.06 * (high - low) or 0.05
    low, high = low - margin, high + margin
    reference = columns[0].reference
    return (
        (reference * np.exp(low), reference * np.exp(high)) if columns[0].log else (reference + low, reference + high)
    )


def _distances(values: np.ndarray, column: Column) -> np.ndarray:
    """Distances from the reference, in units of the axis."""
    if not column.log:
        return values - column.reference
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(values / column.reference)


def _panel(
    ax: Axes,
    rows: pd.DataFrame,
    column: Column,
    limits: tuple[float, float],
    places: list[int],
    look: Look,
) -> None:
    ax.axvline(column.reference, color="0.1", linewidth=1.2)
    for place in places:
        if place % 2:
            ax.axhspan(place - 0.5, place + 0.5, color=STRIPE, zorder=0, linewidth=0)
    for place, (index, row) in zip(places, rows.iterrows(), strict=True):
        edge, inside = look.edge.at[index, column.name], look.inside.at[index, column.name]
        _row(ax, row, column, limits, place, edge, inside)
    ax.set_xlabel(column.label)
    _axis(ax, column, *limits)


def _row(
    ax: Axes, row: pd.Series, column: Column, limits: tuple[float, float], place: int, color: str, inside: str
) -> None:
    """Draw one arm: its interval and point, or an arrow towards it."""
    value, low, high = (row[f"{column.name}{end}"] for end in ("", "_low", "_high"))
    left, right = limits
    reached = bool(row.get(f"{column.name}_reached", True))
    if not np.isfinite(value):
        ax.text(column.reference, place, column.absent, fontsize=9, color="0.4", va="center")
        return
    if not left <= value <= right:
        number = f"{'' if reached else '≥ '}{value:.2g}"
        text, edge, side = (f"{number} ▶", 1.0, "right") if value > right else (f"◀ {number}", 0.0, "left")
        ax.text(edge, place, text, transform=ax.get_yaxis_transform(), ha=side, va="center", color=color, fontsize=10)
        return
    ax.plot([max(low, left), min(high, right)], [place, place], color=color, linewidth=1.8, zorder=2)
    if row.get(f"{column.name}_open", False) or high > right:
        start = min(value if np.isnan(high) else high, right)
        arrow = {"arrowstyle": "->", "color": color, "linewidth": 1.0, "linestyle": ":"}
        coordinates = {"xycoords": ("axes fraction", "data"), "textcoords": "data"}
        ax.annotate("", (1.0, place), (start, place), **coordinates, arrowprops=arrow)
    if each := row.get(f"{column.name}_each", ()):
        ax.plot(each, [place] * len(each), "o", color="0.6", markersize=3.5, zorder=2.5)
    ax.plot(value, place, "o", color=color, markerfacecolor=inside, markersize=6.5, markeredgewidth=1.6, zorder=3)


def _axis(ax: Axes, column: Column, left: float, right: float) -> None:
    if column.log:
        ax.set_xscale("log")
        within = [[tick for tick in ticks if left <= tick <= right] for ticks in TICKS]
        ax.xaxis.set_major_locator(FixedLocator(next((ticks for ticks in within if len(ticks) > 2), [1.0])))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(_plain)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.set_xlim(left, right)
    ax.grid(visible=False, axis="y")


def _plain(value: float, _: int) -> str:
    return f"{value:g}"


def _with_legend(figure: Figure, marks: dict[str, tuple[str, str]]) -> Figure:
    """The figure with a legend below: {text: (colour, fill)}; without a fill, a line, dotted if the text has "→"."""
    handles = [
        Line2D([], [], linestyle="none", marker="o", color=color, markerfacecolor=fill, markeredgewidth=1.6, label=text)
        if fill
        else Line2D([], [], color=color, linewidth=1.2, linestyle=":" if "→" in text else "-", label=text)
        for text, (color, fill) in marks.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), handletextpad=0.5, columnspacing=1.2)
    return figure
