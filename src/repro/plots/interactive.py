"""A figure that answers: an altair chart of its rows, attached to the static figure of the same rows.

`lines` and `estimates` return the figure that they are given, so the last line of a cell becomes

    lines(figure, table, x="step", y="error", by="sampler")

A notebook, print and a reader without scripts see the figure as it was. A report (repro.report) draws the chart instead
once its reader scrolls there: values under the pointer, a choice of lines, and of what they show.
"""

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from repro.plots.style import ANSWERS, COLORS
from repro.stats.tables import interval

sys.modules.setdefault("rfc3987_syntax", None)  # as in repro.pipeline.run: two seconds for no chart
import altair as alt  # noqa: E402

BASE = "#1a1a1a"  # the baseline's line
FEW = 3  # lines, whose bands can be distinguished; of more, the band of the one under the pointer is shown
HEIGHT, ROW = 340, 17  # pixels, of a drawing of lines and of a row
DIGITS = 4  # significant ones, so that a page of many curves stays small
Choices = Mapping[str, Mapping[str, str]]
NUMBERS = {"titleFontWeight": "normal", "labelFlush": False, "grid": True}
GREYS = {"gridColor": "#e6e8eb", "domainColor": "#8a8f98", "tickColor": "#8a8f98"}


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
    note: str = "",
) -> Figure:
    """`figure`, with a line for each value of `by`, a band from `low` to `high`, and points that say their numbers.

    `choices`: {column: {value: label}}; the reader picks one of the values of each, the first to begin with. `labels`:
    what the axes and a point's numbers are called; an axis called as one of `choices` has the name of what is chosen.
    `base`: the line in black. `groups`: {line: heading} in the list of lines. `shown`: the lines to begin with, by
    default the first seven; any other can be added. `note`: what the lines mean.
    """
    names = list(dict.fromkeys(table[by]))
    first = [name for name in (shown or names) if name != base][: len(COLORS)]
    colours = {base: BASE} if base in names else {}
    colours |= dict(zip(first, COLORS, strict=False))
    picked = dict(choices or {})
    chart = _line_chart(picked, (by, *labels), "interval" if low is not None else "")
    chart = _with(chart, {"colours": colours, "few": len(colours) <= FEW})
    entries = [{"name": name, "group": (groups or {}).get(name, "")} for name in names]
    columns = {"line": by, "x": x, "y": y, "low": low or y, "high": high or y}
    kept = {name: table[column] for name, column in columns.items()}
    return _attach(figure, chart, table, kept, picked, {"lines": entries, "palette": list(COLORS), "note": note})


def _line_chart(picked: Choices, titles: tuple[str, str, str], band: str) -> alt.LayerChart:
    """The drawing of `lines`. `titles`: what a point calls its line, its x and its y; `band`: and its low to high."""
    across, up = ({"tickCount": 5, **NUMBERS, "title": _title(title, picked)} for title in titles[1:])
    # A field's tooltip would do, but Vega-Lite looks for words in the wrong place where points answer from a distance.
    row = "(datum.datum || datum)"
    numbers = [f"{row}.line", _short(f"{row}.x", ".4"), f"format({row}.y, '.4~g')"]
    said = dict(zip(titles, numbers, strict=True))
    ends = f"format({row}.low, '.4~g') + ' to ' + format({row}.high, '.4~g')"
    said |= {band: f"isValid({row}.low) && isValid({row}.high) ? {ends} : 'not known'"} if band else {}
    tooltip = "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in said.items()) + "}"
    near = alt.selection_point(
        name="near", nearest=True, on="pointerover", clear="pointerout", fields=["line"], empty=False
    )
    shade = alt.when(near).then(alt.value(0.25)).when("few").then(alt.value(0.13)).otherwise(alt.value(0))
    clear = alt.when(near).then(alt.value(1)).otherwise(alt.value(0.3))
    rows, points = alt.Chart(), {"filled": True, "size": 70, "tooltip": alt.ExprRef(tooltip)}
    chart = _layers(
        rows.mark_area().encode(y=alt.Y("low:Q", title=None), y2="high", opacity=shade),
        rows.mark_line(strokeWidth=2),
        rows.mark_point(**points).encode(opacity=clear).add_params(near),
        picked=picked,
        autosize={"type": "fit", "contains": "padding"},
        height=HEIGHT,
    )
    chart = chart.transform_filter("isValid(colours[datum.line])").transform_calculate(colour="colours[datum.line]")
    return chart.encode(
        x=alt.X("x:Q", axis={**across, "labelExpr": _short("datum.value")}),
        y=alt.Y("y:Q", axis=up, scale={"zero": False}),
        detail="line:N",
        color=alt.Color("colour:N", scale=None),
    )


def _title(title: str, picked: Choices) -> str | dict[str, str]:
    """An axis's name: `title`, or where that is one of the choices, what is chosen, as an expression."""
    return {"expr": f"said_{title}[pick_{title}]"} if title in picked else title


def _short(value: str, digits: str = "") -> str:
    """The expression that writes a number: 1.5k, but 0.2 where the units of physics would have 200m."""
    return f"format({value}, abs({value}) < 1 ? '{digits}~g' : '{digits}~s')"


def estimates(
    figure: Figure,
    table: pd.DataFrame,
    *,
    by: str,
    value: str,
    choices: Choices,
    spec: str | Mapping[str, str] = "+.3f",
    reference: float | Mapping[str, float] = 0.0,
    limits: tuple[float, float] | None = None,
    group: str | None = None,
    log: bool | Collection[str] = False,
    label: str = "",
    better: str | Mapping[str, str] = "higher",
    note: str = "",
) -> Figure:
    """`figure`, with a row for each value of `by`: a point at the column `value`, its interval from `value`_low to
    `value`_high, and a line at `reference`.

    `spec`, how numbers are written, and `reference`: one for all, or by panel, the first of `choices`. A column
    `answer`, if there is one, is said too and has the looks of ANSWERS. `limits`: of all axes, beyond which intervals
    are cut and points are arrows; by default of each panel, as far as its intervals reach. `group`: a column by which
    the reader can leave out rows. `log`: whether axes are logarithmic, or for which panels. `label`: what the values
    are, before what the panel is called. `better`: which answer is good, and blue, for all panels or by panel.
    `note`: what the marks mean. The reader may have the order of the values in place of `table`'s.
    """
    table, panel = table.reset_index(drop=True), next(iter(choices))
    points = table[[value, f"{value}_low", f"{value}_high"]].set_axis(["value", "low", "high"], axis=1).astype(float)
    points["reference"], specs = (
        table[panel].map(of) if isinstance(of, Mapping) else pd.Series(of, table.index) for of in (reference, spec)
    )
    reach = {key: limits or _span(points[table[panel] == key]) for key in choices[panel]}
    logs = {key: log if isinstance(log, bool) else key in log for key in reach}
    least, most = np.array([reach[key] for key in table[panel]], float).reshape(-1, 2).T
    within = {"at": points["value"], "low": points["low"], "high": points["high"]}
    within = {name: column.clip(least, most) for name, column in within.items()} | {"reference": points["reference"]}
    kept = {name: _on_axis(column, table[panel].map(logs).astype(bool)) for name, column in within.items()}
    said = [interval(*row[:3], form) for row, form in zip(points.to_numpy(), specs, strict=True)]
    kept |= {"line": table[by], "value": points["value"], "said": pd.Series(said, dtype=object)}
    kept |= _looks(table, table[panel].map(better) if isinstance(better, Mapping) else better)
    if "answer" in table:
        kept["said"] += ", " + table["answer"]
    beyond = [points["value"] < least, points["value"] > most]
    kept["shape"] = pd.Series(np.select(beyond, ["triangle-left", "triangle-right"], "circle"))
    kept["place"] = pd.Series(range(len(table)))
    more: dict[str, Any] = {"note": note} if note else {}
    orders: dict[str, Mapping[str, str]] = {"order": {"declared": "as declared", "value": "by value"}}
    if group:
        kept["group"] = table[group]
        orders["group"] = {"": "every group", **{name: name for name in table[group].unique()}}
        counts = {"": table[by].nunique(), **table.groupby(group)[by].nunique().to_dict()}
        more["heights"] = {name: ROW * int(count) for name, count in counts.items()}
    titles = {key: ", ".join(filter(None, (label, said))) for key, said in choices[panel].items()}
    picked = {**choices, panel: titles}
    placed = {key: [float(end) for end in np.log2(pair)] if logs[key] else list(pair) for key, pair in reach.items()}
    chart = _row_chart(picked, ROW * table[by].nunique(), panel, by, bool(group))
    chart = _with(chart, {"limits": placed, "logs": logs} | _picks(orders))
    return _attach(figure, chart, table, kept, choices, more, orders)


def _span(points: pd.DataFrame) -> tuple[float, float]:
    return float(points.min(axis=None)), float(points.max(axis=None))


def _looks(table: pd.DataFrame, better: "str | pd.Series") -> dict[str, pd.Series]:
    """`colour` and `fill` of each point: blue where its answer is the better one."""
    told = table["answer"] if "answer" in table else pd.Series("higher", table.index)
    other = {"higher": "lower", "lower": "higher"}
    pairs = told.where((better == "higher") | ~told.isin(other), told.map(other)).map(ANSWERS)
    return {name: pairs.str[place].map(to_hex) for place, name in enumerate(("colour", "fill"))}


def _on_axis(values: pd.Series, in_log: pd.Series) -> pd.Series:
    """Where `in_log` the logarithms to base 2: the axis is linear, since a reader's choice cannot change its kind."""
    return values.where(~in_log, np.log2(values.where(in_log)))


def _row_chart(picked: Choices, height: int, panel: str, by: str, grouped: bool) -> alt.LayerChart:
    """The drawing of `estimates`: the reference, intervals, and points that say their numbers."""
    shown = f"pick_{panel}"
    scale = {"type": "linear", "zero": False, "nice": False, "domain": alt.ExprRef(f"limits[{shown}]")}
    label = f"logs[{shown}] ? format(pow(2, datum.value), '.3~r') : format(datum.value, '~g')"
    axis = {**NUMBERS, "orient": "top", "tickCount": 5, "labelExpr": label, "labelSeparation": 8}
    names = {"labelPadding": 8, "ticks": False, "domain": False, "grid": True}  # the padding is an arrow's
    rows, at = alt.Chart(), {"scale": scale, "title": None}
    looks = [alt.Stroke("colour:N", scale=None), alt.Fill("fill:N", scale=None), alt.Shape("shape:N", scale=None)]
    said = [alt.Tooltip("line:N", title=by), alt.Tooltip("said:N", title="value")]
    intervals = rows.mark_rule(strokeWidth=1.8).transform_filter("isValid(datum.low) && isValid(datum.high)")
    chart = _layers(
        rows.mark_tick(color=BASE, thickness=1.2, height=1.3 * ROW, opacity=1).encode(x=alt.X("reference:Q", **at)),
        intervals.encode(x=alt.X("low:Q", **at), x2="high", color=alt.Color("colour:N", scale=None)),
        rows.mark_point(filled=True, size=60, strokeWidth=1.6, opacity=1).encode(*looks, tooltip=said),
        picked=picked,
        autosize={"type": "fit-x", "contains": "padding"},
        height=height,
    )
    chart = chart.transform_filter("pick_group === '' || datum.group === pick_group") if grouped else chart
    return chart.transform_calculate(rank="pick_order === 'value' ? -datum.value : datum.place").encode(
        x=alt.X("at:Q", axis={**axis, "title": _title(panel, picked)}, **at),
        y=alt.Y("line:N", title=None, sort={"field": "rank", "op": "min", "order": "ascending"}, axis=names),
    )


def _layers(*layers: alt.Chart, picked: Choices, **size: Any) -> alt.LayerChart:
    """What the drawings share: font, a parameter for each choice, and the rows of what is picked."""
    chart = alt.layer(*layers, data=alt.NamedData("rows"), background="white", **size)
    for name in picked:
        chart = chart.transform_filter(f"datum.{name} === pick_{name}")
    font = {"labelFontSize": 12, "titleFontSize": 12}
    config = {"aria": False, "font": "system-ui, sans-serif"}  # the page gives it the picture's description
    chart = chart.configure(**config).configure_axis(**font, **GREYS).configure_view(stroke=None)
    return _with(chart, _picks(picked) | {f"said_{name}": dict(options) for name, options in picked.items()})


def _picks(choices: Choices) -> dict[str, str]:
    return {f"pick_{name}": next(iter(options)) for name, options in choices.items()}


def _with(chart: alt.LayerChart, values: Mapping[str, Any]) -> alt.LayerChart:
    return chart.add_params(*(alt.param(name=name, value=value) for name, value in values.items()))


def _attach(
    figure: Figure,
    chart: alt.LayerChart,
    table: pd.DataFrame,
    kept: Mapping[str, pd.Series],
    picked: Choices,
    more: dict[str, Any],
    orders: Choices | None = None,
) -> Figure:
    """`figure` with all of it as JSON: the rows by column, words as places in a list of the different ones."""
    columns = {**kept, **{name: table[name] for name in picked}}
    offered = {**picked, **(orders or {})}
    choices = {name: [[key, label] for key, label in options.items()] for name, options in offered.items()}
    figure.interactive = {
        "title": " ".join(figure.get_suptitle().split()),
        "spec": chart.to_dict(validate=False),  # whose schema knows no title that is an expression
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
