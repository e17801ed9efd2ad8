"""Tables for reading: a DataFrame as Markdown, and a figure with its interval as one cell."""

from collections.abc import Mapping

import numpy as np
import pandas as pd


def markdown(
    table: pd.DataFrame, columns: Mapping[str, str] | None = None, formats: Mapping[str, str] | None = None
) -> str:
    """`table` as a Markdown table, with a final newline.

    `columns`: {column: heading}, which chooses, orders and names them; all under their own names if left out.
    `formats`: {column: format specification}, as in `format(value, ".3f")`; text is left as it is. A NaN is a dash.
    Columns of numbers, and those with a format, align to the right. `|` in a cell is escaped.
    """
    columns, formats = columns or {name: str(name) for name in table.columns}, formats or {}
    right = {name for name in columns if name in formats or pd.api.types.is_numeric_dtype(table[name])}
    cells = pd.DataFrame(
        {head: [_cell(value, formats.get(name, "")) for value in table[name]] for name, head in columns.items()}
    )
    align = ["right" if name in right else "left" for name in columns]
    return cells.to_markdown(index=False, disable_numparse=True, colalign=align if len(cells) else None) + "\n"


def interval(value: float, low: float, high: float, spec: str = ".3f") -> str:
    """`0.601 [0.593, 0.606]`; the value alone where it has no interval, a dash where it is undefined."""
    if np.isnan(value):
        return "–"
    if np.isnan(low) or np.isnan(high):
        return format(value, spec)
    return f"{value:{spec}} [{low:{spec}}, {high:{spec}}]"


def intervals(table: pd.DataFrame, name: str, spec: str = ".3f") -> list[str]:
    """`interval` of the columns name, name_low and name_high, row by row."""
    rows = zip(table[name], table[f"{name}_low"], table[f"{name}_high"], strict=True)
    return [interval(*row, spec) for row in rows]


def ratio(row: pd.Series, name: str) -> str:
    """A cost ratio of `efficiency.summarise`: `0.72 [0.60, 0.85]`; `≥ 1.04` where the arm's mean curve never reached
    the level, and `0.96 [0.87, ≥ 1.02]` where the upper end is a lower bound."""
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if pd.isna(value):
        return "undefined: the baseline did not rise"
    if not row[f"{name}_reached"]:
        return f"≥ {value:.2f}"
    text = interval(value, low, high, ".2f")
    return text.replace(", ", ", ≥ ") if row[f"{name}_open"] else text


def speedup(row: pd.Series, name: str) -> str:
    """Time to accuracy against the baseline's: `1.31× [1.10, 1.52]`; `≤ 0.96×` where the level was not reached."""
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if pd.isna(value):
        return "undefined: the baseline did not rise"
    if not row[f"{name}_reached"]:
        return f"≤ {value:.2f}×"
    text = interval(value, low, high, ".2f").replace(" [", "× [≤ " if row[f"{name}_open"] else "× [")
    return text if "×" in text else f"{text}×"


def p_value(p: float) -> str:
    """Three digits, `<0.001` below them, a dash where there was no test."""
    return "–" if pd.isna(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def readable(means: pd.DataFrame, formats: Mapping[str, str]) -> pd.DataFrame:
    """Columns of `over_seeds` with their intervals as text. `formats`: {column: format specification}."""
    return pd.DataFrame({name: intervals(means, name, spec) for name, spec in formats.items()}, index=means.index)


def _cell(value: object, spec: str) -> str:
    if isinstance(value, str):
        return value.replace("|", "\\|")
    if value is None or (isinstance(value, (float, np.floating)) and np.isnan(value)):
        return "–"
    return format(value, spec)
