"""The tables in README.md and docs/: the text of the files that the pipeline and the benchmark wrote, never typed; and
the picture of README's table."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from repro.errors import command
from repro.files import write_text
from repro.paths import ROOT
from repro.settings import Settings, load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE = ROOT / "docs" / "images" / "front.svg"
DARK = "@media (prefers-color-scheme: dark) {svg {filter: invert(1) hue-rotate(180deg)}}"
# The last cell of a row of FILE, in a sentence or a cell of a page: <!-- FILE: ROW -->…<!-- end -->
CELL = re.compile(r"(<!-- (runs/\S+\.md): (.+?) -->).*?(<!-- end -->)")
BLOCK = re.compile(r"(<!-- begin (\S+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def pages(root: Path = ROOT) -> list[Path]:
    """The Markdown files that may have such tables."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def filled(page: str, root: Path = ROOT) -> str:
    """`page` with each block `<!-- begin FILE -->` … `<!-- end FILE -->` holding FILE's present text, and each CELL."""
    page = BLOCK.sub(lambda block: f"{block[1]}{(root / block[2]).read_text().strip()}\n{block[3]}", page)
    return CELL.sub(lambda cell: f"{cell[1]}{last_cell(root / cell[2], cell[3])}{cell[4]}", page)


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
    scale = settings.scale
    if scale != "cpu":
        raise SystemExit(
            f"make readme: params.yaml is at scale {scale}; the pages show scale cpu, so set it back first"
        )
    for path in pages():
        text = path.read_text()
        if (new := filled(text)) != text:
            write_text(new, path)
    from repro.plots.style import to_svg

    write_text(to_svg(front_picture(settings)).replace("</style>", f"{DARK}</style>", 1), PICTURE)


if __name__ == "__main__":
    sys.exit(main())
