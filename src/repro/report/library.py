"""The drawing library of figures that answer: Vega, one file beside the reports, out of the package vl-convert.

A page's script asks for it when its reader scrolls to such a figure (template/figures.js).
"""

from importlib.metadata import version
from pathlib import Path

from repro.files import write_text
from repro.paths import BUILD

LICENSE = Path(__file__).with_name("template") / "vega.LICENSE"


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
