"""An executed notebook as one self-contained HTML file: no network, no other files, nothing that a cell could run.

nbconvert renders the notebook with the template in `template/`; formulas become MathML. What cells printed may quote a
model, a data set or params.yaml: it is cleaned, piece by piece and at the end as a whole (`repro.report.safe`). A
report that would load something from elsewhere, or exceeds the size limit, is rejected.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from repro.files import write_whole
from repro.report.markdown import first_sentence, markdown_to_html
from repro.report.mathml import add_font
from repro.report.safe import clean, with_policy
from repro.report.tidy import refuse_loading, tidy

if TYPE_CHECKING:
    from nbformat import NotebookNode

TEMPLATE = Path(__file__).with_name("template")
LIMIT = 1_000_000  # bytes of one report
DROPPED_TAG = "hide"
WIDGET = "application/vnd.jupyter.widget-view+json"
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
    group: str = "results",
    summary: str = "",
    neighbours: Mapping[str, tuple[str, str]] | None = None,
) -> None:
    """Write the executed notebook atomically as the report `html`.

    `title` replaces the notebook's first heading. `provenance`: the result of `provenance.collect`, shown as the
    footer. `group`: where the index lists it. `summary`: its line in the index; by default the first sentence of the
    notebook's text, or of the output of a cell tagged `summary`. `neighbours`: file and title of the `previous` and the
    `next` report, to link to. Cells tagged `hide` are left out; error outputs are
    shown. ValueError with the place and the remedy if the report would load something from elsewhere, contains a
    formula that cannot be rendered or is over `LIMIT` bytes.
    """
    import nbformat

    executed_notebook, html = Path(executed_notebook), Path(html)
    notebook = nbformat.read(executed_notebook, as_version=4)
    _drop_first_heading(notebook)
    _drop_widgets(notebook)
    notebook.cells = [c for c in notebook.cells if c.source.strip() and DROPPED_TAG not in c.metadata.get("tags", [])]
    page = {
        "title": title,
        "description": summary or _first_sentence(notebook),
        "group": group,
        "provenance": provenance,
        "neighbours": neighbours or {},
    }
    try:
        text = _export(notebook, page, executed_notebook.parent)
    except ValueError as error:
        raise ValueError(f"{executed_notebook.name}: {error}") from error
    if (size := len(text.encode())) > LIMIT:
        raise ValueError(
            f"{executed_notebook.name}: the report would be {size / 1e6:.2f} MB, over the limit of {LIMIT / 1e6:g} MB; "
            f"the biggest output is {_biggest(notebook)}: show less of it, or draw it with rasterized=True"
        )
    write_whole(html, lambda partial: partial.write_text(text, encoding="utf-8"))


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


def _drop_widgets(notebook: "NotebookNode") -> None:
    """Drop widgets without a static form; a text form does not count, it only shows the initial state."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if WIDGET not in o.get("data", {}) or set(o.data) & set(SHOWN[:-1])]


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
            return _cleaned(SHOUTING.sub('<span class="notice">', html))

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
            "as_yaml": lambda x: yaml.safe_dump(json.loads(json.dumps(x, default=str)), sort_keys=False).strip(),
            "printed_html": _cleaned,
            "printed_markdown": lambda source: _cleaned(markdown_to_html(source, authored=False)),
        },
    )
    text, _ = exporter.from_notebook_node(notebook, resources={"page": page})
    return finish(tidy(text))


def finish(page: str) -> str:
    """A page's last step: its body cleaned once more, then the font and the policy in its head."""
    head, opening, rest = page.partition("<body>")
    body, closing, end = rest.rpartition("</body>")
    return with_policy(add_font(f"{head}{opening}\n{clean(body).strip()}\n{closing}{end}"))


def _cleaned(html: str) -> str:
    """A piece of the page, inert; ValueError if it would load something, which is a mistake to be told of."""
    from bs4 import BeautifulSoup

    refuse_loading(BeautifulSoup(html, "html.parser"))
    return clean(html)


def _biggest(notebook: "NotebookNode") -> str:
    """A description of the largest output, by the format shown."""
    best = (0, "no output of a cell")
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data") or {output.output_type: output.get("text") or output.get("traceback") or ""}
            kind = next((k for k in SHOWN if k in data), next(iter(data), "nothing"))
            first_line = cell.source.strip().splitlines()[0][:60]
            size = len("".join(data.get(kind, "")))
            best = max(best, (size, f"the {kind} of {size / 1e6:.2f} MB from the cell that begins {first_line!r}"))
    return best[1]
