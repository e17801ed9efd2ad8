"""HTML post-processing: tables that scroll, align and have captions, without what is constant; numbered figures."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from repro.report.layout import answer_first, drop_emptied, fold

if TYPE_CHECKING:
    from bs4 import Tag

SIGNS = r"[\s\d.,:;%+\-−–±×≥≤<>/eE()\[\]]*"
NUMBER = re.compile(rf"^(?=\D*\d){SIGNS}$|^-?inf$")  # no part may match in two ways: a cell may be of any length
IN_PRINT = {"nan": "–", "NaN": "–", "NaT": "–", "<NA>": "–", "None": "–", "True": "yes", "False": "no"}
IN_CODE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")  # a column's name, which a reader takes as words
INTERVAL = re.compile(r"\[\S{1,40}, \S{1,40}\]")
NUMERIC = 0.75  # of a column's cells are numbers: the others are words in place of one, as the baseline's
LONG = 32  # characters of a row's head that is broken into lines
INERT = ("script", "iframe", "object", "embed", "link", "base", "style")
ARMS = ("arm", "against", "other", "")  # heads of columns whose cells may name arms; rows' heads may have none
CONSTANT = 4  # rows from which on a column that says the same in each is said once
COLUMNS, ROWS = 5, 12  # of a table in the answer that are shown at first


def tidy(text: str, links: Mapping[str, str] | None = None, root: str = "..") -> str:
    """The page with the answer first and the rest folded, tables in scrolling boxes, and tables and figures numbered
    under the words of their heading; a cell that reads as one of `links` leads to it. `root`: the page's way to the
    repository."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(text, "html.parser")
    for element in soup.body.find_all(INERT):
        element.decompose()
    for link in soup.main.select('a[href^="../../"]'):
        link["href"] = f"{root}/{link['href'].removeprefix('../../')}"
    drop_emptied(soup)
    answer_first(soup)
    for number, image in enumerate(soup.find_all("img"), 1):
        image["alt"] = image.get("alt") or _numbered("Figure", number, image, "h1", "h2", "h3")
    for number, table in enumerate(soup.find_all("table"), 1):
        constant = _drop_constant(table)
        _tidy_table(table)
        _scope(table)
        _link(table, links or {})
        _caption(table, number, constant)
        box = {"class": "table", "tabindex": "0", "role": "region", "aria-label": table.caption.get_text()}
        box = table.wrap(soup.new_tag("div", attrs=box))
        if box.find_parent(class_="answer"):
            _shorten(box)
    fold(soup)
    return str(soup)


def _drop_constant(table: "Tag") -> str:
    """Take out the columns of values that are empty, or say the same in every row; the latter in words, for the
    caption. Tables with heads over several columns stay as they are."""
    rows = [row.find_all(["td", "th"], recursive=False) for row in table.select("tbody tr")]
    heads = [row.find_all(["td", "th"]) for row in table.select("thead tr")]
    if len(rows) < CONSTANT or not heads or table.find(colspan=True):
        return ""
    said = []
    for place in range(min(map(len, rows)), 0, -1):
        cells = [row[-place] for row in rows]
        values = {cell.get_text(strip=True) for cell in cells}
        if len(values) > 1 or any(cell.name == "th" or cell.find(True) for cell in cells):
            continue
        names = [head[-place] for head in heads if len(head) >= place]
        if (value := IN_PRINT.get(value := values.pop(), value)) not in ("", "–"):
            said.append(f"{' '.join(filter(None, (n.get_text(strip=True) for n in names)))} {value}")
        for cell in (*cells, *names):
            cell.decompose()
        rows = [[cell for cell in row if not cell.decomposed] for row in rows]
        heads = [[cell for cell in head if not cell.decomposed] for head in heads]
    return f" (in every row: {', '.join(said)})" if said else ""


def _shorten(box: "Tag") -> None:
    """Of a table in the answer the first columns and rows, with a switch for all of it."""
    from bs4 import BeautifulSoup

    rows = [row.find_all(["td", "th"], recursive=False) for row in box.find_all("tr")]
    columns, many = max(map(len, rows)), len(box.select("tbody tr"))
    plain = not box.find(colspan=True)
    for row in rows if plain else []:
        for cell in row[max(0, len(row) - max(0, columns - COLUMNS)) :]:  # from the right: a cell may span rows
            cell["class"] = [*cell.get_attribute_list("class"), "more"] if cell.get("class") else ["more"]
    wide = f"{columns} columns" if plain and columns > COLUMNS else ""
    if not (parts := [*filter(None, (f"{many} rows" if many > ROWS else "", wide))]):
        return
    part = box.wrap(BeautifulSoup("", "html.parser").new_tag("div", attrs={"class": "part-of-table"}))
    switch = f'<label class="switch"><input type="checkbox"> all {" and ".join(parts)}</label>'
    part.insert(0, BeautifulSoup(switch, "html.parser"))


def _tidy_table(table: "Tag") -> None:
    """Align numeric columns and their headers right; merge pandas' last header row (index names) into the one above;
    write Python's words for a missing value, true and false as in print."""
    del table["border"]
    rows = [row.find_all(["td", "th"]) for row in table.find_all("tr")]
    if table.thead is not None and (count := len(heads := table.thead.find_all("tr"))) >= 2:
        above, last = rows[count - 2 : count]
        named = [c for c in last if c.get_text(strip=True)]
        if named and len(above) == len(last) and last[: len(named)] == named:  # the columns' own name gives way
            for cell, name in zip(above, named, strict=False):
                cell.string = name.get_text(strip=True)
            heads[-1].decompose()
            del rows[count - 1]
    for cell in table.find_all("td"):
        if not cell.find(True) and (word := IN_PRINT.get(cell.get_text(strip=True))):  # what a model said has a tag
            cell.string = word
    for row in table.find_all("tr"):
        del row["style"]
    _drop_row_numbers(rows)
    for head in table.find_all("th"):
        if head.string and IN_CODE.fullmatch(name := head.string.strip()):
            head.string = name.replace("_", " ")
    body = [row for row in rows if any(c.name == "td" for c in row)]
    heads = [row for row in rows if row not in body and not any(c.get("colspan") for c in row)]
    # Count columns from the right, where the values are: on the left, an index cell may span several rows.
    for place in range(1, min(map(len, body), default=0) + 1):
        cells = [row[-place] for row in body]
        texts = [t for c in cells if (t := c.get_text(strip=True)) not in ("", "–", "—")]
        plain = all(c.name == "td" and not c.find(class_="said") for c in cells)
        if texts and plain and sum(map(bool, map(NUMBER.match, texts))) >= NUMERIC * len(texts):
            for cell in (*cells, *(row[-place] for row in heads if len(row) >= place)):
                cell["class"] = "number"
                del cell["style"]
        elif texts and plain and sum(map(bool, map(INTERVAL.search, texts))) >= NUMERIC * len(texts):
            for cell in cells:
                cell["class"] = "whole"  # a number, its interval and a word stand in one line
    for place in range(1, max(map(len, body), default=0) + 1):
        names = [row[-place] for row in body if len(row) >= place and row[-place].name == "th"]
        for name in names if any(len(name.get_text()) > LONG for name in names) else []:
            name["class"] = "long"


def _drop_row_numbers(rows: "list[list[Tag]]") -> None:
    """Take an index without a name whose entries are numbers out of a DataFrame's table: it counts rows."""
    head, *body = rows
    firsts = [row[0] for row in body if row and row[0].name == "th" and row[0].get_text(strip=True).isdigit()]
    plain = body and len(firsts) == len(body) and {len(row) for row in body} == {len(head)}
    if plain and len(head) > 1 and not head[0].get_text(strip=True) and body[0][1].name == "td":
        for row in rows:
            row.pop(0).decompose()


def _link(table: "Tag", links: Mapping[str, str]) -> None:
    """Cells of the body that are a page's name become links to it, in the columns of `ARMS`: a paper, a group of arms
    or a mix may be called as an arm is."""
    from bs4 import BeautifulSoup

    heads = _heads(table)
    for row in table.select("tbody tr"):
        for place, cell in enumerate(reversed(row.find_all(["th", "td"]))):
            name = cell.get_text(strip=True)
            if name in links and heads.get(place, "") in ARMS and not cell.find(True):
                cell.string.wrap(BeautifulSoup("", "html.parser").new_tag("a", href=links[name]))


def _heads(table: "Tag") -> dict[int, str]:
    """Of each column, counted from the right, the lowest head with words: on the left a cell may span several rows."""
    heads: dict[int, str] = {}
    for row in table.select("thead tr"):
        place = 0
        for cell in reversed(row.find_all(["th", "td"])):
            span = int(cell.get("colspan", 1))
            if words := cell.get_text(strip=True):
                heads |= dict.fromkeys(range(place, place + span), words)
            place += span
    return heads


def _scope(table: "Tag") -> None:
    """Say of each head which cells it is the head of."""
    for head in table.find_all("th"):
        many = int(head.get("rowspan", 1)) > 1 if head.find_parent("tbody") else int(head.get("colspan", 1)) > 1
        head["scope"] = ("row" if head.find_parent("tbody") else "col") + "group" * many


def _caption(table: "Tag", number: int, constant: str = "") -> None:
    """`Table 3: …`, by the table's own caption, else by the section's heading, and what every row says."""
    from bs4 import BeautifulSoup

    own = table.caption or BeautifulSoup("", "html.parser").new_tag("caption")
    words = words_of(own)
    own.string = (f"Table {number}: {words}" if words else _numbered("Table", number, table, "h2", "h3")) + constant
    table.insert(0, own)


def _numbered(what: str, number: int, element: "Tag", *headings: str) -> str:
    """`Table 3: How it ends`, by the last of `headings` above `element`; those of lists of links do not count."""
    heading = element.find_previous(lambda tag: tag.name in headings and not tag.find_parent("nav"))
    return f"{what} {number}" + (f": {words_of(heading)}" if heading else "")


def words_of(element: "Tag") -> str:
    """An element's text, without a heading's link to itself and with formulas as their TeX."""
    parts = []
    for node in element.children:
        if getattr(node, "name", None) == "math":
            parts.append(node.get("alttext", ""))
        elif "anchor-link" not in (getattr(node, "attrs", None) or {}).get("class", []):
            parts.append(node.get_text())
    return " ".join("".join(parts).split())
