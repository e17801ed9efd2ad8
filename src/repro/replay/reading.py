"""Rollouts of somebody's run from files, one by one: what is kept of each is a handful of numbers, whatever its length.

A row that cannot be used is counted under a reason, with the place of the first; it costs no other row.
"""

import json
import pickle
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from repro.errors import Refused, brief
from repro.replay.formats import FORMATS, Rollout
from repro.replay.lengths import Lengths
from repro.replay.words import say

TABLE = "step, group, reward, prompt_tokens, response_tokens"  # the columns of a table of one's own
WHOLE = dict.fromkeys(("step", "group", "query", "prompt_tokens", "response_tokens"), "int32")
TYPES = {**WHOLE, "reward": "float64", "truncated": "boolean", "response": "string[pyarrow]"}
BATCH = 1024  # rows of a table that are in memory at once
Placed = tuple[str, Any]  # where a record stands, and the record; None where it cannot be parsed


class NoRollouts(Refused, ValueError):
    """One sentence: what was read, and why no rollout came of it."""


@dataclass(frozen=True)
class Dump:
    """`rows`: a row per rollout, in the order read, columns as in TYPES; groups, of one step each, and queries are
    numbered. `formats`: what was recognised. `bad`: {reason: (rows, place of the first)}. `notes`: what the files
    cannot tell, or was assumed in reading them, a sentence each. `whole`: the rollouts of the rows asked for, with all
    of their text."""

    rows: pd.DataFrame
    formats: list[str]
    bad: dict[str, tuple[int, str]]
    notes: list[str]
    whole: dict[int, Rollout]


def read(
    source: str | Path | pd.DataFrame,
    *,
    tokenizer: str | None = None,
    rewards: Mapping[str, float] | None = None,
    columns: Mapping[str, str] | None = None,
    whole: Collection[int] = (),
) -> Dump:
    """The rollouts in `source`: a file, a folder of them, or a DataFrame. NoRollouts where nothing can be used.

    tokenizer: for files without lengths, a name or folder for AutoTokenizer
    rewards: {name: weight} of those that count; by default verl's `score`, and elsewhere all, with weight 1
    columns: {one of TABLE, or query, prompt, response, truncated: its name in a table of your own}
    whole: numbers of rows of which more than a handful of numbers is kept
    """
    renamed = {own: name for name, own in (columns or {}).items()}
    reader = _Reader(Lengths(tokenizer), dict(rewards or {}), renamed, whole)
    if isinstance(source, pd.DataFrame):
        return reader.dump(_placed("table", source.to_dict("records")))
    return reader.dump(chain.from_iterable(map(_records, files_of(Path(source)))))


def files_of(source: Path) -> list[Path]:
    """The files to read, numbers in their names in order. Of prime-rl's folders `all` stands for `effective`;
    evaluations are left out. NoRollouts where there is none."""
    found = [path for path in source.rglob("*") if path.suffix in READERS and not path.stem.endswith("_metadata")]
    twice = {"eval", "effective"} if any("all" in path.parts for path in found) else {"eval"}
    found = [path for path in found if not twice & set(path.relative_to(source).parts)]
    if not found and not source.is_file():
        raise NoRollouts(f"{source}: no file of rollouts; {', '.join(READERS)} are read")
    return sorted(found or [source], key=lambda path: re.sub(r"\d+", lambda number: number[0].zfill(12), str(path)))


def _records(path: Path) -> Iterator[Placed]:
    """NoRollouts where the file cannot be read as a whole."""
    try:
        yield from READERS.get(path.suffix, _of_lines)(path)
    except (ValueError, EOFError, KeyError, RuntimeError) as error:
        raise NoRollouts(f"{path}: {brief(str(error), 160)}; mend the file, or leave it out") from None


def _of_lines(path: Path) -> Iterator[Placed]:
    name = path.name
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    found = json.loads(line)
                except ValueError:
                    found = None
                yield f"{name}:{number}", found


def _of_parquet(path: Path) -> Iterator[Placed]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        yield from _placed(path.name, chain.from_iterable(batch.to_pylist() for batch in file.iter_batches(BATCH)))


def _of_csv(path: Path) -> Iterator[Placed]:
    with pd.read_csv(path, chunksize=BATCH) as parts:
        yield from _placed(path.name, chain.from_iterable(part.to_dict("records") for part in parts))


def _of_pt(path: Path) -> Iterator[Placed]:
    """slime's, a step each: numbers, text, lists and arrays alone are loaded, so that no code of the file runs."""
    import torch

    kinds = [type(np.dtype(kind)) for kind in "?bBhHiIlLefd"]
    try:
        with torch.serialization.safe_globals([np.ndarray, np.dtype, np._core.multiarray._reconstruct, *kinds]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError("it holds more than numbers, text, lists and arrays, and is not loaded") from None
    step = content["rollout_id"]
    yield from _placed(path.name, ({"rollout_id": step, **sample} for sample in content["samples"]))


def _placed(name: str, records: Iterable[Any]) -> Iterator[Placed]:
    return ((f"{name}, row {number}", record) for number, record in enumerate(records, 1))


READERS = {".jsonl": _of_lines, ".parquet": _of_parquet, ".csv": _of_csv, ".pt": _of_pt}


class _Reader:
    """What was read so far."""

    def __init__(self, lengths: Lengths, weights: dict[str, float], renamed: dict[str, str], wanted: Collection[int]):
        self.lengths, self.weights, self.renamed, self.wanted = lengths, weights, renamed, wanted
        self.whole: dict[int, Rollout] = {}
        self.count = 0
        self.formats: dict[str, None] = {}
        self.rewards: dict[str, None] = {}
        self.numbers: dict[int, int] = {}  # of groups and queries
        self.bad: dict[str, tuple[int, str]] = {}

    def dump(self, records: Iterable[Placed]) -> Dump:
        parts, rows = [], []
        for place, record in records:
            rows += self._rows(place, record)
            if len(rows) > BATCH:  # numbers take a tenth of the memory in arrays
                parts, rows = [*parts, pd.DataFrame(rows).astype(TYPES)], []
        parts += [pd.DataFrame(rows).astype(TYPES)] if rows else []
        left_out = [say("bad", rows=count, reason=why, place=place) for why, (count, place) in self.bad.items()]
        if not parts:
            told = " ".join(left_out) or "There is no row."
            raise NoRollouts(f"no rollout was read. {told} A table needs {TABLE}; --columns gives their names")
        whole = pd.concat(parts, ignore_index=True)
        several = [say("rewards", names=", ".join(self.rewards))] * (len(self.rewards) > 1 and not self.weights)
        notes = [*several, *map(say, self.formats), *self.lengths.notes(), *_of_groups(whole), *left_out]
        return Dump(whole, list(self.formats), self.bad, list(filter(None, notes)), self.whole)

    def _rows(self, place: str, record: Any) -> list[dict[str, Any]]:
        """The rollouts of a record; none, and a reason counted, where it cannot be used."""
        try:
            if not isinstance(record, dict):
                raise ValueError("is no JSON object")
            if self.renamed:
                record = {self.renamed.get(name, name): value for name, value in record.items()}
            known = [(title, rollouts) for title, needs, rollouts in FORMATS if needs <= record.keys()]
            if not known:
                raise ValueError(f"has the keys of no known format ({', '.join(record)[:100]})")
            self.formats[known[0][0]] = None
            read = [(rollout, self._row(rollout)) for rollout in known[0][1](record)]
            numbered = enumerate(read, self.count)
            self.whole |= {number: rollout for number, (rollout, _) in numbered if number in self.wanted}
            self.count += len(read)
            return [row for _, row in read]
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            why = f"lacks {error}" if isinstance(error, KeyError) else str(error)[:160]
            self.bad[why] = (self.bad.get(why, (0, ""))[0] + 1, self.bad.get(why, (0, place))[1])
            return []

    def _row(self, rollout: Rollout) -> dict[str, Any]:
        self.lengths.measure(rollout)
        if rollout.group is None or rollout.group != rollout.group or (rollout.response_tokens or 0) < 1:
            raise ValueError("has no group, or no response")
        step, said = rollout.step or 0, rollout.response
        return {
            "step": step,
            "group": self._number(step, rollout.group),
            "query": self._number(None, rollout.query),
            "reward": self._reward(rollout.rewards),
            "prompt_tokens": max(rollout.prompt_tokens or 1, 1),
            "response_tokens": rollout.response_tokens,
            "truncated": rollout.truncated,
            "response": said if len(said) < 20 else f"{said[:9]}…{said[-9:]}",  # enough for a picture
        }

    def _number(self, step: int | None, name: Any) -> int:
        return self.numbers.setdefault(hash((step, name)), len(self.numbers))

    def _reward(self, rewards: Mapping[str, Any]) -> float:
        """Σ weight · reward of those that count and are given."""
        self.rewards |= dict.fromkeys(rewards)
        counted = self.weights or ({"score": 1.0} if "score" in rewards else dict.fromkeys(rewards, 1.0))
        terms = [weight * float(rewards[name]) for name, weight in counted.items() if rewards.get(name) is not None]
        terms = [term for term in terms if not np.isnan(term)]
        if not terms or not np.isfinite(sum(terms)):
            raise ValueError(f"has no finite reward called {', '.join(counted) or 'anything'}")
        return sum(terms)


def _of_groups(rows: pd.DataFrame) -> Iterator[str]:
    """What the groups look like, where that means that something is missing or mixed up."""
    groups = rows.groupby("group")["reward"].agg(["size", "nunique"])
    usual = int(groups["size"].mode().iloc[0])
    odd = int((groups["size"] != usual).sum())
    if usual == 1 or odd:
        yield say("single" if usual == 1 else "odd", odd=odd, groups=len(groups), usual=usual)
    if len(groups) >= 8 and (groups["nunique"] > 1).all():
        yield say("shaped" if groups["nunique"].mean() > 0.7 * usual else "filtered")
