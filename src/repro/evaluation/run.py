"""Sample every question many times, verify and store each response."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from repro.data.verify import Verdict, Verifier
from repro.engine.backends import Backend, Samples
from repro.evaluation.measures import per_question, summary
from repro.evaluation.questions import Question
from repro.evaluation.store import Store
from repro.files import write_json, write_parquet

Judge = Callable[[Sequence[str], Sequence[Question]], Sequence[Verdict]]  # of responses, each with its question


def by_answer(verifier: Verifier) -> Judge:
    """Compares each response with its question's answer."""
    return lambda texts_N, asked_N: verifier.check_all(texts_N, [question.answer for question in asked_N])


@dataclass(frozen=True)
class Sampling:
    """How a model is sampled: softmax(logits / temperature), its nucleus of `top_p`, without top-k.

    `chunk`: responses sampled at a time, then verified and stored; it bounds the memory for their log-probabilities and
    the work lost to an interruption. Chunks are sampled independently of each other.
    """

    samples: int
    max_new_tokens: int
    temperature: float
    seed: int
    top_p: float = 1.0
    chunk: int = 2048


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The evaluation of one data set.

    responses  one row per response: id, sample, response, correct, found (see `Verdict`), finished, response_tokens
    questions  one row per question: see `per_question`
    summary    see `measures.summary`
    seconds    sample, verify; wall time; empty if all responses were already stored
    """

    responses: pd.DataFrame
    questions: pd.DataFrame
    summary: dict[str, Any]
    seconds: dict[str, float]

    def save(self, folder: Path, timings: Path) -> None:
        """Write questions.parquet and summary.json, next to the responses.parquet of `Store`, and the seconds to
        `timings`."""
        write_parquet(self.questions, Path(folder) / "questions.parquet")
        write_json(self.summary, Path(folder) / "summary.json")
        if self.seconds:
            write_json(self.seconds, Path(timings) / "seconds.json")


def evaluate(
    backend: Backend | None,
    questions: Sequence[Question],
    prompts_Q: Sequence[Sequence[int]],
    judge: Judge,
    sampling: Sampling,
    *,
    stops: Sequence[int],
    ks: Sequence[int] | None = None,
    store: Store | None = None,
    report: Callable[[int], Any] = lambda done: None,
) -> Evaluation:
    """`sampling.samples` responses to every question, each verified.

    A response is judged by its text, truncated or not, as in verl; `finished` tells which. `prompts_Q`: token ids.
    `stops`: tokens that end a response. `store`: where chunks are stored and those of an earlier run are read from; if
    complete, no `backend` is needed. `report` is called after each chunk with the number of questions done. While a
    chunk is verified, by CPUs, the next is sampled.
    """
    store = store or Store()
    responses, seconds = store.responses(), {}
    if responses is None:
        step = max(1, sampling.chunk // sampling.samples)
        parts: list[tuple[pd.DataFrame, dict[str, float]]] = []

        def take(judged: Future) -> None:
            parts.append(judged.result())
            report(min(step * len(parts), len(questions)))

        with ThreadPoolExecutor(1) as another:
            waiting = None  # one chunk at most, so that memory stays bounded
            for start in range(0, len(questions), step):
                chosen = slice(start, start + step)
                part = store.read(start)
                if part is None:
                    drawn = _sampled(backend, prompts_Q[chosen], sampling, stops, start)
                    task = partial(_judged, store, start, drawn, questions[chosen], judge)
                else:
                    task = partial(tuple, part)
                if waiting:
                    take(waiting)
                waiting = another.submit(task)
            take(waiting)
        responses = pd.concat([frame for frame, _ in parts], ignore_index=True)
        seconds = {name: sum(times[name] for _, times in parts) for name in ("sample", "verify")}
        store.finish(responses)
    table = per_question(questions, responses)
    return Evaluation(responses, table, summary(table, ks), seconds)


def _sampled(
    backend: Backend, prompts_Q: Sequence[Sequence[int]], sampling: Sampling, stops: Sequence[int], start: int
) -> Samples:
    """The responses to some questions; `start` is the index of the first one in the data set."""
    return backend.sample(
        prompts_Q,
        sampling.samples,
        max_new_tokens=sampling.max_new_tokens,
        temperature=sampling.temperature,
        stop=list(stops),
        seed=int(np.random.SeedSequence([sampling.seed, start]).generate_state(1)[0]),
        top_p=sampling.top_p,
    )


def _judged(
    store: Store,
    start: int,
    drawn: Samples,
    questions: Sequence[Question],
    judge: Judge,
) -> tuple[pd.DataFrame, dict[str, float]]:
    """A chunk's table and seconds, stored."""
    samples = len(drawn.texts_N) // len(questions)
    asked_N = [question for question in questions for _ in range(samples)]
    started = time.monotonic()
    verdicts_N = judge(drawn.texts_N, asked_N)
    seconds = {"sample": drawn.seconds, "verify": time.monotonic() - started}
    table = {
        "id": [question.id for question in asked_N],
        "sample": np.tile(np.arange(samples), len(questions)),
        "response": drawn.texts_N,
        "correct": [verdict.correct for verdict in verdicts_N],
        "found": [verdict.found for verdict in verdicts_N],
        "finished": drawn.finished_N,
        "response_tokens": drawn.tokens_N,
    }
    responses = pd.DataFrame(table)
    store.write(start, responses, seconds)
    return responses, seconds
