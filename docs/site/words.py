"""`make lint`: nothing that a reader meets uses a word that docs/style.md retires.

That is pages and the paper, outside code and generated tables; notebooks, their strings too; docstrings, strings and
templates of src/repro; the values of YAML.
"""

import ast
import json
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


def strings(code: str) -> str:
    """The strings of Python code, each on the line where it begins."""
    lines = [""] * (code.count("\n") + 1)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            lines[node.lineno - 1] += " " + " ".join(node.value.split())
    return "\n".join(lines)


def cells(notebook: str) -> str:
    """Each cell of a notebook on a line: its Markdown, or the strings of its code."""
    texts = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(notebook)["cells"]]
    plain = [strings(re.sub(r"(?m)^\s*[%!].*", "", text)) if kind == "code" else text for kind, text in texts]
    return "\n".join(" ".join(text.split()) for text in plain)


def values(page: str) -> str:
    """YAML without its comments."""
    return re.sub(r"(?m)(^|\s)#.*$", "", page)


READ = {
    "*.md": str,
    "docs/*.md": str,
    "docs/paper/*.typ": str,
    "*/README.md": str,
    "notebooks/*/*.ipynb": cells,
    "src/repro/**/*.py": strings,
    "src/repro/**/*.j2": str,
    "src/repro/**/*.yaml": values,
    "configs/**/*.yaml": values,
    "params.yaml": values,
}


if __name__ == "__main__":
    words = retired((ROOT / "docs/style.md").read_text())
    faults = [
        f"{path.relative_to(ROOT)}:{line}: {' '.join(word.split())}: docs/style.md has what to write in its place"
        for pattern, read in READ.items()
        for path in sorted(ROOT.glob(pattern))
        for line, word in found(read(path.read_text()), words)
    ]
    sys.exit("\n".join(faults) or None)
