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
    **how: Any,
) -> dict[str, np.ndarray]:
    """`samples` responses to every query: successes_Q, tokens_Q (response tokens, summed), truncated_Q (counts).
    `how`: the other arguments of repro.engine.sample."""
    columns: dict[str, list[np.ndarray]] = {"successes": [], "tokens": [], "truncated": []}
    for chunk in sample(model, tokenizer, queries, samples=samples, **how):
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
    """`evaluate` as the settings ask for it, with `likeliest` as greedy_Q where they do."""
    how = _sampling(engine, evaluation, seed) | {"temperature": evaluation.temperature, "stratified": stratified}
    found = evaluate(model, tokenizer, queries, samples=samples, **how)
    if evaluation.greedy:
        found["greedy"] = likeliest(model, tokenizer, queries, engine, evaluation, seed=seed)
    return found


def likeliest(
    model: Any, tokenizer: Any, queries: Sequence[Query], engine: Engine, evaluation: Evaluation, *, seed: int
) -> np.ndarray:
    """right_Q: whether the likeliest response to each query is right, 0 or 1."""
    how = _sampling(engine, evaluation, seed) | {"temperature": GREEDY}
    return evaluate(model, tokenizer, queries, samples=1, **how)["successes"]


def _sampling(engine: Engine, evaluation: Evaluation, seed: int) -> dict[str, Any]:
    return {"batch_rollouts": evaluation.batch_rollouts, "max_new_tokens": engine.max_new_tokens, "seed": seed}


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
