"""`make lint`: no page uses a word that docs/style.md retires, outside code and generated tables."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = re.compile(r"<!-- begin (\S+) -->.*?<!-- end \1 -->|^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def retired(style: str) -> re.Pattern[str]:
    """The code in the left column of its table of retired words, as a pattern."""
    rows = re.findall(r"^\|(.*?)\|", style.split("## Words retired")[1].split("\n## ")[0], re.MULTILINE)
    words = [word for row in rows for word in re.findall(r"`(.+?)`", row)]
    return re.compile(rf"\b(?:{'|'.join(words)})\b".replace(" ", r"\s+"), re.IGNORECASE)


def found(page: str, words: re.Pattern[str]) -> list[tuple[int, str]]:
    """The retired words of `page`, each with its line."""
    prose = SKIPPED.sub(lambda skipped: re.sub(r"[^\n]", "", skipped[0]), page)
    return [(prose.count("\n", 0, word.start()) + 1, word[0]) for word in words.finditer(prose)]


if __name__ == "__main__":
    words = retired((ROOT / "docs/style.md").read_text())
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    faults = [
        f"{page.relative_to(ROOT)}:{line}: {' '.join(word.split())}: docs/style.md has what to write in its place"
        for page in pages
        for line, word in found(page.read_text(), words)
    ]
    sys.exit("\n".join(faults) or None)
