"""The profile of a model over its training prompts: K verified samples of each, for arms that plan from it.

One for all arms and seeds that train the model on these prompts (the embedded engine measures one per seed), since here
it takes GPU-hours. Sampled and judged as in training. It is stored in parts, each some prompts and some samples, so
that it resumes after an interruption, several GPUs can share it, and an arm with a larger K adds only the missing
samples.
"""

import multiprocessing
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from repro.engine.backends import BackendError, open_backend
from repro.errors import brief
from repro.evaluation.model import stops_of
from repro.files import Unreadable, read_parquet, write_json, write_parquet
from repro.protocol.profile import Profile, Source, hash_queries
from repro.settings.errors import SettingsError
from repro.stored import read_stored
from repro.tasks.queries import Query
from repro.verl.identity import hash_weights
from repro.verl.judged import judge
from repro.verl.questions import prompts_of, question_of
from repro.verl.run import PROFILE

PART = 512  # prompts; the most that an interruption loses
HOW = "how.json"
AGAIN = "the command that made it"
BEFORE = {"template": {}, "reward": None, "engine": "vllm"}  # of a profile that says none of them


@dataclass(frozen=True)
class Sampling:
    """How training samples and judges: tokens of prompts and responses at most; `template`: options of the chat
    template; `reward`: verl's `reward.custom_reward_function`, None for math-verify."""

    temperature: float
    top_p: float
    max_prompt_tokens: int
    max_new_tokens: int
    template: Mapping[str, Any] = field(default_factory=dict)
    reward: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Sampler:
    """How a part is sampled: everything that a worker on one GPU needs."""

    engine: str
    model: Path
    dtype: str
    rows: tuple[Mapping[str, Any], ...]
    source: Source
    how: Sampling


@dataclass(frozen=True)
class Part:
    """Samples `first` to `last` - 1 of the prompts `start` to `stop` - 1."""

    start: int
    stop: int
    first: int
    last: int

    def path(self, folder: Path) -> Path:
        return folder / "parts" / f"samples-{self.first}-{self.last}" / f"prompts-{self.start}-{self.stop}.parquet"


def profile_of(
    how: Sampling,
    model: Path,
    rows: Sequence[Mapping[str, Any]],
    samples: int,
    folder: Path,
    *,
    engine: str = "vllm",
    dtype: str = "bfloat16",
    gpus: int = 1,
) -> Path:
    """Complete the profile in `folder` to `samples` samples of every prompt, and return `folder`, which then holds
    profile.parquet and profile.json, of that many samples or more, as `Profile.save` writes them.

    `model`: a folder of save_pretrained; `rows`: of training, in verl's format. SettingsError where the folder holds a
    profile of another model or other prompts, or one with other sampling settings; BackendError where the engine
    cannot run.
    """
    source = source_of(how, model, rows)
    settings = {"top_p": how.top_p, "dtype": dtype, "template": dict(how.template), "engine": engine}
    _same(folder, {**asdict(source), **settings, "reward": dict(how.reward) if how.reward else None})
    parts = _parts(folder, len(rows), samples)
    missing = [part for part in parts if not part.path(folder).exists()]
    if missing:
        print(f"profiling {len(rows)} prompts, {samples} samples of each: {len(missing)} of {len(parts)} parts")
        _measure(Sampler(engine, model, dtype, tuple(rows), source, how), folder, missing, gpus)
    _joined(source, folder, parts).save(folder, PROFILE)
    return folder


def source_of(how: Sampling, model: Path, rows: Sequence[Mapping[str, Any]]) -> Source:
    """What a profile is of."""
    questions = [question_of(row) for row in rows]
    queries = [Query(entry.messages[-1]["content"], entry.answer, entry.data_source, {}) for entry in questions]
    return Source(hash_weights(model), hash_queries(queries), how.temperature, how.max_new_tokens, seed=0)


def _same(folder: Path, how: dict[str, Any]) -> None:
    """Record the settings of this profile; SettingsError where it was begun with others."""
    path = folder / HOW
    stored = read_stored(path, f"remove {folder} to profile again", {"policy": str}) if path.exists() else how
    before = {**BEFORE, **stored}
    other = {key: value for key, value in how.items() if before.get(key) != value}
    changed = [f"{key}: {brief(before.get(key))} → {brief(value)}" for key, value in other.items()]
    if changed:
        raise SettingsError(
            f"{folder} holds a profile made with other settings ({'; '.join(changed)}): name another folder, or remove "
            "this one to profile again"
        )
    write_json(how, path)


def _parts(folder: Path, n_questions: int, samples: int) -> list[Part]:
    """All parts of the profile: the ranges of samples begun before, and one for those missing up to `samples`."""
    ranges = sorted(
        tuple(map(int, path.name.split("-")[1:]))
        for path in (folder / "parts").glob("samples-*")
        if re.fullmatch(r"samples-\d+-\d+", path.name) and path.is_dir()
    )
    have = ranges[-1][1] if ranges else 0
    if have < samples:
        ranges.append((have, samples))
    ranges = [(first, last) for first, last in ranges if first < samples]
    starts = range(0, n_questions, PART)
    return [Part(start, min(start + PART, n_questions), first, last) for first, last in ranges for start in starts]


def _measure(sampler: Sampler, folder: Path, parts: Sequence[Part], gpus: int) -> None:
    """Every part, one process for each GPU; BackendError where a process fails."""
    if gpus <= 1:
        _work(sampler, folder, parts)
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    devices = visible if len(visible) == gpus else [str(device) for device in range(gpus)]
    spawn = multiprocessing.get_context("spawn")
    workers = [
        spawn.Process(target=_work, args=(sampler, folder, parts[place::gpus], device))
        for place, device in enumerate(devices)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise BackendError("profiling failed on a GPU, see above; the same command resumes with the missing parts")


def _work(sampler: Sampler, folder: Path, parts: Sequence[Part], device: str | None = None) -> None:
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    if not parts:
        return
    options = {"dtype": sampler.dtype, "max_length": sampler.how.max_prompt_tokens + sampler.how.max_new_tokens}
    with open_backend(sampler.engine, sampler.model, **options) as backend, judge(sampler.how.reward) as verdicts:
        for part in parts:
            write_parquet(_sampled(sampler, part, backend, verdicts), part.path(folder))
            print(f"profiled prompts {part.start} to {part.stop}, samples {part.first} to {part.last}", flush=True)


def _sampled(sampler: Sampler, part: Part, backend: Any, verdicts: Any) -> pd.DataFrame:
    """query, sample, correct, response_tokens, prompt_tokens of one part, in the order of `Profile`'s table."""
    rows, samples = sampler.rows[part.start : part.stop], part.last - part.first
    prompts_Q = prompts_of(backend.tokenizer, rows, sampler.how.template)
    drawn = backend.sample(
        prompts_Q,
        samples,
        max_new_tokens=sampler.how.max_new_tokens,
        temperature=sampler.how.temperature,
        top_p=sampler.how.top_p,
        stop=stops_of(sampler.model, backend.tokenizer),
        seed=int(np.random.SeedSequence([sampler.source.seed, part.start, part.first]).generate_state(1)[0]),
    )
    place_Q = np.arange(part.start, part.stop)
    return pd.DataFrame(
        {
            "query": np.repeat(place_Q, samples),
            "sample": np.tile(np.arange(part.first, part.last), len(rows)),
            "correct": verdicts(drawn.texts_N, [row for row in rows for _ in range(samples)]),
            "response_tokens": drawn.tokens_N,
            "prompt_tokens": np.repeat([len(prompt) for prompt in prompts_Q], samples),
        }
    )


def _joined(source: Source, folder: Path, parts: Sequence[Part]) -> Profile:
    columns, tables = ("query", "sample", "correct", "response_tokens", "prompt_tokens"), []
    for part in parts:
        path = part.path(folder)
        tables.append(read_parquet(path, AGAIN, columns))
        if len(tables[-1]) != (part.stop - part.start) * (part.last - part.first):
            raise Unreadable(f"{path} lacks samples: delete it and run {AGAIN} again")
    table = pd.concat(tables).sort_values(["query", "sample"])
    shape = (table["query"].nunique(), table["sample"].nunique())
    correct_Q_K, tokens_Q_K, prompt_Q_K = (
        table[name].to_numpy().reshape(shape) for name in ("correct", "response_tokens", "prompt_tokens")
    )
    return Profile(source, correct_Q_K, tokens_Q_K, prompt_Q_K[:, 0])
