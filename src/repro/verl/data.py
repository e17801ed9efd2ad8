"""Questions as verl's data set, a row each, and what tables show of them.

Which of them form a step, and with how many rollouts each (`__rollout_n__`), is the plan's (repro.verl.planned).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from repro.tasks.queries import Query

SIZE = "__rollout_n__"  # verl's name for the number of responses to a prompt
PREDICTED = "pred"  # verl's name for the answer in a response, over which it votes
SOURCE = "repro"  # data_source of the queries of repro.tasks


def query_rows(queries: Sequence[Query], source: str = SOURCE) -> list[dict[str, Any]]:
    """One row in verl's format per query of a pool; `extra_info.index` is its index in the pool."""
    return [
        {
            "data_source": source,
            "prompt": [{"role": "user", "content": query.prompt}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": query.answer},
            "extra_info": {"index": index, "family": query.family, "entry": json.dumps(query.entry)},
        }
        for index, query in enumerate(queries)
    ]


def query_name(source: str, extra: Mapping[str, Any]) -> Any:
    """The name of a held-out query in tables: its index in our own pool, else its id or index in its data set."""
    return extra["index"] if source == SOURCE else extra.get("id") or f"{source}-{extra.get('index', 0)}"


def with_samples(
    batches: Iterator[dict[str, Any]], samples: int, of_source: Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """Validation batches with the number of samples of each query: `samples`, or more where its data source has more in
    `of_source`. Few questions need many samples: one of each of 30 has a standard error of up to 9 points."""
    sized = []
    for batch in batches:
        sizes = np.full(len(batch["raw_prompt"]), samples, dtype=object)
        for source, more in (of_source or {}).items():
            sizes[np.asarray(batch["data_source"]) == source] = max(samples, more)
        sized.append({**batch, SIZE: sizes})
    return sized


@dataclass(frozen=True)
class QueryInfo:
    """The columns that tables show for a query."""

    prompt: str
    family: str

    @classmethod
    def by_index(cls, rows: Any) -> dict[int, "QueryInfo"]:
        """{index: info} of training data."""
        return {extra["index"]: info for _, extra, info in cls._each(rows)}

    @classmethod
    def by_name(cls, rows: Any) -> dict[Any, "QueryInfo"]:
        """{name: info} of held-out data, which may come from several sources."""
        return {query_name(source, extra): info for source, extra, info in cls._each(rows)}

    @classmethod
    def _each(cls, rows: Any) -> Iterator[tuple[str, dict[str, Any], "QueryInfo"]]:
        for prompt, source, extra in zip(rows["prompt"], rows["data_source"], rows["extra_info"], strict=True):
            yield source, extra, cls(prompt[-1]["content"], extra.get("family") or source)
