"""Sample every question many times, verify each response, and keep all of it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from repro.data.verify import Verifier
from repro.engine.backends import Backend, BackendError
from repro.evaluation.measures import per_question, summary
from repro.evaluation.questions import Question, prompt_ids
from repro.files import write_json, write_parquet

CHUNK_RESPONSES = 2048  # sampled at once, then verified: bounds the memory that their log-probabilities take


@dataclass(frozen=True)
class Sampling:
    """How a model is sampled: softmax(logits / temperature), without top-p or top-k."""

    samples: int
    max_new_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One data set's.

    responses  one row a response: id, sample, response, correct, found (see `Verdict`), finished, response_tokens
    questions  one row a question: see `per_question`
    summary    see `measures.summary`
    seconds    sample, verify; wall time
    """

    responses: pd.DataFrame
    questions: pd.DataFrame
    summary: dict[str, Any]
    seconds: dict[str, float]

    def save(self, folder: Path, timings: Path) -> None:
        """responses.parquet, questions.parquet and summary.json; the seconds go to `timings`."""
        write_parquet(self.responses, Path(folder) / "responses.parquet")
        write_parquet(self.questions, Path(folder) / "questions.parquet")
        write_json(self.summary, Path(folder) / "summary.json")
        write_json(self.seconds, Path(timings) / "seconds.json")


def evaluate(
    backend: Backend,
    questions: Sequence[Question],
    verifier: Verifier,
    sampling: Sampling,
    *,
    template: Mapping[str, Any] | None = None,
    longest: int | None = None,
    ks: Sequence[int] | None = None,
) -> Evaluation:
    """`sampling.samples` responses to every question, each verified.

    A response is judged by its text, cut off or not, as verl does it; `finished` tells them apart. `template`: options
    of the chat template. `longest`: tokens that the engine takes, prompt and response; BackendError names a question
    that needs more.
    """
    prompts_Q = prompt_ids(backend.tokenizer, questions, template or {})
    _fits(questions, prompts_Q, sampling.max_new_tokens, longest)
    chunk = max(1, CHUNK_RESPONSES // sampling.samples)
    parts, seconds = [], {"sample": 0.0, "verify": 0.0}
    for start in range(0, len(questions), chunk):
        part = questions[start : start + chunk]
        drawn = backend.sample(
            prompts_Q[start : start + chunk],
            sampling.samples,
            max_new_tokens=sampling.max_new_tokens,
            temperature=sampling.temperature,
            stop=backend.tokenizer.eos_token_id,
            seed=_chunk_seed(sampling.seed, start),
        )
        asked_N = [question for question in part for _ in range(sampling.samples)]
        started = time.monotonic()
        verdicts_N = verifier.check_all(drawn.texts_N, [question.answer for question in asked_N])
        seconds["sample"] += drawn.seconds
        seconds["verify"] += time.monotonic() - started
        parts.append(
            pd.DataFrame(
                {
                    "id": [question.id for question in asked_N],
                    "sample": np.tile(np.arange(sampling.samples), len(part)),
                    "response": drawn.texts_N,
                    "correct": [verdict.correct for verdict in verdicts_N],
                    "found": [verdict.found for verdict in verdicts_N],
                    "finished": drawn.finished_N,
                    "response_tokens": drawn.tokens_N,
                }
            )
        )
    responses = pd.concat(parts, ignore_index=True)
    table = per_question(questions, responses)
    return Evaluation(responses, table, summary(table, ks), seconds)


def _chunk_seed(seed: int, start: int) -> int:
    """Chunks draw independently of each other."""
    return int(np.random.SeedSequence([seed, start]).generate_state(1)[0])


def _fits(questions: Sequence[Question], prompts_Q: list[list[int]], max_new_tokens: int, longest: int | None) -> None:
    needed_Q = [len(prompt) + max_new_tokens for prompt in prompts_Q]
    if longest is not None and max(needed_Q) > longest:
        worst = int(np.argmax(needed_Q))
        raise BackendError(
            f"{questions[worst].id}: a prompt of {len(prompts_Q[worst])} tokens and a response of up to "
            f"{max_new_tokens} are more than the {longest} that the engine takes with this model: "
            "lower --max-new-tokens"
        )
