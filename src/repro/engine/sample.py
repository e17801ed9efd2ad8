"""Sample responses and verify them: the loop shared by evaluations, profiles and the base policy's groups."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from repro.engine.generate import Responses, generate
from repro.tasks.queries import Query, verify
from repro.tasks.tokenizer import encode


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive queries starting at `first`, with N = queries × samples responses, grouped by query."""

    first: int
    queries: Sequence[Query]
    responses: Responses
    texts: list[str]
    verdicts_N: np.ndarray

    @property
    def queries_N(self) -> list[Query]:
        """The query of each response."""
        return [query for query in self.queries for _ in range(len(self.texts) // len(self.queries))]

    @property
    def tokens_N(self) -> np.ndarray:
        """Length of each response, end of text included."""
        return self.responses.mask_N_T.sum(1).cpu().numpy()


def sample(
    model: Any,
    tokenizer: Any,
    queries: Sequence[Query],
    *,
    samples: int,
    batch_rollouts: int,
    max_new_tokens: int,
    temperature: float,
    seed: int,
    stratified: bool = False,
) -> Iterator[Chunk]:
    """`samples` verified responses to every query, about `batch_rollouts` at a time without splitting a query.

    All chunks share one generator, so the draws depend on `seed`, `samples` and `batch_rollouts`; `stratified`: as in
    `generate`.
    """
    generator = torch.Generator(device=model.device).manual_seed(seed)
    prompts = encode(tokenizer, [query.prompt for query in queries])
    size = max(1, batch_rollouts // samples)
    for first in range(0, len(queries), size):
        part = queries[first : first + size]
        responses = generate(
            model,
            prompts[first : first + size],
            [samples] * len(part),
            max_new_tokens=max_new_tokens,
            eos=tokenizer.eos_token_id,
            pad=tokenizer.pad_token_id,
            temperature=temperature,
            generator=generator,
            stratified=stratified,
        )
        texts, valid_N = decode(tokenizer, responses)
        queries_N = [query for query in part for _ in range(samples)]
        yield Chunk(first, part, responses, texts, score(texts, valid_N, queries_N))


def decode(tokenizer: Any, responses: Responses) -> tuple[list[str], np.ndarray]:
    """(texts, valid_N): the texts without their end of text, and whether a response is finished and contains no other
    special token, which a person and the verifier would read differently."""
    ids_N_T, mask_N_T = responses.ids_N_T.cpu().numpy(), responses.mask_N_T.cpu().numpy()
    finished_N = responses.finished_N.cpu().numpy()
    rows = [ids[mask] for ids, mask in zip(ids_N_T, mask_N_T, strict=True)]
    rows = [row[:-1] if finished else row for row, finished in zip(rows, finished_N, strict=True)]
    special = np.array(sorted(set(tokenizer.all_special_ids)))
    clean_N = np.array([not np.isin(row, special).any() for row in rows])
    return tokenizer.batch_decode([row.tolist() for row in rows]), finished_N & clean_N


def score(texts: Sequence[str], valid_N: np.ndarray, queries_N: Sequence[Query]) -> np.ndarray:
    """verdicts_N: 1.0 for a valid response whose answer verifies, else 0.0. A truncated response gets 0.0."""
    return np.array(
        [verify(text, query) if valid else 0.0 for text, valid, query in zip(texts, valid_N, queries_N, strict=True)]
    )
