"""Find a data set's files, here, in a mirror or on the hub, and read their rows."""

import csv
import glob
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.data.sources import Source

READERS = (".parquet", ".jsonl", ".json", ".csv")
BATCH_ROWS = 8192


class DataMissing(OSError):
    """One sentence: which data set is not to be had, what to fetch and where to put it.

    reason   the first part of it
    command  what fetches the data set, where there is a network
    """

    def __init__(self, sentence: str, reason: str = "", command: str = ""):
        super().__init__(sentence)
        self.reason, self.command = reason, command


class DataBroken(ValueError):
    """One sentence: which file is not of the data set's format, and how."""


@dataclass(frozen=True)
class Found:
    """Files of one data set, and the hub's commit that they are of, where they came from there."""

    paths: list[Path]
    commit: str | None = None


def find(name: str, source: Source, file: Path | None = None, mirror: str | None = None) -> Found:
    """The files of data set `name`.

    `file`: this one and no other. `mirror`: a folder that holds `<hub id>/<file>`, or a hub's address (http…). With
    neither, the hub itself, or what an earlier download left in its cache. DataMissing says what to fetch.
    """
    if file is not None:
        if not Path(file).is_file():
            raise _missing(source, f"{name}: there is no file {file}")
        return Found([Path(file)])
    if mirror is not None and not mirror.startswith(("http://", "https://")):
        paths = _matching(Path(mirror, source.hub), source)
        if not paths:
            raise _missing(source, f"{name}: {Path(mirror, source.hub)} holds no {source.files}")
        return Found(paths)
    return _download(name, source, mirror)


def _download(name: str, source: Source, endpoint: str | None) -> Found:
    from huggingface_hub import snapshot_download

    try:
        folder = Path(
            snapshot_download(source.hub, repo_type="dataset", allow_patterns=[source.files], endpoint=endpoint)
        )
    except Exception as error:  # of the hub's client: no network, no such data set, no permission
        where = endpoint or "the hub"
        raise _missing(
            source, f"{name}: {source.hub} cannot be fetched from {where} ({type(error).__name__})"
        ) from error
    paths = _matching(folder, source)
    if not paths:
        raise DataMissing(
            f"{name}: {source.hub} holds no {source.files} (any more): name the file with --from {name}=FILE"
        )
    return Found(paths, commit=folder.name)


def _missing(source: Source, reason: str) -> DataMissing:
    command = f"hf download {source.hub} --repo-type dataset --include '{source.files}' --local-dir FOLDER/{source.hub}"
    mend = f"where there is a network, run `{command}`, bring FOLDER here, and give it as --mirror FOLDER"
    return DataMissing(f"{reason}: {mend}", reason, command)


def _matching(folder: Path, source: Source) -> list[Path]:
    return sorted(Path(path) for path in glob.glob(str(Path(glob.escape(str(folder)), source.files))))


def read_rows(name: str, source: Source, path: Path) -> Iterator[dict[str, Any]]:
    """The rows of one file, at least the columns that are needed, a batch at a time where the format allows it.

    DataBroken names a file of another kind, one that cannot be read and one that lacks a column.
    """
    reader = {".parquet": _parquet, ".jsonl": _lines, ".json": _json, ".csv": _csv}.get(path.suffix)
    if reader is None:
        raise DataBroken(f"{name}: {path} is none of {', '.join(READERS)}")
    rows = reader(path, source.columns)
    while True:
        try:
            row = next(rows, None)
        except (OSError, ValueError, csv.Error) as error:  # pyarrow's and json's errors are ValueErrors
            why = " ".join(str(error).split())
            raise DataBroken(f"{name}: {path} cannot be read ({why}): fetch {source.hub} anew") from error
        if row is None:
            return
        if missing := [column for column in source.columns if column not in row]:
            raise DataBroken(
                f"{name}: {path} has no column {' and no '.join(missing)}, but {', '.join(row)}: "
                f"it is not {source.hub}, whose {source.files} is what is read"
            )
        yield row


def _parquet(path: Path, columns: list[str]) -> Iterator[dict[str, Any]]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        # With a column missing all are read, so that the error can name those that are there.
        some = columns if set(columns) <= set(file.schema_arrow.names) else None
        for batch in file.iter_batches(BATCH_ROWS, columns=some):
            yield from batch.to_pylist()


def _lines(path: Path, columns: list[str]) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield _row(json.loads(line))


def _json(path: Path, columns: list[str]) -> Iterator[dict[str, Any]]:
    """A list of rows, or, under the same ending, one row a line."""
    text = path.read_text(encoding="utf-8")
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
