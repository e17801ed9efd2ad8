"""Groups of responses to every query, one row per rollout: the base policy's behaviour before any training."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from repro.engine.evaluate import GREEDY
from repro.engine.sample import sample
from repro.tasks.queries import Query

BATCH_ROLLOUTS = 4096
LOWER = 0.6


def sample_groups(
    model: Any,
    tokenizer: Any,
    queries: Sequence[Query],
    *,
    groups: int,
    group_size: int,
    max_new_tokens: int,
    temperature: float,
    seed: int,
) -> pd.DataFrame:
    """`groups` groups of `group_size` responses to every query, one row per rollout.

    Columns: query, family, group (0 … groups−1), prompt, response, correct (0.0 or 1.0), response_tokens, cost,
    entropy (nats, mean over the response), finished.
    """
    samples, parts = groups * group_size, []
    options = {"max_new_tokens": max_new_tokens, "temperature": temperature, "seed": seed}
    for chunk in sample(model, tokenizer, queries, samples=samples, batch_rollouts=BATCH_ROLLOUTS, **options):
        responses, n_queries = chunk.responses, len(chunk.queries)
        parts.append(
            pd.DataFrame(
                {
                    "query": np.repeat(np.arange(chunk.first, chunk.first + n_queries), samples),
                    "family": [query.family for query in chunk.queries_N],
                    "group": np.tile(np.repeat(np.arange(groups), group_size), n_queries),
                    "prompt": [query.prompt for query in chunk.queries_N],
                    "response": chunk.texts,
                    "correct": chunk.verdicts_N,
                    "response_tokens": chunk.tokens_N,
                    "cost": chunk.tokens_N + responses.prompt_tokens_N.cpu().numpy(),
                    "entropy": (responses.entropy_N_T.sum(1) / responses.mask_N_T.sum(1)).cpu().numpy(),
                    "finished": responses.finished_N.cpu().numpy(),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def sample_at(
    model: Any, tokenizer: Any, queries: Sequence[Query], *, samples: int, max_new_tokens: int, seed: int
) -> pd.DataFrame:
    """`samples` responses to every query at temperature `LOWER` and one at `GREEDY`: temperature, then the columns of
    `sample_groups` but prompt and response."""
    parts = []
    for temperature, size in {GREEDY: 1, LOWER: samples}.items():
        options = {"groups": 1, "group_size": size, "max_new_tokens": max_new_tokens, "seed": seed}
        rows = sample_groups(model, tokenizer, queries, temperature=temperature, **options)
        parts.append(rows.drop(columns=["prompt", "response"]).assign(temperature=temperature))
    return pd.concat(parts, ignore_index=True)
