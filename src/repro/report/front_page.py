"""The tables in README.md and docs/: the text of the files that the pipeline and the benchmark wrote, never typed."""

import re
import sys
from pathlib import Path

from repro.errors import command
from repro.files import write_text
from repro.paths import ROOT
from repro.settings import load

BLOCK = re.compile(r"(<!-- begin (\S+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def pages(root: Path = ROOT) -> list[Path]:
    """The Markdown files that may have such tables."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def filled(page: str, root: Path = ROOT) -> str:
    """`page` with each block `<!-- begin FILE -->` … `<!-- end FILE -->` holding FILE's present text."""
    return BLOCK.sub(lambda block: f"{block[1]}{(root / block[2]).read_text().strip()}\n{block[3]}", page)


@command
def main() -> None:
    """Rewrite the pages in place."""
    scale = load().scale
    if scale != "cpu":
        raise SystemExit(
            f"make readme: params.yaml is at scale {scale}; the pages show scale cpu, so set it back first"
        )
    for path in pages():
        text = path.read_text()
        if (new := filled(text)) != text:
            write_text(new, path)


if __name__ == "__main__":
    sys.exit(main())
