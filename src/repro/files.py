"""Atomic writes, and reads with a helpful error when a file is missing or broken."""

import json
import os
from collections.abc import Callable
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
    """Let `write` write a temporary file beside `path`, then rename it: readers never see a partial file."""
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
    return write_whole(path, lambda partial: partial.write_text(text))


def write_text(text: str, path: Path) -> Path:
    """Text, unchanged."""
    return write_whole(path, lambda partial: partial.write_text(text))


def read_parquet(path: Path, made_by: str) -> pd.DataFrame:
    """The table at `path`; `made_by` is the command that makes it, named in the error if it is missing or broken."""
    path = Path(path)
    if not path.exists():
        raise NotThere(f"{path} is not there yet: run `{made_by}` first")
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        why = " ".join(str(error).split())
        raise Unreadable(f"{path} cannot be read ({why}): delete it and run `{made_by}`") from error


def read_json(path: Path, remedy: str) -> Any:
    """The content of a JSON file; `remedy`, a clause, is the cure in the error if it is missing or broken."""
    path = Path(path)
    if not path.exists():
        raise NotThere(f"{path} is not there: {remedy}")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise Unreadable(f"{path} cannot be read ({why}): {remedy}") from error
