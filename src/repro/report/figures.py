"""Figures of an executed notebook that come with more than a picture: one for phones, and rows that a script draws.

`repro.plots` puts both beside the picture, under a kind of output of its own.
"""

import json
from typing import TYPE_CHECKING, Any

from repro.plots.style import FIGURE
from repro.report.library import library_name

if TYPE_CHECKING:
    from nbformat import NotebookNode


def take_figures(cells: "list[NotebookNode]") -> dict[str, Any]:
    """{id: drawing} of the figures that answer, whose outputs then hold their `id`, and that of a `narrow` picture."""
    drawings: dict[str, Any] = {}
    outputs = (output for cell in cells for output in cell.get("outputs", []) if FIGURE in output.get("data", {}))
    for number, output in enumerate(outputs, 1):
        more = output.data.pop(FIGURE)
        kept = {"narrow": more["narrow"]} if more.get("narrow") else {}
        if drawing := more.get("interactive"):
            kept["id"] = f"figure-{number}"
            drawings[kept["id"]] = drawing
        output.metadata["repro"] = kept
    return drawings


def as_data(drawings: dict[str, Any]) -> str:
    """The drawings and the library's file as JSON for a page's head, in which no text can end the element."""
    text = json.dumps({"script": library_name(), "figures": drawings}, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")
