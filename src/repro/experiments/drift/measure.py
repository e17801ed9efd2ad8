"""Profile every checkpoint of training twice, next to the profile that the plan was made from.

Twice, because one profile cannot separate drift from its own noise: the second shows how far two profiles of the same
policy agree. The base policy is profiled again too; what changes there is noise alone. Axes: Q queries.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from repro.engine.measure import measure_profile
from repro.engine.profile import Profile, ProfileError, Source, hash_policy, hash_queries
from repro.engine.snapshots import Checkpoint, load_checkpoint, require_weights
from repro.engine.workers import map_in_workers
from repro.settings import Settings
from repro.tasks.queries import Query, make_pools

STREAM = 3  # keeps these draws apart from those of training and of other experiments with the same seed and step


def measure_drift(checkpoints: Sequence[Checkpoint], profiles: Path, samples: int, workers: int) -> pd.DataFrame:
    """One row per checkpoint and training query, in order: arm, seed, step, query (its index in the pool), family,
    samples (K), and the successes among K samples of

    initial   the base policy: the first K samples of seed-<seed> in the folder `profiles`, which the plans used
    after     the checkpoint's policy
    again     the same, independent of `after`

    ProfileError if a profile is of another policy, other queries or another temperature, or has fewer samples than K;
    FileNotFoundError names a checkpoint or a profile that is missing.
    """
    require_weights(checkpoints)
    pool = _pool(checkpoints[0].settings)
    initial: dict[int, np.ndarray] = {}
    for point in checkpoints:
        if point.seed not in initial:
            initial[point.seed] = _initial(point, pool, profiles, samples)
    measured = map_in_workers(_profile_twice, [(point, samples) for point in checkpoints], workers)
    frames = []
    for point, (after_Q, again_Q) in zip(checkpoints, measured, strict=True):
        columns = {
            "arm": point.arm,
            "seed": point.seed,
            "step": point.step,
            "query": np.arange(len(pool)),
            "family": [query.family for query in pool],
            "samples": samples,
            "initial": initial[point.seed],
            "after": after_Q,
            "again": again_Q,
        }
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


def _initial(point: Checkpoint, pool: list[Query], profiles: Path, samples: int) -> np.ndarray:
    """successes_Q in the profile that training with the checkpoint's seed used."""
    source = _source(point, pool, hash_policy(point.policy))
    profile = Profile.load(profiles, f"seed-{point.seed}").check(source).first(samples)
    if len(profile.prompt_tokens_Q) != len(pool):
        raise ProfileError(
            f"the profile of seed {point.seed} has {len(profile.prompt_tokens_Q)} queries, but {len(pool)} are trained "
            "on: run `dvc repro profile`"
        )
    return profile.successes_Q


def _profile_twice(job: tuple[Checkpoint, int]) -> tuple[np.ndarray, np.ndarray]:
    """(after_Q, again_Q) of one checkpoint; runs in a worker, a function of its argument alone."""
    point, samples = job
    model, tokenizer = load_checkpoint(point)
    pool = _pool(point.settings)
    profile = measure_profile(
        model,
        tokenizer,
        pool,
        _source(point, pool, policy=""),
        samples=2 * samples,
        batch_rollouts=point.settings.evaluation.batch_rollouts,
    )
    return profile.correct_Q_K[:, :samples].sum(1), profile.correct_Q_K[:, samples:].sum(1)


def _source(point: Checkpoint, pool: list[Query], policy: str) -> Source:
    words = np.random.SeedSequence([point.seed, point.step, STREAM]).generate_state(1, np.uint64)
    engine, seed = point.settings.engine, int(words[0] >> np.uint64(1))
    return Source(policy, hash_queries(pool), engine.temperature, engine.max_new_tokens, seed)


def _pool(settings: Settings) -> list[Query]:
    return make_pools(settings.task, pretraining=False).train
