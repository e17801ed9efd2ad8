"""An executed notebook as self-contained HTML: no network, nothing that a cell could run.

One file, or one for each part that the notebook sets apart (`repro.report.parts`); figures that answer need the drawing
library, which is a file next to them.

nbconvert renders the notebook with the template in `template/`; formulas become MathML. What cells printed may quote a
model, a data set or params.yaml: it is cleaned, piece by piece and at the end as a whole (`repro.report.safe`). A
report that exceeds the size limit is rejected.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from repro.files import write_whole
from repro.paths import ROOT
from repro.report.figures import as_data, ensure_library, take_figures
from repro.report.markdown import first_sentence, lead_and_rest, markdown_to_html
from repro.report.mathml import add_font
from repro.report.parts import Part, split
from repro.report.safe import DATA, clean, with_policy
from repro.report.tidy import tidy

if TYPE_CHECKING:
    from nbformat import NotebookNode

TEMPLATE = Path(__file__).with_name("template")
LIMIT = 1_000_000  # bytes of one page
LABEL = 60  # characters of a folded cell's last line
DROPPED_TAG = "hide"
SHOUTING = re.compile(r'<span style="color:red;[^"]*">')  # papermill's notice above a notebook that failed
# An output is shown in the first of these formats that it has. Widgets and scripts are not among them.
SHOWN = (
    "text/html",
    "text/markdown",
    "image/svg+xml",
    "image/png",
    "image/jpeg",
    "text/latex",
    "text/plain",
)


def render(
    executed_notebook: Path,
    html: Path,
    title: str,
    provenance: dict,
    *,
    group: str = "",
    neighbours: Mapping[str, tuple[str, str]] | None = None,
    links: Mapping[str, str] | None = None,
    where: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write the executed notebook as the report `html`, with a page next to it for each part that it sets apart; return
    the pages' paths. Each is written whole or not at all, none if one cannot be made.

    `title` replaces the notebook's first heading. `provenance`: the result of `provenance.collect`, shown as the
    footer. `group`: where the index lists it; "" for a page that stands alone, without a link to an index. Its line
    there is the first sentence of the notebook's text, or of the output of a cell tagged `summary`. `neighbours`: file
    and title of the `previous` and the `next` report, to link to. `links`: {words: file}, to which a cell of a table
    with just these words leads. A link of the notebook to `../../FILE`, its way to a file of the repository, becomes
    the page's way. `where`: {"bed": …, "measure": …, "price": …}, a line below the title. The answer comes
    first: the outputs of cells tagged `summary` and `answer`; other sections are folded below it. Cells tagged
    `hide` are left out; error outputs are shown. ValueError with the place and the remedy if the report contains
    a formula that cannot be rendered or has a page over `LIMIT` bytes.
    """
    import nbformat

    executed_notebook, html = Path(executed_notebook), Path(html)
    notebook = nbformat.read(executed_notebook, as_version=4)
    _drop_first_heading(notebook)
    cells = [c for c in notebook.cells if c.source.strip() and DROPPED_TAG not in c.metadata.get("tags", [])]
    texts: dict[Path, str] = {}
    try:
        parts = split(cells)
        files = {part.name: (_file(html, part).name, part.title or title) for part in parts}
        for part in parts:
            notebook.cells = part.cells
            page = {
                "title": part.title or title,
                "description": _first_sentence(notebook),
                "group": group,
                "provenance": provenance,
                "where": where or {},
                "neighbours": neighbours or {},
                "root": os.path.relpath(ROOT, html.resolve().parent),
                "links": {words: file for words, file in (links or {}).items() if file != html.name},
                "of": files[""] if part.name else None,
                "parts": [file for name, file in files.items() if name and not part.name],
                "others": [file for name, file in files.items() if name != part.name and part.name],
            }
            texts[_file(html, part)] = text = _export(notebook, page, executed_notebook.parent)
            if (size := len(text.encode())) > LIMIT:
                raise ValueError(
                    f"the page {_file(html, part).name} would be {size / 1e6:.2f} MB, over the limit of "
                    f"{LIMIT / 1e6:g} MB: show less in it, draw with rasterized=True, or set a section apart with the "
                    "tag `page:NAME`"
                )
    except ValueError as error:
        raise ValueError(f"{executed_notebook.name}: {error}") from error
    for path, text in texts.items():
        write_whole(path, lambda partial, text=text: partial.write_text(text, encoding="utf-8"))
        if DATA in text:
            ensure_library(path.parent)
    return list(texts)


def _file(html: Path, part: Part) -> Path:
    return html.with_name(f"{html.stem}-{part.name}.html") if part.name else html


def _first_sentence(notebook: "NotebookNode") -> str:
    """Of the Markdown that describes the report: the cell tagged `summary`, else the first Markdown cell with text."""
    for cell in notebook.cells:
        if "summary" in cell.metadata.get("tags", []):
            if cell.cell_type == "markdown":
                return first_sentence(cell.source)
            for output in cell.outputs:
                data = output.get("data", {})
                if text := data.get("text/markdown") or output.get("text") or data.get("text/plain"):
                    return first_sentence(text, authored=False)
    sentences = (first_sentence(cell.source) for cell in notebook.cells if cell.cell_type == "markdown")
    return next(filter(None, sentences), "")


def _drop_first_heading(notebook: "NotebookNode") -> None:
    for cell in notebook.cells:  # not always the first cell: papermill adds a notice on top of a failed notebook
        if cell.cell_type == "markdown":
            cell.source, removed = re.subn(r"\A\s*#[ \t]+[^\n]*\n*", "", cell.source)
            if removed:
                return


def _export(notebook: "NotebookNode", page: dict, folder: Path) -> str:
    """The notebook rendered with the template, post-processed and checked."""
    import yaml
    from jinja2 import pass_context
    from nbconvert import HTMLExporter
    from traitlets.config import Config

    class Exporter(HTMLExporter):
        @pass_context
        def markdown2html(self, context, source):
            html = markdown_to_html(source, context.get("cell", {}).get("attachments"), folder)
            return clean(SHOUTING.sub('<span class="notice">', html))

    exporter = Exporter(
        template_name=TEMPLATE.name,
        template_file="report.html.j2",
        extra_template_basedirs=[str(TEMPLATE.parent)],
        config=Config(
            {
                "NbConvertBase": {"display_data_priority": list(SHOWN)},
                "CoalesceStreamsPreprocessor": {"enabled": True},  # progress bars: final state only
            }
        ),
        filters={
            "as_yaml": lambda x: yaml.safe_dump(
                json.loads(json.dumps(x, default=str)), sort_keys=False, allow_unicode=True
            ).strip(),
            "printed_html": clean,
            "last_line": _last_line,
            "lead_and_rest": lead_and_rest,
            "printed_markdown": lambda source: clean(markdown_to_html(source, authored=False)),
        },
    )
    drawings = take_figures(notebook.cells)
    page = {**page, "drawings": as_data(drawings) if drawings else ""}
    text, _ = exporter.from_notebook_node(notebook, resources={"page": page})
    return finish(tidy(text, page["links"], page["root"]))


def finish(page: str) -> str:
    """A page's last step: its body cleaned once more, then the font and the policy in its head."""
    head, opening, rest = page.partition("<body>")
    body, closing, end = rest.rpartition("</body>")
    return with_policy(add_font(f"{head}{opening}\n{clean(body).strip()}\n{closing}{end}"))


def _last_line(source: str) -> str:
    """What a folded cell is known by: the line that made its output, or what it can be told by."""
    lines = [line for line in source.strip().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    whole = [line for line in lines if not line[0].isspace() and line.strip() not in (")", "]", "}")]
    line = (whole or lines or [""])[-1].strip()
    line += {"(": "…)", "[": "…]", "{": "…}"}.get(line[-1:], "")  # a call over several lines
    return line if len(line) <= LABEL else line[: LABEL - 1] + "…"
