"""A figure that answers: a Vega-Lite drawing and the rows behind it, attached to the static figure of the same rows.

`lines` and `rows` return the figure that they are given, so the last line of a cell becomes

    lines(figure, table, x="step", y="error", by="sampler")

A notebook, print and a reader without scripts see the figure as it was. A report (repro.report) draws the rows instead
once its reader scrolls there: values under the pointer, a choice of lines, and of what they show.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from repro.plots.style import COLORS

BASE = "#1a1a1a"  # the baseline's line
FEW = 3  # lines, whose bands can be told apart; of more, the band of the one under the pointer is shown
ROW = 17  # pixels
DIGITS = 4  # significant ones, so that a page of many curves stays small
Choices = Mapping[str, Mapping[str, str]]
NUMBERS = {"titleFontWeight": "normal", "labelFlush": False, "grid": True}


def lines(
    figure: Figure,
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    by: str,
    low: str | None = None,
    high: str | None = None,
    choices: Choices | None = None,
    labels: tuple[str, str] = ("x", "y"),
    base: str | None = None,
    groups: Mapping[str, str] | None = None,
    shown: Sequence[str] | None = None,
) -> Figure:
    """`figure`, with a line for each value of `by`, a band from `low` to `high`, and points that say their numbers.

    `choices`: {column: {value: label}}; the reader picks one of the values of each, the first to begin with. `labels`:
    what a point's numbers are called. `base`: the line in black. `groups`: {line: heading} in the list of lines.
    `shown`: the lines to begin with, by default the first seven; any other can be added.
    """
    names = list(dict.fromkeys(table[by]))
    first = [name for name in (shown or names) if name != base][: len(COLORS)]
    colours = {base: BASE} if base in names else {}
    colours |= dict(zip(first, COLORS, strict=False))
    ends = {"low": low or y, "high": high or y}
    columns = {"x": x, "y": y, **ends}
    picked = dict(choices or {})
    number = {"type": "quantitative", "title": None}
    colour = {"field": "colour", "type": "nominal", "scale": None}
    cartesian = {
        "x": {"field": "x", **number, "axis": {"format": "~s", "tickCount": 5, **NUMBERS}},
        "y": {"field": "y", **number, "scale": {"zero": False}, "axis": {"tickCount": 5, **NUMBERS}},
        "detail": {"field": "line", "type": "nominal"},
        "color": colour,
    }
    # A field's tooltip would do, but Vega-Lite looks for words in the wrong place where points answer from a distance.
    row = "(datum.datum || datum)"
    said = {by: f"{row}.line", labels[0]: f"format({row}.x, '.4~s')", labels[1]: f"format({row}.y, '.4~g')"}
    said |= {"interval": f"format({row}.low, '.4~g') + ' to ' + format({row}.high, '.4~g')"} if low else {}
    tooltip = "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in said.items()) + "}"
    near = {"type": "point", "nearest": True, "on": "pointerover", "clear": "pointerout", "fields": ["line"]}
    band = {"condition": [{"param": "near", "empty": False, "value": 0.25}, {"test": "few", "value": 0.13}], "value": 0}
    spec = {
        **_frame(picked, {"type": "fit", "contains": "padding"}, 340),
        "transform": [
            *_filters(picked),
            {"filter": "isValid(colours[datum.line])"},
            {"calculate": "colours[datum.line]", "as": "colour"},
        ],
        "encoding": cartesian,
        "layer": [
            {
                "mark": {"type": "area"},
                "encoding": {"y": {"field": "low", **number}, "y2": {"field": "high"}, "opacity": band},
            },
            {"mark": {"type": "line", "strokeWidth": 2}},
            {
                "params": [{"name": "near", "select": near}],
                "mark": {"type": "point", "filled": True, "size": 70, "tooltip": {"expr": tooltip}},
                "encoding": {
                    "opacity": {"condition": {"param": "near", "empty": False, "value": 1}, "value": 0.3},
                },
            },
        ],
    }
    spec["params"] += [{"name": "colours", "value": colours}, {"name": "few", "value": len(colours) <= FEW}]
    entries = [{"name": name, "group": (groups or {}).get(name, "")} for name in names]
    kept = {"line": table[by], **{name: table[column] for name, column in columns.items()}}
    return _attach(figure, spec, table, kept, picked, {"lines": entries, "palette": list(COLORS)})


def rows(
    figure: Figure,
    table: pd.DataFrame,
    *,
    value: str,
    by: str,
    low: str,
    high: str,
    reference: str,
    said: str,
    look: Mapping[str, str],
    limits: Mapping[str, tuple[float, float]],
    choices: Choices | None = None,
    group: str | None = None,
    log: bool = False,
) -> Figure:
    """`figure`, with a row for each value of `by`: a point with its interval beside a `reference`, `said` in words.

    `look`: the columns of `table` that hold each point's `colour`, `fill` and `shape`. `limits`: of the axis, {value of
    the first of `choices`, "" where there is none: (least, most)}, to which intervals are cut; a point beyond them
    should have an arrow for a shape. `group`: a column by which the reader can leave out rows.
    """
    picked = dict(choices or {})
    if group:
        headings = {heading: heading for heading in dict.fromkeys(table[group])}
        order = {"": "every group", **headings}
        counts = table.groupby(group)[by].nunique()
        heights = {"": ROW * table[by].nunique(), **{heading: ROW * int(counts[heading]) for heading in headings}}
    panel = next(iter(picked), None)
    ends = pd.DataFrame(
        [limits[key] for key in table[panel]] if panel else [limits[""]] * len(table),
        index=table.index,
        columns=["least", "most"],
    )
    cut = {name: table[column].clip(ends["least"], ends["most"]) for name, column in {"low": low, "high": high}.items()}
    at = table[value].clip(ends["least"], ends["most"])
    scale = {"type": "log"} if log else {"type": "linear", "zero": False}
    scale |= {"nice": False, "domain": {"expr": _domain(panel)}}
    numeric = {"type": "quantitative", "title": None, "scale": scale}
    axis = {**NUMBERS, "orient": "top", "tickCount": 5, "format": "~g"}
    sort = {"field": "rank", "op": "min", "order": "ascending"}
    spec = {
        **_frame(picked, {"type": "fit-x", "contains": "padding"}, ROW * table[by].nunique()),
        "transform": [
            *_filters(picked),
            *([{"filter": "pick_group === '' || datum.group === pick_group"}] if group else []),
            {"calculate": "pick_order === 'value' ? -datum.value : datum.place", "as": "rank"},
        ],
        "encoding": {
            "y": {
                "field": "line",
                "type": "nominal",
                "title": None,
                "sort": sort,
                "axis": {"labelLimit": 170, "ticks": False, "domain": False, "grid": True},
            },
            "x": {"field": "at", **numeric, "axis": axis},
        },
        "layer": [
            {
                "mark": {"type": "tick", "color": BASE, "thickness": 1.2, "height": ROW},
                "encoding": {"x": {"field": "reference", **numeric}},
            },
            {
                "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
                "mark": {"type": "rule", "strokeWidth": 1.8},
                "encoding": {
                    "x": {"field": "low", **numeric},
                    "x2": {"field": "high"},
                    "color": {"field": "colour", "type": "nominal", "scale": None},
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 60, "strokeWidth": 1.6, "opacity": 1},
                "encoding": {
                    "stroke": {"field": "colour", "type": "nominal", "scale": None},
                    "fill": {"field": "fill", "type": "nominal", "scale": None},
                    "shape": {"field": "shape", "type": "nominal", "scale": None},
                    "tooltip": [
                        {"field": "line", "type": "nominal", "title": by},
                        {"field": "said", "type": "nominal", "title": "value"},
                    ],
                },
            },
        ],
    }
    more = {"order": {"declared": "as declared", "value": "by value"}} | ({"group": order} if group else {})
    spec["params"] += [{"name": f"pick_{name}", "value": next(iter(options))} for name, options in more.items()]
    spec["params"].append({"name": "limits", "value": {key: list(ends) for key, ends in limits.items()}})
    kept = {"line": table[by], "at": at, "value": table[value], **cut, "reference": table[reference]}
    kept |= {"place": pd.Series(range(len(table)), table.index), "said": table[said]}
    kept |= {name: table[column] for name, column in look.items()}
    kept |= {"group": table[group]} if group else {}
    return _attach(figure, spec, table, kept, picked, {"heights": heights} if group else {}, more)


def _domain(panel: str | None) -> str:
    """The expression of the axis' ends: those of the panel that is picked, else the only ones."""
    return f"limits[pick_{panel}]" if panel else "limits['']"


def _frame(choices: Choices, fit: dict[str, str], height: int) -> dict[str, Any]:
    """What the drawings share: size, font, and a parameter for each choice."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "height": height,
        "autosize": fit,
        "background": "white",
        "data": {"name": "rows"},
        "params": [{"name": f"pick_{name}", "value": next(iter(options))} for name, options in choices.items()],
        "config": {
            "aria": False,  # the page gives the drawing the picture's description
            "font": "system-ui, sans-serif",
            "axis": {"labelFontSize": 12, "gridColor": "#e6e8eb", "domainColor": "#8a8f98", "tickColor": "#8a8f98"},
            "view": {"stroke": None},
        },
    }


def _filters(choices: Choices) -> list[dict[str, str]]:
    return [{"filter": f"datum.{name} === pick_{name}"} for name in choices]


def _attach(
    figure: Figure,
    spec: dict[str, Any],
    table: pd.DataFrame,
    kept: Mapping[str, pd.Series],
    picked: Choices,
    more: dict[str, Any],
    orders: Choices | None = None,
) -> Figure:
    """`figure` with all of it as JSON: the rows by column, words as places in a list of the different ones."""
    columns = {**kept, **{name: table[name] for name in picked}}
    choices = {
        name: [[key, label] for key, label in options.items()] for name, options in {**picked, **(orders or {})}.items()
    }
    figure.interactive = {
        "spec": spec,
        "columns": {name: _column(values) for name, values in columns.items()},
        "choices": choices,
        **more,
    }
    return figure


def _column(values: pd.Series) -> Any:
    if not pd.api.types.is_numeric_dtype(values):
        codes, words = pd.factorize(values)
        return {"words": [str(word) for word in words], "at": codes.tolist()}
    numbers = values.to_numpy(float)
    return [float(f"{number:.{DIGITS}g}") if np.isfinite(number) else None for number in numbers]
