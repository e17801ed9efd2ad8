"""The README's tables: taken from the files that the pipeline and the benchmark wrote, never typed."""

import re
from pathlib import Path

from repro.files import write_text
from repro.paths import ROOT
from repro.settings import load

BLOCK = re.compile(r"(<!-- begin (\S+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def filled(readme: str, root: Path = ROOT) -> str:
    """`readme` with each block `<!-- begin FILE -->` … `<!-- end FILE -->` holding FILE's present text."""
    return BLOCK.sub(lambda block: f"{block[1]}{(root / block[2]).read_text().strip()}\n{block[3]}", readme)


def main() -> None:
    """Rewrite README.md in place."""
    scale = load().scale
    if scale != "cpu":
        raise SystemExit(
            f"make readme: params.yaml is at scale {scale}; the README shows scale cpu, so set it back first"
        )
    path = ROOT / "README.md"
    write_text(filled(path.read_text()), path)


if __name__ == "__main__":
    main()
