"""Profile a language model: K verified responses to every query, and what they cost."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from repro.engine.backends import open_backend, open_best
from repro.engine.backends.load import fetch
from repro.experiments.language_model.queries import STOP, question, verify
from repro.files import write_json, write_parquet
from repro.protocol.profile import Profile, Source, hash_policy, hash_queries
from repro.settings.studies import LanguageModel
from repro.tasks.queries import Query

Engine = Literal["auto", "vllm", "transformers"]


@dataclass(frozen=True, eq=False)
class Measured:
    """A profile and its samples.

    facts    source, engine, dtype, threads
    why      why the engine is not vLLM; None where it is, or where another was asked for
    samples  one row per response: query, sample, response, correct, finished, response_tokens
    seconds  load, start (of the engine) and sample; wall time
    """

    facts: dict[str, Any]
    profile: Profile
    samples: pd.DataFrame
    seconds: dict[str, float]
    why: str | None = None

    def save(self, folder: Path, queries: Sequence[Query], asked: LanguageModel) -> None:
        """settings.json (`asked`), model.json (facts), seconds.json, queries.parquet, profile.{parquet,json} and
        samples.parquet."""
        folder = Path(folder)
        write_json(asked.model_dump(mode="json"), folder / "settings.json")
        write_json(self.facts, folder / "model.json")
        write_json(self.seconds, folder / "seconds.json")
        write_parquet(_table(queries), folder / "queries.parquet")
        self.profile.save(folder, "profile")
        write_parquet(self.samples, folder / "samples.parquet")


def profile_language_model(
    source: str,
    queries: Sequence[Query],
    *,
    engine: Engine,
    dtype: str,
    threads: int,
    samples: int,
    max_new_tokens: int,
    temperature: float,
    seed: int,
) -> Measured:
    """`samples` responses to every query. `engine` "auto": vLLM where it runs, else transformers. ModelMissing with the
    remedy where the model, or the package of `smollm2`, is not to be had."""
    started = time.monotonic()
    folder = fetch(source, dtype)
    loaded = time.monotonic()
    if engine == "auto":
        backend, why = open_best(folder, dtype=dtype, threads=threads)
    else:
        backend, why = open_backend(engine, folder, dtype=dtype, threads=threads), None
    ready = time.monotonic()
    with backend:
        prompts_Q = backend.tokenizer([query.prompt for query in queries], add_special_tokens=False)["input_ids"]
        drawn = backend.sample(
            prompts_Q,
            samples,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            stop=newline_token(backend.tokenizer),
            seed=seed,
        )
    shape = (len(queries), samples)
    correct_N = [
        verify(text, query) == 1.0 and bool(finished)
        for text, finished, query in zip(
            drawn.texts_N, drawn.finished_N, (query for query in queries for _ in range(samples)), strict=True
        )
    ]
    correct_Q_K, tokens_Q_K = np.array(correct_N).reshape(shape), drawn.tokens_N.reshape(shape)
    whose = Source(hash_policy(folder), hash_queries(queries), temperature, max_new_tokens, seed)
    table = pd.DataFrame(
        {
            "query": np.repeat(np.arange(len(queries)), samples),
            "sample": np.tile(np.arange(samples), len(queries)),
            "response": drawn.texts_N,
            "correct": correct_Q_K.ravel(),
            "finished": drawn.finished_N,
            "response_tokens": drawn.tokens_N,
        }
    )
    return Measured(
        {"source": source, "engine": backend.name, "dtype": dtype, "threads": threads},
        Profile(whose, correct_Q_K, tokens_Q_K, np.array([len(prompt) for prompt in prompts_Q])),
        table,
        {"load": loaded - started, "start": ready - loaded, "sample": drawn.seconds},
        why,
    )


def newline_token(tokenizer: Any) -> int:
    """The id of the token for a single newline; ValueError where the tokenizer has none."""
    ids = tokenizer(STOP, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise ValueError(
            f"this model's tokenizer writes a newline as {len(ids)} tokens, and responses end at one token: "
            "choose another model for language_model.source"
        )
    return ids[0]


def _table(queries: Sequence[Query]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "query": np.arange(len(queries)),
            "family": [query.family for query in queries],
            "question": [question(query) for query in queries],
            "answer": [query.answer for query in queries],
            "prompt": [query.prompt for query in queries],
        }
    )
