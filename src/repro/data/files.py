"""Locate a data set's files, locally, in a mirror or on the hub, and read their rows."""

import csv
import glob
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.data.sources import DataSet
from repro.errors import Refused

READERS = (".parquet", ".jsonl", ".json", ".csv")
BATCH_ROWS = 8192


class DataMissing(Refused, OSError):
    """One sentence: which data set is unavailable, what to download and where to put it.

    reason   the first part of the sentence
    command  downloads the data set, given a network
    """

    lines = True  # a command for each data set

    def __init__(self, sentence: str, reason: str = "", command: str = ""):
        super().__init__(sentence)
        self.reason, self.command = reason, command


class DataBroken(Refused, ValueError):
    """One sentence: which file is not in the data set's format, and how it differs."""


@dataclass(frozen=True)
class DataFiles:
    """Files of one data set, and their commit on the hub if they come from there."""

    paths: list[Path]
    commit: str | None = None


def find(name: str, source: DataSet, file: Path | None = None, mirror: str | None = None) -> DataFiles:
    """The files of data set `name`.

    `file`: use only this one. `mirror`: a folder with `<hub id>/<file>`. With neither, the hub, or the cache of an
    earlier download. DataMissing says what to download.
    """
    if file is not None:
        if not Path(file).is_file():
            raise _missing(source, f"{name}: there is no file {file}")
        return DataFiles([Path(file)])
    if mirror is not None:
        paths = _matching(Path(mirror, source.hub), source)
        if not paths:
            raise _missing(source, f"{name}: {Path(mirror, source.hub)} has no {source.files}")
        return DataFiles(paths)
    return _download(name, source)


def _download(name: str, source: DataSet) -> DataFiles:
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(source.hub, repo_type="dataset", allow_patterns=[source.files]))
    except Exception as error:  # from the hub's client: no network, no such data set, no permission
        raise _missing(source, f"{name}: {source.hub} cannot be downloaded ({type(error).__name__})") from error
    paths = _matching(folder, source)
    if not paths:
        raise DataMissing(f"{name}: {source.hub} has no {source.files} (any more): give a copy with --mirror FOLDER")
    return DataFiles(paths, commit=folder.name)


def _missing(source: DataSet, reason: str) -> DataMissing:
    command = f"hf download {source.hub} --repo-type dataset --include '{source.files}' --local-dir FOLDER/{source.hub}"
    remedy = f"on a machine with a network, run `{command}`, copy FOLDER here, and pass it as --mirror FOLDER"
    return DataMissing(f"{reason}: {remedy}", reason, command)


def _matching(folder: Path, source: DataSet) -> list[Path]:
    return sorted(Path(path) for path in glob.glob(str(Path(glob.escape(str(folder)), source.files))))


def read_rows(name: str, source: DataSet, path: Path) -> Iterator[dict[str, Any]]:
    """The rows of one file with at least the required columns, read in batches if the format allows it.

    DataBroken if the file has another format, cannot be read or lacks a column.
    """
    reader = {".parquet": _parquet, ".jsonl": _lines, ".json": _json, ".csv": _csv}.get(path.suffix)
    if reader is None:
        raise DataBroken(f"{name}: {path} is none of {', '.join(READERS)}")
    from pyarrow import ArrowException

    rows = reader(path, source.columns)
    while True:
        try:
            row = next(rows, None)
        except (OSError, ValueError, RecursionError, csv.Error, ArrowException) as error:  # json's is a ValueError
            why = " ".join(str(error).split())[:300]
            raise DataBroken(f"{name}: {path} cannot be read ({why}): download {source.hub} again") from error
        if row is None:
            return
        if missing := [column for column in source.columns if column not in row]:
            raise DataBroken(
                f"{name}: {path} has no column {' and no '.join(missing)}, but {', '.join(map(str, row))[:300]}: "
                f"it is not {source.files} of {source.hub}"
            )
        yield row


def _parquet(path: Path, columns: list[str]) -> Iterator[dict[str, Any]]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        # If a column is missing, all are read, so that the error can list them.
        some = columns if set(columns) <= set(file.schema_arrow.names) else None
        for batch in file.iter_batches(BATCH_ROWS, columns=some):
            yield from batch.to_pylist()


def _lines(path: Path, columns: list[str]) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8-sig") as lines:
        for line in lines:
            if line.strip():
                yield _row(json.loads(line))


def _json(path: Path, columns: list[str]) -> Iterator[dict[str, Any]]:
    """A list of rows, or one row per line under the same extension."""
    text = path.read_text(encoding="utf-8-sig")
    if text.lstrip().startswith("["):
        yield from map(_row, json.loads(text))
    else:
        yield from _lines(path, columns)


def _csv(path: Path, columns: list[str]) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        yield from csv.DictReader(lines)


def _row(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"a row is {type(value).__name__}, not an object")
    return value
