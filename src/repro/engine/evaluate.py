"""Held-out accuracy, question by question."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from repro.engine.generate import Responses, generate
from repro.tasks.queries import Query, verify


def decode(tokenizer: Any, responses: Responses) -> tuple[list[str], np.ndarray]:
    """(texts, valid_N): the texts without their end of text, and whether a response is finished and holds no other
    special token; one that does would read differently to a person than to the verifier."""
    ids_N_T, mask_N_T = responses.ids_N_T.cpu().numpy(), responses.mask_N_T.cpu().numpy()
    finished_N = responses.finished_N.cpu().numpy()
    rows = [ids[mask] for ids, mask in zip(ids_N_T, mask_N_T, strict=True)]
    rows = [row[:-1] if finished else row for row, finished in zip(rows, finished_N, strict=True)]
    special = np.array(sorted(set(tokenizer.all_special_ids)))
    clean_N = np.array([not np.isin(row, special).any() for row in rows])
    return tokenizer.batch_decode([row.tolist() for row in rows]), finished_N & clean_N


def score(texts: Sequence[str], valid_N: np.ndarray, queries_N: Sequence[Query]) -> np.ndarray:
    """rewards_N: 1.0 for a valid response whose answer verifies, else 0.0. A truncated response earns nothing."""
    return np.array(
        [verify(text, query) if valid else 0.0 for text, valid, query in zip(texts, valid_N, queries_N, strict=True)]
    )


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
    generator = torch.Generator(device=model.device).manual_seed(seed)
    prompts = tokenizer([query.prompt for query in queries])["input_ids"]
    chunk = max(1, batch_rollouts // samples)
    columns: dict[str, list[np.ndarray]] = {"successes": [], "tokens": [], "truncated": []}
    for start in range(0, len(queries), chunk):
        part = queries[start : start + chunk]
        responses = generate(
            model,
            prompts[start : start + chunk],
            [samples] * len(part),
            max_new_tokens=max_new_tokens,
            eos=tokenizer.eos_token_id,
            pad=tokenizer.pad_token_id,
            temperature=temperature,
            generator=generator,
        )
        texts, valid_N = decode(tokenizer, responses)
        rewards_N = score(texts, valid_N, [query for query in part for _ in range(samples)])
        columns["successes"].append(rewards_N.reshape(-1, samples).sum(1).astype(int))
        columns["tokens"].append(responses.mask_N_T.sum(1).cpu().numpy().reshape(-1, samples).sum(1))
        columns["truncated"].append((~responses.finished_N.cpu().numpy()).reshape(-1, samples).sum(1))
    return {name: np.concatenate(parts) for name, parts in columns.items()}
