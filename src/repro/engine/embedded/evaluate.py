"""Held-out accuracy, question by question."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from repro.engine.embedded.generate import Responses, generate
from repro.tasks.queries import Query, verify


def decode(tokenizer: Any, responses: Responses) -> list[str]:
    """The response texts without special tokens; an unfinished response gets no answer mark it did not write."""
    ids_N_T, mask_N_T = responses.ids_N_T.cpu().numpy(), responses.mask_N_T.cpu().numpy()
    rows = [ids[mask].tolist() for ids, mask in zip(ids_N_T, mask_N_T, strict=True)]
    return tokenizer.batch_decode(rows, skip_special_tokens=True)


def score(texts: Sequence[str], finished_N: np.ndarray, queries_N: Sequence[Query]) -> np.ndarray:
    """rewards_N: 1.0 for a finished response whose answer verifies, else 0.0. A truncated response earns nothing."""
    return np.array(
        [
            verify(text, query) if finished else 0.0
            for text, finished, query in zip(texts, finished_N, queries_N, strict=True)
        ]
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
        finished_N = responses.finished_N.cpu().numpy()
        rewards_N = score(decode(tokenizer, responses), finished_N, [query for query in part for _ in range(samples)])
        columns["successes"].append(rewards_N.reshape(-1, samples).sum(1).astype(int))
        columns["tokens"].append(responses.mask_N_T.sum(1).cpu().numpy().reshape(-1, samples).sum(1))
        columns["truncated"].append((~finished_N).reshape(-1, samples).sum(1))
    return {name: np.concatenate(parts) for name, parts in columns.items()}
