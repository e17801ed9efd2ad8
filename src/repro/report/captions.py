"""What a table is called: what its own caption says, or the sentence that announces it, or the heading above it."""

from typing import TYPE_CHECKING

from repro.report.markdown import sentences

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

HEADINGS = ("h1", "h2", "h3", "h4")
OWN = ["table", "figure", "ul", "ol", "pre"]  # what stands above these is about them
COLUMNS = 4  # that tell apart tables of one name


def add_captions(soup: "BeautifulSoup") -> None:
    """Number the tables and name each; a name that an earlier table has is followed by the heads of its columns."""
    taken: set[str] = set()
    for number, table in enumerate(soup.find_all("table"), 1):
        words = words_of(table.caption) if table.caption else name_of(table)
        if words in taken:
            words += f"{'' if words.endswith('?') else ':'} {', '.join(_heads(table))}"
        taken.add(words)
        caption = table.caption or soup.new_tag("caption")
        caption.string = f"Table {number}" + (f": {words}" if words else "")
        table.insert(0, caption)


def name_of(table: "Tag") -> str:
    """The sentence directly above the table, if a colon at its end announces it, else the words of the heading."""
    near = True
    for above in table.find_all_previous(True):
        if above.find_parent(["nav", "details"]):
            continue
        if above.name in HEADINGS:
            return words_of(above)
        near &= above.name not in OWN and not above.find_parent(OWN)
        if near and above.name == "p":
            near = False
            if (said := sentences(words_of(above))[-1]).endswith(":"):
                return said.removesuffix(":")
    return ""


def words_of(element: "Tag") -> str:
    """An element's text, without a heading's link to itself and with formulas as their TeX."""
    parts = []
    for node in element.children:
        if getattr(node, "name", None) == "math":
            parts.append(node.get("alttext", ""))
        elif "anchor-link" not in (getattr(node, "attrs", None) or {}).get("class", []):
            parts.append(node.get_text())
    return " ".join("".join(parts).split())


def _heads(table: "Tag") -> list[str]:
    heads = [text for head in table.select("thead th") if (text := head.get_text(strip=True))]
    return list(dict.fromkeys(heads))[:COLUMNS]
