"""Figures of an executed notebook that come with more than a picture: one for phones, and rows that a script draws.

`repro.plots` puts both next to the picture, under a kind of output of its own. The drawing library is Vega, one file
next to the reports, out of the package vl-convert; a page's script asks for it when its reader scrolls to such a figure
(template/figures.js).
"""

import json
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.files import write_text
from repro.paths import BUILD
from repro.plots.style import FIGURE

if TYPE_CHECKING:
    from nbformat import NotebookNode

LICENSE = Path(__file__).with_name("template") / "vega.LICENSE"


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


def library_name() -> str:
    """The file's name, which says its version: pages that were made with another one keep theirs."""
    return f"vega-{version('vl-convert-python').split('.post')[0]}.js"


def ensure_library(folder: Path) -> Path:
    """The library in `folder`, written if it is not there. Putting it together takes seconds, so a copy is kept."""
    path, kept = folder / library_name(), BUILD / library_name()
    if not path.exists():
        if not kept.exists():
            write_text(_bundle(), kept)
        write_text(kept.read_text(encoding="utf-8"), path)
    return path


def _bundle() -> str:
    """Vega, Vega-Lite and vega-embed as one script. In a function, since their names would otherwise be the page's."""
    import vl_convert

    names = f"Vega {vl_convert.get_vega_version()}, Vega-Lite, vega-embed {vl_convert.get_vega_embed_version()}"
    head = f"/*\n{names}, from vl-convert-python {vl_convert.__version__}.\n\n{LICENSE.read_text(encoding='utf-8')}*/\n"
    return f"{head}(() => {{{vl_convert.javascript_bundle()}\n}})();\n"
