"""Rollouts of somebody's run from files, one by one: what is kept of each is a handful of numbers, whatever its length.

A row that cannot be used is counted under a reason, with the place of the first; it costs no other row.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from repro.errors import Refused
from repro.replay.files import BATCH, BLOCK, TOLD, Block, NoRollouts, Placed, files_of, named, of_frames, records_of
from repro.replay.files import without_texts as short_of
from repro.replay.formats import FORMATS, Rollout
from repro.replay.lengths import Lengths
from repro.replay.words import say

TABLE = "step, group, reward, prompt_tokens, response_tokens"  # the columns of a table of one's own
WHOLE = dict.fromkeys(("step", "group", "query", "prompt_tokens", "response_tokens"), "int32")
TYPES = {**WHOLE, "reward": "float64", "truncated": "boolean", "seconds": "float32", "response": "string[pyarrow]"}
ABSENT = {"step": 0, "seconds": np.nan}  # what a table may lack
WIDE = 2**31  # what steps and lengths stay below


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
    columns: {one of TABLE, or query, prompt, response, truncated, seconds: its name in a table of your own}
    whole: numbers of rows of which more than a handful of numbers is kept
    """
    renamed = {own: name for name, own in (columns or {}).items()}
    reader = _Reader(Lengths(tokenizer), dict(rewards or {}), renamed, whole)
    if isinstance(source, pd.DataFrame):
        size = BLOCK if (short := short_of(source, renamed)) else BATCH
        parts = (source.iloc[start : start + size] for start in range(0, len(source), size))
        return reader.dump(of_frames("table", parts, short))
    return reader.dump(record for path in files_of(Path(source)) for record in records_of(path, renamed))


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
        self.unread: dict[str, list[str]] = {}  # {reason: files that could not be read to their end}

    def dump(self, records: Iterable[Placed | Block]) -> Dump:
        parts = [*self._frames(records)]
        left_out = [say("bad", rows=count, reason=why, place=place) for why, (count, place) in self.bad.items()]
        for why, places in self.unread.items():
            left_out.append(
                say("unread" if len(places) == 1 else "unread_all", place=places[0], files=len(places), reason=why)
            )
        if not parts:
            told = " ".join(left_out) or "There is no row."
            raise NoRollouts(f"no rollout was read. {told} A table needs {TABLE}; --columns gives their names")
        self.numbers.clear()
        joined = {name: pd.concat([part.pop(name) for part in parts], ignore_index=True) for name in TYPES}
        whole = pd.DataFrame(joined, copy=False)  # a column at a time, which needs the memory once
        several = [say("rewards", names=", ".join(self.rewards))] * (len(self.rewards) > 1 and not self.weights)
        mixed = [say("mixed", formats=" and ".join(self.formats))] * (len(self.formats) > 1)
        of_formats = [*mixed, *several, *map(say, self.formats)]
        notes = [*of_formats, *self.lengths.notes(), *_of_groups(whole), *left_out]
        return Dump(whole, list(self.formats), self.bad, list(filter(None, notes)), self.whole)

    def _frames(self, records: Iterable[Placed | Block]) -> Iterator[pd.DataFrame]:
        """The rows in order, in parts: numbers take a tenth of the memory in arrays."""
        for are_blocks, own in groupby(records, lambda record: isinstance(record, Block)):
            if are_blocks:
                yield from filter(len, map(self._of_block, own))
                continue
            rows = (row for record in own for row in self._rows(*record))
            while part := [*islice(rows, BATCH)]:
                yield _typed(part)

    def _of_block(self, block: Block) -> pd.DataFrame:
        """Its rows: those that lack nothing at once, the others one by one."""
        frame = block.frame.rename(columns=self.renamed).reset_index(drop=True)
        numbers = frame.filter(["step", "seconds", *TOLD]).apply(pd.to_numeric, errors="coerce").astype(float)
        weight = self.weights.get("reward", np.nan) if self.weights else 1.0
        rows = numbers.assign(reward=weight * numbers["reward"], response="", truncated=pd.NA)
        if "truncated" in frame:
            rows["truncated"] = frame["truncated"].map({True: True, False: False})
        whole = numbers.drop(columns=["reward", "seconds"], errors="ignore")
        plain = np.isfinite(rows["reward"]) & (whole.abs() < WIDE).all(axis=1) & frame["group"].notna()
        plain &= (numbers[[*TOLD[1:]]] >= 1).all(axis=1)
        plain &= rows["truncated"].notna() | frame.get("truncated", rows["truncated"]).isna()
        if any(self.count <= row < self.count + len(frame) for row in self.wanted):
            plain[:] = False
        rows, kept = rows[plain], frame[plain]
        rows = rows.assign(**{name: rows.get(name, absent) for name, absent in ABSENT.items()})
        for name, step_N in (("group", rows["step"].to_numpy(int)), ("query", None)):
            rows[name] = self._numbered(step_N, kept.get(name, kept["group"]))
        if len(rows):
            self.count, self.formats["table"], self.rewards["reward"] = self.count + len(rows), None, None
        rest = np.flatnonzero(~plain).tolist()
        placed = zip(rest, block.placed(rest), strict=True)
        found = {row: own for row, (place, record) in placed for own in self._rows(place, record)}  # one a record
        rows = rows.astype(TYPES)[[*TYPES]]
        return pd.concat([rows, _typed([*found.values()], [*found])]).sort_index() if found else rows

    def _rows(self, place: str, record: Any) -> list[dict[str, Any]]:
        """The rollouts of a record; none, and a reason counted, where it cannot be used."""
        if isinstance(record, Refused):
            self.unread.setdefault(str(record), []).append(place)
            return []
        try:
            if not isinstance(record, dict):
                raise ValueError("is no JSON object")
            if self.renamed:
                record = named(record, self.renamed)
            known = [(title, rollouts) for title, needs, rollouts in FORMATS if needs <= record.keys()]
            if not known:
                raise ValueError(f"has the keys of no known format ({', '.join(record)[:100]})")
            self.formats[known[0][0]] = None
            read = [(rollout, self._row(rollout)) for rollout in known[0][1](record)]
            numbered = enumerate(read, self.count)
            self.whole |= {number: rollout for number, (rollout, _) in numbered if number in self.wanted}
            self.count += len(read)
            return [row for _, row in read]
        except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
            why = f"lacks {error}" if isinstance(error, KeyError) else str(error)[:160]
            self.bad[why] = (self.bad.get(why, (0, ""))[0] + 1, self.bad.get(why, (0, place))[1])
            return []

    def _row(self, rollout: Rollout) -> dict[str, Any]:
        self.lengths.measure(rollout)
        if rollout.group is None or rollout.group != rollout.group or (rollout.response_tokens or 0) < 1:
            raise ValueError("has no group, or neither response_tokens nor a response")
        step, said = rollout.step or 0, rollout.response
        if max(abs(step), rollout.prompt_tokens or 0, rollout.response_tokens or 0) >= WIDE:
            raise ValueError("has a step or a length beyond 2³¹")
        return {
            "step": step,
            "group": self._number(step, rollout.group),
            "query": self._number(None, rollout.query),
            "reward": self._reward(rollout.rewards),
            "prompt_tokens": max(rollout.prompt_tokens or 1, 1),
            "response_tokens": rollout.response_tokens,
            "truncated": rollout.truncated,
            "seconds": rollout.seconds,
            "response": said if len(said) < 20 else f"{said[:9]}…{said[-9:]}",  # enough for a picture
        }

    def _number(self, step: int | None, name: Any) -> int:
        return self.numbers.setdefault(hash((step, name)), len(self.numbers))

    def _numbered(self, step_N: np.ndarray | None, names: pd.Series) -> np.ndarray:
        """The same of many, each pair looked up once."""
        name_N, names_U = pd.factorize(names)
        pair_N, pair_U = pd.factorize(name_N + (0 if step_N is None else step_N * len(names_U)))
        steps_U, places_U = np.divmod(pair_U, max(1, len(names_U)))
        names_of, steps = names_U.tolist(), [None] * len(pair_U) if step_N is None else steps_U.tolist()
        number_U = [self._number(step, names_of[place]) for step, place in zip(steps, places_U.tolist(), strict=True)]
        return np.array(number_U, int)[pair_N]

    def _reward(self, rewards: Mapping[str, Any]) -> float:
        """Σ weight · reward of those that count and are given."""
        self.rewards |= dict.fromkeys(rewards)
        counted = self.weights or ({"score": 1.0} if "score" in rewards else dict.fromkeys(rewards, 1.0))
        try:
            terms = [weight * float(rewards[name]) for name, weight in counted.items() if rewards.get(name) is not None]
        except (ValueError, TypeError):
            terms = []
        terms = [term for term in terms if not np.isnan(term)]
        if not terms or not np.isfinite(sum(terms)):
            raise ValueError(f"has no finite reward called {', '.join(counted) or 'anything'}")
        return sum(terms)


def _typed(rows: list[dict[str, Any]], index: list[int] | None = None) -> pd.DataFrame:
    return pd.DataFrame(rows, index, [*TYPES]).astype(TYPES)


def _of_groups(rows: pd.DataFrame) -> Iterator[str]:
    """What the groups look like, where that means that something is missing or mixed up."""
    rewards = rows.groupby("group")["reward"]
    groups = rewards.agg(["size", "min", "max"])
    usual = int(groups["size"].mode().iloc[0])
    odd = int((groups["size"] != usual).sum())
    if usual == 1 or odd:
        yield say("single" if usual == 1 else "odd", odd=odd, groups=len(groups), usual=usual)
    if len(groups) >= 8 and (groups["min"] < groups["max"]).all():
        yield say("shaped" if rewards.nunique().mean() > 0.7 * usual else "filtered")
