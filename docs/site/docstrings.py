"""Docstrings as they are written in this project: plain text whose aligned columns and indented lines are kept."""

import re

import griffe

COLUMNS = re.compile(r"\S {2,}\S")


class Aligned(griffe.Extension):
    """Puts paragraphs with aligned columns, and indented blocks, into code blocks; Markdown would join their lines."""

    def on_object(self, *, obj: griffe.Object, **_) -> None:
        if obj.docstring:
            obj.docstring.value = aligned(obj.docstring.value)


def aligned(text: str) -> str:
    """`text` with its tables of spaces fenced."""
    blocks = re.split(r"\n\s*\n", text)
    return "\n\n".join(_fenced(block) if _is_table(block) else block for block in blocks)


def _is_table(block: str) -> bool:
    lines = block.splitlines()
    return len(lines) > 1 and (
        sum(bool(COLUMNS.search(line)) for line in lines) > 1 or all(line.startswith("    ") for line in lines)
    )


def _fenced(block: str) -> str:
    indent = min(len(line) - len(line.lstrip()) for line in block.splitlines())
    body = "\n".join(line[indent:] for line in block.splitlines())
    return f"```text\n{body}\n```"
