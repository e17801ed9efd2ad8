"""What the policies of finished runs score at several temperatures, and before training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from repro.engine.checkpoint import Checkpoints
from repro.engine.evaluate import evaluate
from repro.engine.snapshots import BASE, Checkpoint, load_checkpoint
from repro.engine.workers import map_in_workers
from repro.runs.key import Asked
from repro.settings import Settings
from repro.tasks.queries import make_pools


@dataclass(frozen=True)
class Job:
    """One policy at one temperature."""

    checkpoint: Checkpoint
    temperature: float
    samples: int


def at_temperatures(runs: Sequence[tuple[Asked, Path]], samples: Mapping[float, int]) -> list[pd.DataFrame]:
    """For each run, and the folder that it has kept its last weights in, a row per temperature and held-out query:
    temperature, query, family, samples, successes, tokens, truncated. `samples`: of a query, by temperature."""
    checkpoints = [
        Checkpoint(one.arm, one.seed, step, one.policy, weights, one.settings)
        for one, folder in runs
        for step, weights in [max(Checkpoints(folder, None).snapshots().items())]
    ]
    return _measure(checkpoints, samples)


def of_base(policy: Path, settings: Settings, samples: Mapping[float, int]) -> pd.DataFrame:
    """The same of the base policy."""
    return _measure([Checkpoint(BASE, 0, 0, policy, None, settings)], samples)[0]


def _measure(checkpoints: Sequence[Checkpoint], samples: Mapping[float, int]) -> list[pd.DataFrame]:
    jobs = [Job(checkpoint, *entry) for checkpoint in checkpoints for entry in samples.items()]
    parts = list(map_in_workers(_sample, jobs, checkpoints[0].settings.engine.workers))
    size = len(samples)
    return [pd.concat(parts[first : first + size], ignore_index=True) for first in range(0, len(parts), size)]


def _sample(job: Job) -> pd.DataFrame:
    settings = job.checkpoint.settings
    model, tokenizer = load_checkpoint(job.checkpoint)
    queries = make_pools(settings.task, pretraining=False).evaluation
    counts = evaluate(
        model,
        tokenizer,
        queries,
        samples=job.samples,
        batch_rollouts=settings.evaluation.batch_rollouts,
        max_new_tokens=settings.engine.max_new_tokens,
        temperature=job.temperature,
        seed=job.checkpoint.seed,
    )
    known = {"query": range(len(queries)), "family": [query.family for query in queries], "samples": job.samples}
    return pd.DataFrame({"temperature": job.temperature, **known, **counts})
