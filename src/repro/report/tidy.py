"""HTML post-processing: scrolling and aligned tables, numbered figures, and a check that nothing is loaded."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bs4 import Tag

NUMBER = re.compile(r"^[\s\d.,:;%+\-−–±×/eE()\[\]]*\d[\s\d.,:;%+\-−–±×/eE()\[\]]*$|^(nan|NaN|inf|-inf|None|–|—)$")
LOADING = ("src", "srcset", "poster", "data", "background", "href", "xlink:href")
INERT = ("script", "iframe", "object", "embed", "link", "base", "style")


def tidy(text: str) -> str:
    """The page with tables in scrolling containers and numbered figures; ValueError if it loads anything."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(text, "html.parser")
    for element in soup.body.find_all(INERT):
        element.decompose()
    for number, image in enumerate(soup.find_all("img"), 1):
        image["alt"] = image.get("alt") or f"Figure {number}"
    for table in soup.find_all("table"):
        _tidy_table(table)
        table.wrap(soup.new_tag("div", attrs={"class": "table", "tabindex": "0"}))
    for element in soup.find_all(True):
        if place := _loads(element):
            raise ValueError(f"<{element.name}> loads {place[:80]!r}: a report is one file, so embed it or link to it")
    return str(soup)


def _tidy_table(table: "Tag") -> None:
    """Align numeric columns and their headers right; merge pandas' second header row (index names) into the first."""
    del table["border"]
    rows = [row.find_all(["td", "th"]) for row in table.find_all("tr")]
    if table.thead is not None and len(heads := table.thead.find_all("tr")) == 2:
        first, second = rows[0], rows[1]
        named = [c for c in second if c.get_text(strip=True)]
        fits = len(first) == len(second) and second[: len(named)] == named
        if fits and not any(c.get_text(strip=True) for c in first[: len(named)]):
            for cell, name in zip(first, named, strict=False):
                cell.string = name.get_text(strip=True)
            heads[1].decompose()
            del rows[1]
    for row in table.find_all("tr"):
        del row["style"]
    body = [row for row in rows if any(c.name == "td" for c in row)]
    heads = [row for row in rows if row not in body and not any(c.get("colspan") for c in row)]
    # Count columns from the right, where the values are: on the left, an index cell may span several rows.
    for place in range(1, min(map(len, body), default=0) + 1):
        cells = [row[-place] for row in body]
        texts = [t for c in cells if (t := c.get_text(strip=True))]
        if texts and all(c.name == "td" for c in cells) and all(map(NUMBER.match, texts)):
            for cell in (*cells, *(row[-place] for row in heads if len(row) >= place)):
                cell["class"] = "number"
                del cell["style"]


def _loads(element: "Tag") -> str | None:
    """What `element` would fetch when the page is opened; links that a reader may follow do not count."""
    for name in LOADING:
        value = str(element.get(name, "")).strip()
        if value and not (element.name == "a" or value.startswith(("data:", "#"))):
            return value
    styles = element.get("style", "") + (element.get_text() if element.name == "style" else "")
    match = re.search(r"url\((?!['\"]?(?:data:|#))[^)]*\)|@import[^;]*", styles)
    return match[0] if match else None
