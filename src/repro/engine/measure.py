"""Profile a policy: K responses to every query, verified."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from repro.engine.evaluate import decode, score
from repro.engine.generate import generate
from repro.engine.profile import Profile, ProfileError, Source
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
    """`samples` responses to every query, drawn with `source`'s seed, temperature and limit; about `batch_rollouts` at
    once, whole queries together. Samples of one query are exchangeable, so the first k are a profile with K = k.

    Profiles that differ in seed, temperature, K or `stream` (the training step at which a policy is profiled again) are
    independent draws: with common random numbers they would agree more than two profiles do.
    """
    import torch

    if samples < 1 or not queries:
        raise ProfileError(f"{samples} samples of {len(queries)} queries: a profile needs at least one of each")
    generator = torch.Generator(device=model.device).manual_seed(_stream_seed(source, samples, stream))
    prompts = tokenizer([query.prompt for query in queries])["input_ids"]
    chunk = max(1, batch_rollouts // samples)
    correct, tokens = [], []
    for start in range(0, len(queries), chunk):
        part = queries[start : start + chunk]
        responses = generate(
            model,
            prompts[start : start + chunk],
            [samples] * len(part),
            max_new_tokens=source.max_new_tokens,
            eos=tokenizer.eos_token_id,
            pad=tokenizer.pad_token_id,
            temperature=source.temperature,
            generator=generator,
        )
        texts, valid_N = decode(tokenizer, responses)
        verdicts_N = score(texts, valid_N, [query for query in part for _ in range(samples)])
        correct.append(verdicts_N.reshape(-1, samples) == 1.0)
        tokens.append(responses.mask_N_T.sum(1).cpu().numpy().reshape(-1, samples))
    prompt_tokens_Q = np.array([len(prompt) for prompt in prompts])
    return Profile(source, np.concatenate(correct), np.concatenate(tokens), prompt_tokens_Q)


def _stream_seed(source: Source, samples: int, stream: int) -> int:
    """63 bits, of which torch's generators take all."""
    words = [source.seed, round(source.temperature * 1e6), samples, stream]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> 1)
