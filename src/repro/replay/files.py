"""Files of rollouts as records, one by one; tables without texts, which hold millions of rows, as blocks of columns."""

import json
import pickle
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from repro.errors import Refused, brief
from repro.replay.formats import FORMATS

TOLD = ("reward", "prompt_tokens", "response_tokens")  # numbers that a table without texts has in each row
BATCH, BLOCK = 1024, 2**16  # rows of a table in memory at once: with texts, and without
BYTES = 2**22  # of JSON lines, likewise
BROKEN = (ValueError, LookupError, TypeError, AttributeError, RuntimeError, OSError, EOFError, ImportError)
BROKEN += (zipfile.BadZipFile, pickle.UnpicklingError)  # what a damaged file raises
PLAIN = {"numpy.ndarray", "numpy.dtype", "_codecs.encode", "collections.OrderedDict"}  # what a .pt file may name
PLAIN |= {f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("_reconstruct", "scalar")}
Placed = tuple[str, Any]  # where a record stands, and the record: None where it cannot be parsed, or why no more follow
Renamed = Mapping[str, str]  # of columns: the project's names for somebody's


class NoRollouts(Refused, ValueError):
    """One sentence: what was read, and why no rollout came of it."""


@dataclass(frozen=True)
class Block:
    """Rows of a table without texts: `frame`, its columns that count; `placed`, rows by their numbers as records."""

    frame: pd.DataFrame
    placed: Callable[[Iterable[int]], Iterator[Placed]]


def files_of(source: Path) -> list[Path]:
    """The files to read, numbers in their names in order. Of prime-rl's folders `all` stands for `effective`;
    evaluations are left out. NoRollouts where there is none."""
    found = [path for path in source.rglob("*") if path.suffix in READERS and not path.stem.endswith("_metadata")]
    twice = {"eval", "effective"} if any("all" in path.parts for path in found) else {"eval"}
    found = [path for path in found if not twice & set(path.relative_to(source).parts)]
    if not found and not source.is_file():
        raise NoRollouts(f"{source}: no file of rollouts; {', '.join(READERS)} are read")
    return sorted(found or [source], key=lambda path: re.sub(r"\d+", lambda number: number[0].zfill(12), str(path)))


def records_of(path: Path, renamed: Renamed) -> Iterator[Placed | Block]:
    """What cannot be read on ends with the error in the place of a record."""
    try:
        yield from READERS.get(path.suffix, _of_lines)(path, renamed)
    except BROKEN as error:
        yield str(path), Refused(brief(str(error), 160))


def of_frames(name: str, parts: Iterable[pd.DataFrame], short: list[str]) -> Iterator[Placed | Block]:
    """Of a table in parts. `short`: the columns that count, if it has no texts."""
    start = 1
    for part in parts:
        placed = partial(_of_rows, name, part, start)
        yield from [Block(part[short], placed)] if short else placed(range(len(part)))
        start += len(part)


def named(record: Mapping[str, Any], renamed: Renamed) -> dict[str, Any]:
    """With the project's names, for which a column of the same name that was not asked for makes way."""
    others = {name: value for name, value in record.items() if name not in renamed}
    return others | {name: record[own] for own, name in renamed.items() if own in record}


def without_texts(names: Iterable[str], renamed: Renamed) -> list[str]:
    """The columns that count of a table that says every length, and has no texts; none of anything else."""
    own = named({name: name for name in names}, renamed)
    title = next((title for title, needs, _ in FORMATS if needs <= own.keys()), "")
    if title != "table" or "response" in own or not own.keys() >= set(TOLD):
        return []
    return [own[name] for name in ("step", "group", "query", *TOLD, "truncated", "seconds") if name in own]


def _of_rows(name: str, part: pd.DataFrame, start: int, rows: Iterable[int]) -> Iterator[Placed]:
    records = part.iloc[rows := list(rows)].to_dict("records")
    return ((f"{name}, row {start + row}", record) for row, record in zip(rows, records, strict=True))


def _of_lines(path: Path, renamed: Renamed) -> Iterator[Placed | Block]:
    start = 1
    with path.open("rb") as file:
        while lines := file.readlines(BYTES):
            placed = partial(_of_some_lines, path.name, lines, start)
            frame = _parsed(lines, renamed)
            yield from placed(range(len(lines))) if frame is None else [Block(frame, placed)]
            start += len(lines)


def _of_some_lines(name: str, lines: list[bytes], start: int, rows: Iterable[int]) -> Iterator[Placed]:
    for row in rows:
        if text := lines[row].decode(errors="replace").strip():
            try:
                found = json.loads(text)
            except (ValueError, RecursionError):
                found = None
            yield f"{name}:{start + row}", found


def _parsed(lines: list[bytes], renamed: Renamed) -> pd.DataFrame | None:
    """The columns of a table without texts; None of anything else, and where a line is not like the first."""
    import pyarrow as pa
    from pyarrow import json as arrow

    first = next((record for _, record in _of_some_lines("", lines, 0, [0])), None)
    short = without_texts(first, renamed) if isinstance(first, dict) else []
    kinds = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
    kind = {name: kinds.get(type(first[name])) for name in short}
    decimal = [name for name in short if renamed.get(name, name) in ("reward", "seconds")]  # 1, and then 0.5
    kind |= dict.fromkeys(decimal, pa.float64())
    if not short or None in kind.values():
        return None
    options = arrow.ParseOptions(explicit_schema=pa.schema(kind.items()), unexpected_field_behavior="ignore")
    try:
        table = arrow.read_json(BytesIO(b"".join(lines)), parse_options=options)
    except pa.ArrowInvalid:
        return None
    return table.to_pandas(integer_object_nulls=True) if len(table) == len(lines) else None


def _of_parquet(path: Path, renamed: Renamed) -> Iterator[Placed | Block]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        if short := without_texts(file.schema_arrow.names, renamed):
            parts = (part.to_pandas(integer_object_nulls=True) for part in file.iter_batches(BLOCK, columns=short))
            yield from of_frames(path.name, parts, short)
        else:
            records = (record for part in file.iter_batches(BATCH) for record in part.to_pylist())
            yield from ((f"{path.name}, row {number}", record) for number, record in enumerate(records, 1))


def _of_csv(path: Path, renamed: Renamed) -> Iterator[Placed | Block]:
    short = without_texts(pd.read_csv(path, nrows=0).columns, renamed)
    with pd.read_csv(path, chunksize=BLOCK if short else BATCH, usecols=short or None) as parts:
        yield from of_frames(path.name, parts, short)


class _Plain(pickle.Unpickler):
    """Loads numbers, text, lists and arrays, so that no code of the file runs; a tensor is None."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "torch":
            return lambda *_: None
        if f"{module}.{name}" not in PLAIN:
            raise ValueError("it holds more than numbers, text, lists and arrays, and is not loaded")
        return super().find_class(module, name)

    def persistent_load(self, _: Any) -> None:
        """A tensor's numbers, which stand in the archive next to the pickle."""


def _of_pt(path: Path, _: Renamed) -> Iterator[Placed]:
    """slime's, a step each, from torch's archive; `torch.load` of weights alone takes ten times as long."""
    with zipfile.ZipFile(path) as archive:
        [pickled] = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        with archive.open(pickled) as file:
            content = _Plain(file).load()
    step = content["rollout_id"]
    for number, sample in enumerate(content["samples"], 1):
        yield f"{path.name}, row {number}", {"rollout_id": step, **sample}


READERS = {".jsonl": _of_lines, ".parquet": _of_parquet, ".csv": _of_csv, ".pt": _of_pt}
