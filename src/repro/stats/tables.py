"""Tables for reading: a DataFrame as Markdown or HTML, a figure with its interval as one cell, and text as it is.

What a model, a data set or params.yaml says is text: every cell shows it unchanged, whatever it would mean as Markdown,
TeX or HTML.
"""

import re
import unicodedata
from collections.abc import Collection, Mapping
from html import escape

import numpy as np
import pandas as pd

# What would act in Markdown: characters that always may; tags and entities; underscores but for those inside words;
# ~~; the end of a link's text; addresses that become links; and what makes a block of the line it begins.
OWN = re.compile(
    r"[\\`*$]|<(?=[A-Za-z/!?])|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])|~(?=~)|(?<=~)~|\](?=[(\[:])|:(?=//)"
    r"|^(?:[#>\s]|[-+:=](?=\s|$|[-=]))|^\d+[.)](?=\s|$)"
)
REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
LONG = 400  # characters; a longer text scrolls in its cell


def markdown(
    table: pd.DataFrame,
    columns: Mapping[str, str] | None = None,
    formats: Mapping[str, str] | None = None,
    prose: Collection[str] = (),
) -> str:
    """`table` as a Markdown table, with a final newline.

    `columns`: {column: heading}, which chooses, orders and names them; all under their own names if left out.
    `formats`: {column: format specification}, as in `format(value, ".3f")`; text is left as it is. A NaN is a dash.
    Columns of numbers, and those with a format, align to the right. Text is `verbatim`, but for that of the columns in
    `prose`, which is Markdown of the notebook's own.
    """
    columns, formats = columns or {name: str(name) for name in table.columns}, formats or {}
    right = {name for name in columns if name in formats or pd.api.types.is_numeric_dtype(table[name])}
    shown = {
        verbatim(head): [_cell(value, formats.get(name, ""), own=name in prose) for value in table[name]]
        for name, head in columns.items()
    }
    cells = pd.DataFrame(shown)
    align = ["right" if name in right else "left" for name in columns]
    return cells.to_markdown(index=False, disable_numparse=True, colalign=align if len(cells) else None) + "\n"


def as_html(table: pd.DataFrame, places: int = 2) -> str:
    """`table` as an HTML table in which responses can be read: every text whole, with its spaces and line breaks; a
    number has `places` decimals. The index is left out."""
    head = "".join(f"<th>{escape(visible(str(name)))}</th>" for name in table.columns)
    rows = (map(_html_cell, row) for row in table.round(places).itertuples(index=False, name=None))
    body = "\n".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def verbatim(text: object) -> str:
    """`text` as Markdown that shows it as it is, in a cell of a table, in a line or at its start.

    What Markdown, TeX or HTML would read as its own is escaped, mostly as a character reference, which none of them
    reads so; only where it would, so that most text stays readable in a file too.
    """
    said = visible(str(text)).replace("|", "\0")
    said = OWN.sub(lambda match: "".join(map(_reference, match[0])), said)
    return said.replace("\n", "<br>").replace("\0", "\\|")


def visible(text: str) -> str:
    """`text` with every control character and every mark that reverses the order of letters as an escape, as in \\x1b;
    tabs and line breaks (as \\n alone) are kept."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(_escaped(character) if _is_hidden(character) else character for character in lines)


def interval(value: float, low: float, high: float, spec: str = ".3f") -> str:
    """`0.601 [0.593, 0.606]`; the value alone where it has no interval, a dash where it is undefined."""
    if np.isnan(value):
        return "–"
    if np.isnan(low) or np.isnan(high):
        return format(value, spec)
    return f"{value:{spec}} [{low:{spec}}, {high:{spec}}]".replace("inf", "∞")


def intervals(table: pd.DataFrame, name: str, spec: str = ".3f") -> list[str]:
    """`interval` of the columns name, name_low and name_high, row by row."""
    rows = zip(table[name], table[f"{name}_low"], table[f"{name}_high"], strict=True)
    return [interval(*row, spec) for row in rows]


def ratio(row: pd.Series, name: str) -> str:
    """A cost ratio of `efficiency.summarise`: `0.72 [0.60, 0.85]`; `0.96 [0.87, ≥ 1.02]` where the upper end is a lower
    bound, `≥ 1.02 [0.97, ≥ 1.02]` where the level was not reached, and `≥ 1.02` where that is sure."""
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if pd.isna(value):
        return "undefined: the baseline did not rise"
    bound = "≥ " * (not row[f"{name}_reached"])
    if bound and not low < value:
        return f"{bound}{value:.2f}"
    text = bound + interval(value, low, high, ".2f")
    return text.replace(", ", ", ≥ ") if row[f"{name}_open"] else text


def p_value(p: float) -> str:
    """Three digits, `<0.001` below them, a dash where there was no test."""
    return "–" if pd.isna(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def readable(means: pd.DataFrame, formats: Mapping[str, str]) -> pd.DataFrame:
    """Columns of `over_seeds` with their intervals as text. `formats`: {column: format specification}."""
    return pd.DataFrame({name: intervals(means, name, spec) for name, spec in formats.items()}, index=means.index)


def _is_hidden(character: str) -> bool:
    if character in "\n\t":
        return False
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or character in REORDERING


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _reference(character: str) -> str:
    return f"\\{character}" if character in "*_" else f"&#{ord(character)};"


def _html_cell(value: object) -> str:
    if not isinstance(value, str):
        return f"<td>{escape(_cell(value, ''))}</td>"
    said = escape(visible(value), quote=False)
    tab = ' tabindex="0"' if len(value) > LONG else ""
    return f'<td><div class="said"{tab}>{said}</div></td>'


def _cell(value: object, spec: str, *, own: bool = False) -> str:
    if isinstance(value, str):
        return value.replace("|", "\\|") if own else verbatim(value)
    if value is None or (isinstance(value, (float, np.floating)) and np.isnan(value)):
        return "–"
    return format(value, spec)
