"""The base model's profile at a paper scale: K verified samples of every training prompt, for arms that plan from it.

One for all arms and seeds of a scale (the embedded engine measures one per seed), since here it takes GPU-hours.
Sampled and judged as in training. It is stored in parts, each some prompts and some samples, so that it resumes after
an interruption, several GPUs can share it, and an arm with a larger K adds only the missing samples.
"""

import multiprocessing
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from repro.data.verify import Verifier
from repro.engine.backends import BackendError, open_backend
from repro.engine.profile import Profile, Source, hash_policy, hash_queries
from repro.evaluation.model import stops_of
from repro.evaluation.questions import Question, prompt_ids
from repro.files import Unreadable, read_json, read_parquet, write_json, write_parquet
from repro.paper_scale.schema import PaperScale
from repro.settings.errors import SettingsError
from repro.tasks.queries import Query
from repro.verl.run import PROFILE

PART = 512  # prompts; the most that an interruption loses
VERIFIERS = 4  # child processes beside each engine
HOW = "how.json"


@dataclass(frozen=True)
class Sampler:
    """How a part is sampled: everything that a worker on one GPU needs."""

    engine: str
    model: Path
    dtype: str
    questions: tuple[Question, ...]
    source: Source
    top_p: float
    max_length: int
    template: Mapping[str, Any]


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
    scale: PaperScale,
    model: Path,
    questions: Sequence[Question],
    samples: int,
    folder: Path,
    *,
    engine: str = "vllm",
    dtype: str = "bfloat16",
    gpus: int = 1,
    template: Mapping[str, Any] | None = None,
) -> Path:
    """Complete the profile in `folder` to `samples` samples of every question, and return `folder`, which then holds
    profile.parquet and profile.json, of that many samples or more, as `Profile.save` writes them.

    `model`: a folder of save_pretrained; `template`: options of its chat template, as in training. SettingsError where
    the folder holds a profile of another model or other prompts, or one with other sampling settings; BackendError
    where the engine cannot run.
    """
    queries = [Query(entry.messages[-1]["content"], entry.answer, entry.data_source, {}) for entry in questions]
    longest = scale.max_response_tokens.value
    source = Source(hash_policy(model), hash_queries(queries), scale.temperature.value, longest, seed=0)
    room = scale.max_prompt_tokens.value + longest
    sampler = Sampler(engine, model, dtype, tuple(questions), source, scale.top_p.value, room, template or {})
    _same(folder, {**asdict(source), "top_p": sampler.top_p, "dtype": dtype, "template": dict(sampler.template)})
    parts = _parts(folder, len(questions), samples)
    missing = [part for part in parts if not part.path(folder).exists()]
    if missing:
        print(f"profiling {len(questions)} prompts, {samples} samples of each: {len(missing)} of {len(parts)} parts")
        _measure(sampler, folder, missing, gpus)
    _joined(source, folder, parts).save(folder, PROFILE)
    return folder


def _same(folder: Path, how: dict[str, Any]) -> None:
    """Record the settings of this profile; SettingsError where it was begun with others."""
    path = folder / HOW
    stored = read_json(path, f"remove {folder} to profile again", ["policy"]) if path.exists() else how
    before = {"template": {}, **stored}
    changed = [f"{key}: {before.get(key)} → {value}" for key, value in how.items() if before.get(key) != value]
    if changed:
        raise SettingsError(
            f"{folder} holds a profile made with other settings ({'; '.join(changed)}): remove it to profile again"
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
    options = {"dtype": sampler.dtype, "max_length": sampler.max_length}
    with open_backend(sampler.engine, sampler.model, **options) as backend, Verifier(VERIFIERS) as verifier:
        for part in parts:
            write_parquet(_sampled(sampler, part, backend, verifier), part.path(folder))
            print(f"profiled prompts {part.start} to {part.stop}, samples {part.first} to {part.last}", flush=True)


def _sampled(sampler: Sampler, part: Part, backend: Any, verifier: Verifier) -> pd.DataFrame:
    """query, sample, correct, response_tokens, prompt_tokens of one part, in the order of `Profile`'s table."""
    questions = sampler.questions[part.start : part.stop]
    prompts_Q, samples = prompt_ids(backend.tokenizer, questions, sampler.template), part.last - part.first
    drawn = backend.sample(
        prompts_Q,
        samples,
        max_new_tokens=sampler.source.max_new_tokens,
        temperature=sampler.source.temperature,
        top_p=sampler.top_p,
        stop=stops_of(sampler.model, backend.tokenizer),
        seed=int(np.random.SeedSequence([sampler.source.seed, part.start, part.first]).generate_state(1)[0]),
    )
    answers_N = [question.answer for question in questions for _ in range(samples)]
    place_Q = np.arange(part.start, part.stop)
    return pd.DataFrame(
        {
            "query": np.repeat(place_Q, samples),
            "sample": np.tile(np.arange(part.first, part.last), len(questions)),
            "correct": [verdict.correct for verdict in verifier.check_all(drawn.texts_N, answers_N)],
            "response_tokens": drawn.tokens_N,
            "prompt_tokens": np.repeat([len(prompt) for prompt in prompts_Q], samples),
        }
    )


def _joined(source: Source, folder: Path, parts: Sequence[Part]) -> Profile:
    columns, tables = ("query", "sample", "correct", "response_tokens", "prompt_tokens"), []
    for part in parts:
        path = part.path(folder)
        tables.append(read_parquet(path, "python -m repro.paper_scale profile", columns))
        if len(tables[-1]) != (part.stop - part.start) * (part.last - part.first):
            raise Unreadable(f"{path} lacks samples: delete it and run `python -m repro.paper_scale profile`")
    table = pd.concat(tables).sort_values(["query", "sample"])
    shape = (table["query"].nunique(), table["sample"].nunique())
    correct_Q_K, tokens_Q_K, prompt_Q_K = (
        table[name].to_numpy().reshape(shape) for name in ("correct", "response_tokens", "prompt_tokens")
    )
    return Profile(source, correct_Q_K, tokens_Q_K, prompt_Q_K[:, 0])
