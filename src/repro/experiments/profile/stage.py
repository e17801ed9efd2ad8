"""The profiles that a study needs, measured in parallel workers: every seed's own, and those at other temperatures."""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from repro.engine.measure import measure_profile
from repro.engine.profile import Profile, Source, hash_policy, hash_queries
from repro.engine.workers import map_in_workers
from repro.files import write_json
from repro.policy.flops import FlopCounter
from repro.policy.model import load_policy
from repro.tasks.queries import Query

COUNTER = "flops.json"  # what a pass of the profiled policy costs


@dataclass(frozen=True)
class Job:
    """One profile to measure, as it is sent to a worker."""

    name: str
    policy: Path
    queries: tuple[Query, ...]
    source: Source
    samples: int
    batch_rollouts: int


def seed_name(seed: int) -> str:
    """The files of the profile that training with `seed` uses."""
    return f"seed-{seed}"


def temperature_name(temperature: float, seed: int) -> str:
    """The files of one profile of the sensitivity to temperature."""
    return f"temperature-{temperature:g}-seed-{seed}"


def list_jobs(
    policy: Path,
    queries: Sequence[Query],
    seeds: Sequence[int],
    *,
    samples: int,
    temperature: float,
    other_temperatures: Sequence[float],
    other_samples: int,
    max_new_tokens: int,
    batch_rollouts: int,
) -> list[Job]:
    """Every seed's profile of `samples` a query at training's `temperature`; then, of `other_samples`, one for every
    seed at each of `other_temperatures` (`tried`). Training's own among these is a fresh draw: the others' noise."""
    weights, pool = hash_policy(policy), hash_queries(queries)
    wanted = [(seed_name(seed), temperature, seed, samples) for seed in seeds]
    wanted += [(temperature_name(t, seed), t, seed, other_samples) for t in other_temperatures for seed in seeds]
    return [
        Job(name, policy, tuple(queries), Source(weights, pool, t, max_new_tokens, seed), number, batch_rollouts)
        for name, t, seed, number in wanted
    ]


def measure_all(jobs: Sequence[Job], workers: int) -> tuple[dict[str, Profile], dict[str, float]]:
    """Profiles and seconds by name, `workers` measured at once."""
    measured = map_in_workers(measure_one, jobs, workers)
    names = [job.name for job in jobs]
    profiles, seconds = zip(*measured, strict=True)
    return dict(zip(names, profiles, strict=True)), dict(zip(names, seconds, strict=True))


def measure_one(job: Job) -> tuple[Profile, float]:
    """One profile, and the seconds of sampling and verifying it; called in a worker."""
    model, tokenizer = load_policy(job.policy)
    started = time.process_time()
    profile = measure_profile(
        model, tokenizer, job.queries, job.source, samples=job.samples, batch_rollouts=job.batch_rollouts
    )
    return profile, time.process_time() - started


def beside(folder: Path) -> Path:
    """Where the profiles of the sensitivity to temperature are, so that a change to those trains no arm again."""
    return folder.with_name(f"{folder.name}_temperature")


def save(output: Path, policy: Path, profiles: dict[str, Profile]) -> None:
    """Every profile, and what a pass of the policy costs, for reports that do not load it."""
    for name, profile in profiles.items():
        profile.save(output if name.startswith("seed-") else beside(output), name)
    write_json(asdict(FlopCounter.of(load_policy(policy)[0])), output / COUNTER)


def save_seconds(timings: Path, jobs: Sequence[Job], seconds: dict[str, float], workers: int) -> None:
    """seconds.json: one worker's `seconds` by profile, how many worked at once, and seconds_per_sample, what one sample
    of every query takes, mean over the seeds' own profiles."""
    own = [seconds[job.name] / job.samples for job in jobs if job.name == seed_name(job.source.seed)]
    content = {"workers": workers, "seconds_per_sample": sum(own) / len(own), "seconds": seconds}
    write_json(content, timings / "seconds.json")


def tried(others: Iterable[float], usual: float) -> list[float]:
    """The temperatures of the sensitivity: `others`, and training's `usual` one for the noise, rising."""
    return sorted({*others, usual})


def load_all(
    folder: Path, seeds: Iterable[int], temperatures: Iterable[float]
) -> tuple[dict[int, Profile], dict[float, dict[int, Profile]]]:
    """({seed: its profile}, {temperature: {seed: profile}}) of what `save` wrote; see `Profile.load` for errors."""
    own = {seed: Profile.load(folder, seed_name(seed)) for seed in seeds}
    others = {t: {seed: Profile.load(beside(folder), temperature_name(t, seed)) for seed in own} for t in temperatures}
    return own, others


def load_flops(folder: Path) -> FlopCounter:
    """What a pass of the profiled policy costs."""
    return FlopCounter(**json.loads((folder / COUNTER).read_text()))


def load_seconds(timings: Path) -> float | None:
    """seconds_per_sample of `save_seconds`; None where nothing was timed here."""
    path = timings / "seconds.json"
    return json.loads(path.read_text())["seconds_per_sample"] if path.exists() else None
