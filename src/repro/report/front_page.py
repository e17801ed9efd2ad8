"""The tables in README.md and docs/: the text of the files that the pipeline and the benchmark wrote, never typed; the
picture of README's table; and its link to Colab, where `origin` is on GitHub."""

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from repro.errors import command
from repro.files import write_text
from repro.machine import git
from repro.paths import ROOT
from repro.settings import Settings, load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE = ROOT / "docs" / "images" / "front.svg"
DARK = "@media (prefers-color-scheme: dark) {svg {filter: invert(1) hue-rotate(180deg)}}"
# The last cell of a row of FILE, in a sentence or a cell of a page: <!-- FILE: ROW -->…<!-- end -->
CELL = re.compile(r"(<!-- (runs/\S+\.md): (.+?) -->).*?(<!-- end -->)")
BLOCK = re.compile(r"(<!-- begin (\S+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)
LINK = re.compile(r"(?<=\]\()(?!https?:|#)[^)]+")
COLAB = re.compile(r"(https://colab\.research\.google\.com/github/)[^)\s]*")
TOUR = "blob/main/notebooks/tutorials/tour.ipynb"


def pages(root: Path = ROOT) -> list[Path]:
    """The Markdown files that may have such tables."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def filled(page: str, folder: Path = ROOT, root: Path = ROOT) -> str:
    """`page`, a file of `folder`, with each block `<!-- begin FILE -->` … `<!-- end FILE -->` holding FILE's present
    text, its links as they are from there, and each CELL."""
    page = BLOCK.sub(lambda block: f"{block[1]}{_text(root / block[2], folder)}\n{block[3]}", page)
    return CELL.sub(lambda cell: f"{cell[1]}{last_cell(root / cell[2], cell[3])}{cell[4]}", page)


def _text(file: Path, folder: Path) -> str:
    moved = os.path.relpath(file.parent, folder)
    return LINK.sub(lambda link: os.path.normpath(f"{moved}/{link[0]}"), file.read_text().strip())


def on_colab(page: str, origin: str) -> str:
    """`page` with Colab's link to the tour in the repository at `origin`; as it is where that is not on GitHub."""
    named = re.search(r"github\.com[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?$", origin)
    return COLAB.sub(rf"\g<1>{named[1]}/{TOUR}", page) if named else page


def last_cell(file: Path, row: str) -> str:
    """Of the table in `file`, in the row whose first cell is `row` or a link with these words. KeyError without one."""
    return {re.sub(r"^\[(.*)\]\(.*\)$", r"\1", cells[0]): cells[-1] for cells in rows_of(file)}[row]


def rows_of(file: Path) -> list[list[str]]:
    """The cells of every row of the tables in `file`: of a table its head, the line below that, then the rows."""
    lines = [line.strip()[1:-1] for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in lines]


def front_picture(settings: Settings) -> "Figure":
    """How the arms of README's table end against the baseline for the same bill."""
    from repro.experiments import prices

    runs = prices.ended(prices.BILL)
    told = prices.answers(runs, settings.baseline, settings.statistics)
    titles = settings.titles_of(runs["arm"].unique())
    shown = told[(told["family"] == "Primaries") | told.index.isin(prices.FRONT)]
    figure = prices.figure(shown, titles, "accuracy", "Which methods end higher for the same bill?")
    for part in (figure, *figure.axes):
        part.patch.set_visible(False)  # a page may be dark
    return figure


@command
def main() -> None:
    """Rewrite the pages in place, and draw the picture."""
    settings = load()
    if (scale := settings.scale) != "cpu":
        raise SystemExit(f"make readme: params.yaml is at scale {scale}; the pages show cpu, so set it back first")
    origin = git(ROOT, "config", "remote.origin.url") or ""
    for path in pages():
        text = path.read_text()
        if (new := on_colab(filled(text, path.parent), origin)) != text:
            write_text(new, path)
    from repro.plots.style import to_svg

    write_text(to_svg(front_picture(settings)).replace("</style>", f"{DARK}</style>", 1), PICTURE)


if __name__ == "__main__":
    sys.exit(main())
