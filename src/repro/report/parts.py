"""Sections of a notebook that become pages of their own.

A Markdown cell that opens a section (`## …`) and is tagged `page:NAME` goes to the page REPORT-NAME.html, with all that
follows up to the next `##`; sections with the same NAME share a page. The rest is the report's first page.
"""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbformat import NotebookNode

TAG = re.compile(r"page:([a-z0-9]+(?:-[a-z0-9]+)*)")
OPENS = re.compile(r"\A\s*##[ \t]+(.+)")


@dataclass
class Part:
    """One page's cells. `name`: "" for the first. `title`: the heading of the part's first section."""

    name: str
    title: str = ""
    cells: "list[NotebookNode]" = field(default_factory=list)


def split(cells: "list[NotebookNode]") -> list[Part]:
    """The parts in their order, the first page in front; ValueError for a tag on a cell that opens no section."""
    parts = {"": Part("")}
    name = ""
    for cell in cells:
        opened = OPENS.match(cell.source) if cell.cell_type == "markdown" else None
        wanted = next(filter(None, map(TAG.fullmatch, cell.metadata.get("tags", []))), None)
        if wanted and not opened:
            raise ValueError(f"a cell is tagged {wanted[0]!r} but opens no section: begin it with `## ` and a heading")
        if opened:
            name = wanted[1] if wanted else ""
        part = parts.setdefault(name, Part(name, opened[1].strip() if opened else ""))
        if name and not part.cells:  # its heading is the page's title
            cell = cell.copy()
            cell["source"] = OPENS.sub("", cell.source, count=1).strip("\n")
        if cell.source.strip():
            part.cells.append(cell)
    return list(parts.values())
