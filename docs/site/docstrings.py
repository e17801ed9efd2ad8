"""Docstrings as they are written in this project: plain text whose aligned columns and indented lines are kept, and
examples, whose output is no Markdown."""

import re

import griffe

COLUMNS = re.compile(r"\S {2,}\S")


class Aligned(griffe.Extension):
    """Puts paragraphs with aligned columns, indented blocks and examples into code blocks; Markdown would join their
    lines, and take a list of numbers for a link."""

    def on_object(self, *, obj: griffe.Object, **_) -> None:
        if obj.docstring:
            obj.docstring.value = aligned(obj.docstring.value)


def aligned(text: str) -> str:
    """`text` with its tables of spaces and its examples fenced."""
    blocks = re.split(r"\n\s*\n", text)
    return "\n\n".join(_shown(block) for block in blocks)


def _shown(block: str) -> str:
    if block.lstrip().startswith(">>> "):
        return _fenced(block, "pycon")
    return _fenced(block, "text") if _is_table(block) else block


def _is_table(block: str) -> bool:
    lines = block.splitlines()
    return len(lines) > 1 and (
        sum(bool(COLUMNS.search(line)) for line in lines) > 1 or all(line.startswith("    ") for line in lines)
    )


def _fenced(block: str, language: str) -> str:
    indent = min(len(line) - len(line.lstrip()) for line in block.splitlines())
    body = "\n".join(line[indent:] for line in block.splitlines())
    return f"```{language}\n{body}\n```"
