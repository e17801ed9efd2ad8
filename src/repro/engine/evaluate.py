"""Held-out accuracy, question by question."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from repro.engine.sample import sample
from repro.settings import Engine, Evaluation
from repro.tasks.queries import Query

GREEDY = 0.01  # a temperature that leaves all probability to the likeliest token, unless two are almost equally likely


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
    stratified: bool = False,
) -> dict[str, np.ndarray]:
    """`samples` responses to every query: successes_Q, tokens_Q (response tokens, summed), truncated_Q (counts).
    stratified: see repro.engine.draws."""
    columns: dict[str, list[np.ndarray]] = {"successes": [], "tokens": [], "truncated": []}
    options = {"batch_rollouts": batch_rollouts, "max_new_tokens": max_new_tokens, "temperature": temperature}
    for chunk in sample(model, tokenizer, queries, samples=samples, seed=seed, stratified=stratified, **options):
        unfinished_N = ~chunk.responses.finished_N.cpu().numpy()
        columns["successes"].append(chunk.verdicts_N.reshape(-1, samples).sum(1).astype(int))
        columns["tokens"].append(chunk.tokens_N.reshape(-1, samples).sum(1))
        columns["truncated"].append(unfinished_N.reshape(-1, samples).sum(1))
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def examine(
    model: Any,
    tokenizer: Any,
    queries: Sequence[Query],
    engine: Engine,
    evaluation: Evaluation,
    *,
    samples: int,
    seed: int,
    stratified: bool = False,
) -> dict[str, np.ndarray]:
    """`evaluate` as the settings ask for it: with greedy_Q, whether the likeliest response is right, where they do."""
    size, longest = evaluation.batch_rollouts, engine.max_new_tokens
    how: dict[str, Any] = {"batch_rollouts": size, "max_new_tokens": longest, "seed": seed}
    temperature = evaluation.temperature
    found = evaluate(model, tokenizer, queries, samples=samples, temperature=temperature, stratified=stratified, **how)
    if evaluation.greedy:
        found["greedy"] = evaluate(model, tokenizer, queries, samples=1, temperature=GREEDY, **how)["successes"]
    return found


def summary(outcome: dict[str, np.ndarray], samples: int) -> dict[str, float]:
    """Means over all responses: samples, accuracy, response_tokens, truncated, and greedy where it was asked for."""
    names = {"accuracy": "successes", "response_tokens": "tokens", "truncated": "truncated"}
    n = samples * len(outcome["successes"])
    means = {name: float(outcome[column].sum() / n) for name, column in names.items()}
    greedy = {"greedy": float(outcome["greedy"].mean())} if "greedy" in outcome else {}
    return {"samples": samples, **means, **greedy}


def both(held_out: dict[str, float], harder: dict[str, float] | None) -> dict[str, float]:
    """One row of the measures of the held-out split, and of the harder one as harder and harder_greedy."""
    if harder is None:
        return held_out
    greedy = {"harder_greedy": harder["greedy"]} if "greedy" in harder else {}
    return {**held_out, "harder": harder["accuracy"], **greedy}
