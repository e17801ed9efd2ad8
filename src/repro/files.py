"""Atomic writes, and reads with a helpful error when a file is missing or broken."""

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from repro.errors import Refused


class Unreadable(Refused, ValueError):
    """One sentence: which file cannot be read, and what makes it anew."""


class NotThere(Refused, FileNotFoundError):
    """One sentence: which file is missing, and what makes it."""


def write_whole(path: Path, write: Callable[[Path], Any]) -> Path:
    """Let `write` write a temporary file next to `path`, then rename it: readers never see a partial file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        os.replace(partial, path)
    except OSError as error:
        unnamed = error.filename is None or Path(error.filename) == partial  # as after a failed write
        if unnamed and error.errno is not None:
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):  # of a disk that has become read-only
            partial.unlink(missing_ok=True)
    return path


def write_parquet(frame: pd.DataFrame, path: Path) -> Path:
    """A table without its index; equal tables give equal bytes under the pinned pyarrow."""
    return write_whole(path, lambda partial: frame.to_parquet(partial, index=False))


def write_json(content: Any, path: Path) -> Path:
    """Indented JSON with a final newline; ValueError on NaN, which is not valid JSON."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return write_text(text, path)


def write_text(text: str, path: Path) -> Path:
    """Text, unchanged."""
    return write_whole(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def read_parquet(path: Path, made_by: str, columns: Sequence[str] = ()) -> pd.DataFrame:
    """The table at `path`; `made_by` is the command that makes it, named in the error if it is missing or broken, or
    lacks one of `columns`: another table under that name."""
    from pyarrow import ArrowException

    path = Path(path)
    if not path.exists():
        raise NotThere(f"{path} is not there yet: run `{made_by}` first")
    try:
        if not path.is_file():
            raise ValueError("it is a folder")
        table = pd.read_parquet(path)
        if lacking := [name for name in columns if name not in table]:
            raise ValueError(f"it has no column {lacking[0]}")
        return table
    except (OSError, ValueError, ArrowException) as error:
        raise Unreadable(f"{path} cannot be read ({_why(error)}): delete it and run `{made_by}`") from error


def read_json(path: Path, remedy: str, keys: Sequence[str] = ()) -> Any:
    """The content of a JSON file; `remedy`, a clause, is the cure in the error if it is missing, broken, or no object
    with these `keys`."""
    path = Path(path)
    if not path.exists():
        raise NotThere(f"{path} is not there: {remedy}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if lacking := [key for key in keys if not isinstance(content, dict) or key not in content]:
            raise ValueError(f"it is no object with {lacking[0]}")
        return content
    except (OSError, ValueError, RecursionError) as error:
        raise Unreadable(f"{path} cannot be read ({_why(error)}): {remedy}") from error


def _why(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
