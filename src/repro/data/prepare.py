"""From a data set's rows to verl's parquet and a manifest of what was read, dropped and written."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from repro.data.clean import Count, Item, cleaned, normalise, usable
from repro.data.files import DataBroken, DataFiles, DataMissing, find, read_rows
from repro.data.formats import DAPO_AFTER, DAPO_BEFORE
from repro.data.sources import SOURCES, DataSet
from repro.files import write_json, write_whole

QUESTION = "{question}"
# The papers do not give the prompt, so the default is ours: the instruction of Qwen2.5-Math's template. With `dapo`,
# DAPO-Math's prompts are identical to upstream's.
PROMPTS = {
    "boxed": QUESTION + "\n\nPlease reason step by step, and put your final answer within \\boxed{}.",
    "dapo": DAPO_BEFORE + QUESTION + DAPO_AFTER,
    "plain": QUESTION,  # for a chat template that asks for \\boxed{} itself, such as Qwen2.5-Math's
}
ID_DIGITS = 12  # of SHA-256, hexadecimal


@dataclass(frozen=True)
class Prepared:
    """One data set, ready to be written: its items with their ids, its files and its row counts."""

    name: str
    items: list[Item]
    ids: list[str]
    files: DataFiles
    count: Count

    @property
    def source(self) -> DataSet:
        return SOURCES[self.name]

    @property
    def checksum(self) -> str:
        """SHA-256 of ids, questions and answers in order, independent of file format and prompt."""
        digest = hashlib.sha256()
        for identity, item in zip(self.ids, self.items, strict=True):
            digest.update(json.dumps([identity, item.question, item.answer], ensure_ascii=False).encode() + b"\n")
        return digest.hexdigest()


def prepare(
    names: Sequence[str],
    out: Path,
    *,
    files: Mapping[str, Path] | None = None,
    mirror: str | None = None,
    prompt: str = "boxed",
    keep_evaluated: bool = False,
) -> list[dict[str, Any]]:
    """Write OUT/NAME.parquet and OUT/NAME.json for each data set of SOURCES, and return the manifests.

    A training set is cleaned of the questions of exactly the evaluation sets prepared in the same call, so the result
    depends on the call only; with `keep_evaluated` of none, as in the papers, whose step counts that fits. `files`:
    local files for some of the names; `mirror`: see `find`. DataMissing, DataBroken.
    """
    located = find_all(names, files or {}, mirror)
    training = [name for name in names if SOURCES[name].trains]
    prepared = {name: _prepared(name, located[name], usable) for name in names if name not in training}
    questions = {name: frozenset(normalise(item.question) for item in each.items) for name, each in prepared.items()}
    clean = partial(cleaned, evaluation={} if keep_evaluated else questions)
    prepared |= {name: _prepared(name, located[name], clean) for name in training}
    return [write(prepared[name], Path(out), prompt) for name in names]


def find_all(names: Sequence[str], files: Mapping[str, Path], mirror: str | None) -> dict[str, DataFiles]:
    """`find` for each. A single DataMissing lists the download commands of all missing data sets, one per line."""
    located, missing = {}, []
    for name in names:
        try:
            located[name] = find(name, SOURCES[name], files.get(name), mirror)
        except DataMissing as error:
            missing.append(error)
    if len(missing) == 1:
        raise missing[0]
    if missing:
        commands = "".join(f"\n    {error.command}" for error in missing)
        raise DataMissing(
            f"{len(missing)} of {len(names)} data sets are unavailable, the first of them for this reason: "
            f"{missing[0].reason}; on a machine with a network, run the following, copy FOLDER here, and pass it as "
            f"--mirror FOLDER{commands}"
        )
    return located


def _prepared(name: str, files: DataFiles, clean: Callable[..., Iterable[Item]]) -> Prepared:
    count = Count()
    items = list(clean(read_items(name, files.paths), count=count))
    if not items:
        raise DataBroken(f"{name}: no row with a question and an answer is left: check the file")
    return Prepared(name, items, stable_ids(name, items), files, count)


def read_items(name: str, paths: Iterable[Path]) -> Iterator[Item]:
    """Every row as an item; DataBroken names a row that is not in the data set's format."""
    source = SOURCES[name]
    for path in paths:
        for number, row in enumerate(read_rows(name, source, path), start=1):
            try:
                identity = source.identity.of(row) if source.identity else ""
                yield Item(source.question.of(row), source.answer.of(row), identity)
            except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
                raise DataBroken(
                    f"{name}: row {number} of {path} is not in the format of {source.hub} "
                    f"({type(error).__name__}: {str(error)[:200]})"
                ) from error


def stable_ids(name: str, items: Sequence[Item]) -> list[str]:
    """An id for each item, a hash of its question only, so that it does not depend on order or other rows; repeated
    questions get a number."""
    ids, seen = [], {}
    for item in items:
        identity = f"{name}-{hashlib.sha256(item.question.encode()).hexdigest()[:ID_DIGITS]}"
        seen[identity] = seen.get(identity, 0) + 1
        ids.append(identity if seen[identity] == 1 else f"{identity}-{seen[identity]}")
    return ids


def verl_row(name: str, index: int, identity: str, item: Item, prompt: str) -> dict[str, Any]:
    """One row in the format of verl's RLHFDataset."""
    content = PROMPTS[prompt].replace(QUESTION, item.question)
    return {
        "data_source": name,
        "prompt": [{"role": "user", "content": content}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": item.answer},
        "extra_info": {
            "split": "train" if SOURCES[name].trains else "test",
            "index": index,
            "id": identity,
            "source_id": item.source_id,
            "question": item.question,
        },
    }


def write(prepared: Prepared, out: Path, prompt: str) -> dict[str, Any]:
    """Write OUT/NAME.parquet and its manifest OUT/NAME.json; returns the manifest."""
    from pyarrow import Table, parquet

    rows = [
        verl_row(prepared.name, index, identity, item, prompt)
        for index, (identity, item) in enumerate(zip(prepared.ids, prepared.items, strict=True))
    ]
    table = Table.from_pylist(rows, schema=_schema())
    path = write_whole(out / f"{prepared.name}.parquet", lambda partial: parquet.write_table(table, partial))
    manifest = {
        "name": prepared.name,
        "hub": prepared.source.hub,
        "split": prepared.source.split,
        "commit": prepared.files.commit,
        "read": {each.name: file_hash(each) for each in prepared.files.paths},
        "upstream_rows": prepared.source.rows,
        "rows": asdict(prepared.count),
        "prompt": prompt,
        "content": prepared.checksum,
        "file": file_hash(path),
    }
    write_json(manifest, out / f"{prepared.name}.json")
    return manifest


def _schema() -> Any:
    import pyarrow as pa

    text = pa.string()
    return pa.schema(
        {
            "data_source": text,
            "prompt": pa.list_(pa.struct({"role": text, "content": text})),
            "ability": text,
            "reward_model": pa.struct({"style": text, "ground_truth": text}),
            "extra_info": pa.struct(
                {"split": text, "index": pa.int64(), "id": text, "source_id": text, "question": text}
            ),
        }
    )


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sentence(manifest: Mapping[str, Any]) -> str:
    """A summary of a data set's rows, for the terminal."""
    rows = manifest["rows"]
    parts = [f"{manifest['name']}: {rows['written']} of {rows['read']} rows"]
    for what in ("unusable", "repeats", "contradictory"):
        if rows[what]:
            parts.append(f"{rows[what]} {what}")
    if rows["by_set"]:
        shares = ", ".join(f"{name} {number}" for name, number in rows["by_set"].items())
        parts.append(f"{rows['evaluated']} in evaluation sets ({shares})")
    elif SOURCES[manifest["name"]].trains:
        parts.append("compared with no evaluation set")
    if rows["read"] != manifest["upstream_rows"]:
        parts.append(f"upstream had {manifest['upstream_rows']}: is the file complete?")
    return "; ".join(parts)
