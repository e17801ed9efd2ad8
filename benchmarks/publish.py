"""What a benchmark measured: beside its script as data and as a table, and on the screen."""

from pathlib import Path
from typing import Any

from repro.files import write_json, write_text


def publish(result: Any, table: str, script: Path) -> None:
    """Write `result` to the script's name with .json, its `table` in Markdown to that with .md, and print the table."""
    write_json(result, script.with_suffix(".json"))
    write_text(table, script.with_suffix(".md"))
    print(table, end="")
