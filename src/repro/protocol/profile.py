"""The profile of a pool of queries: K verified samples of each, their cost, and the policy they come from."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from repro.errors import Refused
from repro.files import NotThere, Unreadable, read_json, read_parquet, write_json, write_parquet
from repro.methods.plans import Queries
from repro.tasks.queries import Query

SHAPE = ("n_queries", "samples")
MANY = 10**6  # samples


class ProfileError(Refused, ValueError):
    """One sentence: which profile, what is wrong with it, and the remedy."""


@dataclass(frozen=True)
class Source:
    """The origin of a profile: hashes of the policy's weights and of the queries, and the sampling parameters."""

    policy: str
    queries: str
    temperature: float
    max_new_tokens: int
    seed: int


@dataclass(frozen=True, eq=False)
class Profile:
    """K samples of each of Q queries, in the order of the pool.

    correct_Q_K            bool   whether the verifier accepted the sample
    response_tokens_Q_K    int    its length
    prompt_tokens_Q        int    prefilled once per query
    """

    source: Source
    correct_Q_K: np.ndarray
    response_tokens_Q_K: np.ndarray
    prompt_tokens_Q: np.ndarray

    def __post_init__(self):
        shape = np.shape(self.correct_Q_K)
        if len(shape) != 2 or 0 in shape:
            raise ProfileError(
                f"an empty profile ({' × '.join(map(str, shape))} queries × samples) says nothing of any query: "
                "give it at least one query and K ≥ 1 samples of each"
            )
        if np.shape(self.response_tokens_Q_K) != shape or np.shape(self.prompt_tokens_Q) != shape[:1]:
            raise ProfileError("a profile's verdicts, response lengths and prompt lengths are not of the same queries")
        if not np.isin(self.correct_Q_K, (0, 1)).all():
            raise ProfileError("a profile's verdicts must be 0 or 1: with others success rates leave [0, 1]")

    @property
    def samples(self) -> int:
        """K."""
        return self.correct_Q_K.shape[1]

    @property
    def successes_Q(self) -> np.ndarray:
        return self.correct_Q_K.sum(1)

    @property
    def rate_Q(self) -> np.ndarray:
        """p̂, the success rate."""
        return self.correct_Q_K.mean(1)

    def first(self, samples: int) -> "Profile":
        """The profile restricted to the first `samples` ≤ K samples of each query."""
        if not 1 <= samples <= self.samples:
            raise ProfileError(
                f"a profile of {self.samples} samples a query has no first {samples}: ask for 1 to {self.samples}, "
                "or raise profile.samples in params.yaml"
            )
        columns = slice(0, samples)
        return replace(
            self,
            correct_Q_K=self.correct_Q_K[:, columns],
            response_tokens_Q_K=self.response_tokens_Q_K[:, columns],
        )

    def known(self) -> Queries:
        """The part of the profile that a plan may know."""
        return Queries(self.prompt_tokens_Q, self.successes_Q, np.full(len(self.prompt_tokens_Q), self.samples))

    def check(self, source: Source) -> "Profile":
        """This profile, if its policy, queries and sampling parameters match `source`; the seed is not compared."""
        for name, what in (("policy", "another policy"), ("queries", "other queries")):
            if getattr(self.source, name) != getattr(source, name):
                raise ProfileError(
                    f"the profile is of {what} than those trained here ({str(getattr(self.source, name))[:12]}…, "
                    f"not {str(getattr(source, name))[:12]}…): profile again with `dvc repro profile`"
                )
        for name in ("temperature", "max_new_tokens"):
            if getattr(self.source, name) != getattr(source, name):
                raise ProfileError(
                    f"the profile was sampled with {name} {getattr(self.source, name)}, training samples with "
                    f"{getattr(source, name)}: profile again with `dvc repro profile`"
                )
        return self

    def save(self, folder: Path, name: str) -> None:
        """`name`.parquet, one row per sample, and `name`.json, its origin and the number of queries and samples."""
        queries, samples = self.correct_Q_K.shape
        table = pd.DataFrame(
            {
                "query": np.repeat(np.arange(queries), samples),
                "sample": np.tile(np.arange(samples), queries),
                "correct": self.correct_Q_K.reshape(-1).astype(bool),
                "response_tokens": self.response_tokens_Q_K.reshape(-1).astype(np.int64),
                "prompt_tokens": np.repeat(self.prompt_tokens_Q, samples).astype(np.int64),
            }
        )
        write_parquet(table, folder / f"{name}.parquet")
        write_json({**asdict(self.source), "n_queries": queries, "samples": samples}, folder / f"{name}.json")

    @classmethod
    def load(cls, folder: Path, name: str) -> "Profile":
        """Read what `save` wrote; ProfileError if a query or a sample is missing or duplicated, and a plain ValueError
        if the table is not parquet."""
        path = folder / f"{name}.parquet"
        table = read_parquet(path, "dvc repro profile")
        try:
            content = read_json(path.with_suffix(".json"), "delete it and run `dvc repro profile`", SHAPE)
            shape = tuple(content.pop(name) for name in SHAPE)
            table = table.sort_values(["query", "sample"])
            if wrong := _broken(table, shape):
                raise ProfileError(f"{path}: {wrong}: delete it and run `dvc repro profile`")
            return cls(
                Source(**content),
                table["correct"].to_numpy(bool).reshape(shape),
                table["response_tokens"].to_numpy(np.int64).reshape(shape),
                table["prompt_tokens"].to_numpy(np.int64)[:: max(shape[1], 1)],
            )
        except (KeyError, TypeError, AttributeError, NotThere, Unreadable) as error:
            raise ProfileError(f"{path} cannot be read ({error!r}): delete it and run `dvc repro profile`") from error


def _broken(table: pd.DataFrame, shape: tuple[int, int]) -> str:
    """What is wrong with a profile's table of `shape` queries × samples; empty if nothing."""
    if shape[0] * shape[1] > max(10 * len(table), MANY):  # whose list would fill the memory
        return f"{shape[0]} queries of {shape[1]} samples are not the {len(table)} rows that it has"
    found = pd.MultiIndex.from_frame(table[["query", "sample"]])
    whole = pd.MultiIndex.from_product([range(number) for number in shape], names=found.names)
    if len(missing := whole.difference(found)):
        return f"query {missing[0][0]} lacks sample {missing[0][1]}"
    if len(extra := found.difference(whole)):
        return f"query {extra[0][0]}, sample {extra[0][1]} is one too many"
    if not found.is_unique:
        return "a sample is there twice"
    if not table["correct"].isin([0, 1]).all():
        return "a verdict other than 0 and 1, so a success rate outside [0, 1]"
    return ""


def hash_policy(folder: Path) -> str:
    """Hash of the weights in a folder written by `save_pretrained`."""
    digest = hashlib.sha256()
    for path in sorted(Path(folder).glob("*.safetensors")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def hash_queries(queries: Sequence[Query]) -> str:
    """Hash of prompts and answers, in order."""
    return hashlib.sha256(json.dumps([[query.prompt, query.answer] for query in queries]).encode()).hexdigest()
