"""Measure the profiles that the study needs, every seed's, in parallel workers."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from repro.engine.measure import measure_profile
from repro.engine.workers import map_in_workers
from repro.files import write_json
from repro.policy.adapters import load_learner
from repro.policy.flops import FlopCounter
from repro.policy.model import load_policy
from repro.protocol.profile import Profile, Source, hash_policy, hash_queries
from repro.settings import Engine, Settings
from repro.stored import Size, read_stored
from repro.tasks.queries import Query

COUNTER = "flops.json"  # the FLOPs of a forward pass of the profiled policy
COUNTED = {field.name: Size for field in fields(FlopCounter)}


@dataclass(frozen=True)
class Job:
    """One profile to measure; `name` is that of its files."""

    name: str
    policy: Path
    engine: Engine
    queries: tuple[Query, ...]
    source: Source
    samples: int
    batch_rollouts: int


def list_jobs(settings: Settings, policy: Path, queries: Sequence[Query]) -> list[Job]:
    """Every seed's profile, at training's temperature."""
    engine, weights, pool = settings.engine, hash_policy(policy), hash_queries(queries)
    return [
        Job(
            f"seed-{seed}",
            policy,
            engine,
            tuple(queries),
            Source(weights, pool, engine.temperature, engine.max_new_tokens, seed),
            settings.profile.samples,
            settings.evaluation.batch_rollouts,
        )
        for seed in settings.profiled_seeds
    ]


def measure_all(jobs: Sequence[Job], workers: int) -> tuple[dict[str, Profile], dict[str, float]]:
    """Profiles and their CPU seconds by name, `workers` measured at once."""
    profiles, seconds = zip(*map_in_workers(measure_one, jobs, workers), strict=True)
    names = [job.name for job in jobs]
    return dict(zip(names, profiles, strict=True)), dict(zip(names, seconds, strict=True))


def measure_one(job: Job) -> tuple[Profile, float]:
    """One profile, and the CPU seconds of sampling and verifying it; runs in a worker."""
    model, tokenizer = load_learner(job.policy, job.engine)
    started = time.process_time()
    profile = measure_profile(
        model, tokenizer, job.queries, job.source, samples=job.samples, batch_rollouts=job.batch_rollouts
    )
    return profile, time.process_time() - started


def save(output: Path, policy: Path, profiles: dict[str, Profile]) -> None:
    """Every profile, and the FLOP counter of the policy, so that reports need not load the model."""
    for name, profile in profiles.items():
        profile.save(output, name)
    write_json(asdict(FlopCounter.of(load_policy(policy)[0])), output / COUNTER)


def save_seconds(timings: Path, jobs: Sequence[Job], seconds: dict[str, float], workers: int) -> None:
    """seconds.json: `seconds` by profile, the number of workers, and seconds_per_sample, the time of one sample of
    every query, mean over the profiles."""
    per_sample = [seconds[job.name] / job.samples for job in jobs]
    content = {"workers": workers, "seconds_per_sample": sum(per_sample) / len(per_sample), "seconds": seconds}
    write_json(content, timings / "seconds.json")


def load_profiles(folder: Path, seeds: Iterable[int]) -> dict[int, Profile]:
    """{seed: profile} of what `save` wrote; see `Profile.load` for errors."""
    return {seed: Profile.load(folder, f"seed-{seed}") for seed in seeds}


def load_flops(folder: Path) -> FlopCounter:
    """The FLOP counter of the profiled policy."""
    return FlopCounter(**read_stored(folder / COUNTER, "delete it and run `dvc repro profile`", COUNTED))
