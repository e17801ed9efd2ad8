"""The tables in README.md and docs/: the text of the files that the pipeline and the benchmark wrote, never typed; and
the picture of README's table."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from repro.errors import command
from repro.files import read_parquet, write_text
from repro.paths import ROOT
from repro.settings import Settings, load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE = ROOT / "docs" / "images" / "front.svg"
RUNS = ROOT / "tables" / "evaluations.parquet"
BLOCK = re.compile(r"(<!-- begin (\S+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def pages(root: Path = ROOT) -> list[Path]:
    """The Markdown files that may have such tables."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def filled(page: str, root: Path = ROOT) -> str:
    """`page` with each block `<!-- begin FILE -->` … `<!-- end FILE -->` holding FILE's present text."""
    return BLOCK.sub(lambda block: f"{block[1]}{(root / block[2]).read_text().strip()}\n{block[3]}", page)


def front_picture(settings: Settings) -> "Figure":
    """How the arms of README's table end against the baseline, each significant or not among all arms of the study."""
    from repro.experiments.results.tables import front_arms
    from repro.plots.forest import difference
    from repro.stats.efficiency import summarise

    summary = summarise(read_parquet(RUNS, "git checkout it"), None, settings)
    shown = summary[summary["arm"].isin(front_arms(settings))]
    return difference(
        shown, settings, f"Which arms end higher than {settings.arm(settings.baseline).title}, which lower?"
    )


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

    write_text(to_svg(front_picture(settings)), PICTURE)


if __name__ == "__main__":
    sys.exit(main())
