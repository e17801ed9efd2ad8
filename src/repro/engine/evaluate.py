"""Held-out accuracy, question by question."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from repro.engine.sample import sample
from repro.tasks.queries import Query


def evaluate(
    model: Any,
    tokenizer: Any,
    queries: Sequence[Query],
    *,
    samples: int,
    batch_rollouts: int,
    max_new_tokens: int,
    temperature: float,
    seed: int,
) -> dict[str, np.ndarray]:
    """`samples` responses to every query: successes_Q, tokens_Q (response tokens, summed), truncated_Q (counts)."""
    columns: dict[str, list[np.ndarray]] = {"successes": [], "tokens": [], "truncated": []}
    options = {"batch_rollouts": batch_rollouts, "max_new_tokens": max_new_tokens, "temperature": temperature}
    for chunk in sample(model, tokenizer, queries, samples=samples, seed=seed, **options):
        unfinished_N = ~chunk.responses.finished_N.cpu().numpy()
        columns["successes"].append(chunk.verdicts_N.reshape(-1, samples).sum(1).astype(int))
        columns["tokens"].append(chunk.tokens_N.reshape(-1, samples).sum(1))
        columns["truncated"].append(unfinished_N.reshape(-1, samples).sum(1))
    return {name: np.concatenate(parts) for name, parts in columns.items()}
