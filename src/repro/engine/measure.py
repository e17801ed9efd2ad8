"""Profile a policy: K responses to every query, verified."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from repro.engine.sample import sample
from repro.protocol.profile import Profile, ProfileError, Source
from repro.tasks.queries import Query


def measure_profile(
    model: Any,
    tokenizer: Any,
    queries: Sequence[Query],
    source: Source,
    *,
    samples: int,
    batch_rollouts: int,
    stream: int = 0,
) -> Profile:
    """`samples` responses to every query, drawn with `source`'s seed, temperature and length limit; about
    `batch_rollouts` at a time. Samples of one query are exchangeable, so the first k are a profile with K = k.

    Profiles that differ in seed, temperature, K or `stream` (the training step at which a policy is profiled again) are
    independent draws; with common random numbers they would agree more than independent profiles do.
    """
    if samples < 1 or not queries:
        raise ProfileError(f"{samples} samples of {len(queries)} queries: a profile needs at least one of each")
    options = {"max_new_tokens": source.max_new_tokens, "temperature": source.temperature}
    seed, correct, tokens = _stream_seed(source, samples, stream), [], []
    for chunk in sample(
        model, tokenizer, queries, samples=samples, batch_rollouts=batch_rollouts, seed=seed, **options
    ):
        correct.append(chunk.verdicts_N.reshape(-1, samples) == 1.0)
        tokens.append(chunk.tokens_N.reshape(-1, samples))
    prompts = tokenizer([query.prompt for query in queries])["input_ids"]
    prompt_tokens_Q = np.array([len(prompt) for prompt in prompts])
    return Profile(source, np.concatenate(correct), np.concatenate(tokens), prompt_tokens_Q)


def _stream_seed(source: Source, samples: int, stream: int) -> int:
    """A 63-bit seed, all of which torch's generators use."""
    words = [source.seed, round(source.temperature * 1e6), samples, stream]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> 1)
