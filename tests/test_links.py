"""Every relative link of every Markdown file and notebook leads to a file, and to a heading where it names one."""

import json
import os
import re
from functools import cache
from pathlib import Path

import pytest
from conftest import ROOT

from repro import settings
from repro.pipeline.stage import all_stages

MADE_A_PAGE = re.compile(r"/notebooks/(studies|theory)/|/(tour|your_rollouts)\.ipynb$")
NOT_OURS = {"build", "results", "timings", "reports", "data"}  # what .gitignore names, and hidden folders
LINK = re.compile(
    r"\]\((?!https?:|mailto:)<?([^)#\s>]*)(?:#([^)\s>]+))?>?\)|(?:src|href)=\"(?!https?:|data:)([^\"#]*)(?:#([^\"]+))?\""
)
REFERENCE = re.compile(r"^\[[^\]]+\]: +(?!https?:)([^#\s]+)(?:#(\S+))?()()$", re.MULTILINE)


def sources() -> list[Path]:
    """Markdown files and notebooks, wherever they are."""
    found = []
    for folder, inner, names in os.walk(ROOT):
        top = Path(folder) == ROOT
        inner[:] = sorted(name for name in inner if name[0] != "." and not (top and name in NOT_OURS))
        found += [Path(folder, name) for name in sorted(names) if name.endswith((".md", ".ipynb"))]
    return found


@cache
def prose(path: Path) -> str:
    """The text of a page without its code; of a notebook, its Markdown cells."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return re.sub(r"^(```|~~~).*?^\1|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)


@cache
def anchors(path: Path) -> set[str]:
    """The ids of a page: GitHub's, of its headings, and its own. Code in a heading counts, so this reads all of it."""
    text = re.sub(r"^(```|~~~).*?^\1", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text if path.suffix == ".md" else prose(path), re.MULTILINE)
    ids = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return ids | set(re.findall(r'<a id="([^"]+)">', text))


@cache
def reports() -> set[str]:
    pages = set(re.findall(r"reports/([\w-]+\.html)", (ROOT / "dvc.yaml").read_text()))  # a report may have several
    return pages | {stage.report.name for stage in all_stages(settings.load(scale="smoke")) if stage.report}


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path):
    for match in [*LINK.finditer(prose(path)), *REFERENCE.finditer(prose(path))]:
        name, anchor = match[1] or match[3], match[2] or match[4]
        if path.suffix == ".ipynb" and name and name.endswith(".html"):
            assert name in reports(), f"{name}: no stage makes this report"
            continue
        if path.suffix == ".ipynb" and name and MADE_A_PAGE.search(path.as_posix()):
            assert name.startswith("../../"), f"{name}: its page is elsewhere (repro.report.html)"
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{name} is not there"
        assert not anchor or anchor in anchors(target), f"{name}#{anchor}: no such heading"


def test_the_search_for_pages_finds_them():
    names = {path.relative_to(ROOT).as_posix() for path in sources()}
    assert {"README.md", "docs/methods.md", "runs/README.md", "notebooks/tutorials/one_step.ipynb"} <= names
    assert not any(name.startswith(("build/", ".venv/")) for name in names)
