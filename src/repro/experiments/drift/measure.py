"""Profile every checkpoint of training twice, next to the profile that the plan was made from.

Twice, because one profile cannot separate drift from its own noise: the second shows how far two profiles of the same
policy agree. Of the base policy two further profiles are taken from the samples that stage `profile` drew and the plans
did not use; what changes there is noise alone. Axes: Q queries.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from repro.engine.measure import measure_profile
from repro.engine.snapshots import Checkpoint, load_checkpoint, require_weights
from repro.engine.workers import map_in_workers
from repro.protocol.profile import Profile, ProfileError, Source, hash_policy, hash_queries
from repro.settings import Settings
from repro.tasks.queries import Query, make_pools

STREAM = 3  # keeps these draws apart from those of training and of other experiments with the same seed and step


def measure_drift(checkpoints: Sequence[Checkpoint], profiles: Path, samples: int, workers: int) -> pd.DataFrame:
    """One row per checkpoint and training query, in order: arm, seed, step, query (its index in the pool), family,
    samples (K), and the successes among K samples of

    initial   the base policy: the first K samples of seed-<seed> in the folder `profiles`, which the plans used
    after     the checkpoint's policy; of the base policy the second K samples of that profile
    again     the same, independent of `after`; of the base policy the third K

    ProfileError if a profile is of another policy, other queries or another temperature, or has fewer than 3K samples;
    FileNotFoundError names a checkpoint or a profile that is missing.
    """
    require_weights(checkpoints)
    pool = _pool(checkpoints[0].settings)
    first = {point.seed: point for point in reversed(checkpoints)}  # a profile is of a seed's base policy, read once
    of_base = {seed: _of_base(point, pool, profiles, samples) for seed, point in first.items()}
    trained = [point for point in checkpoints if point.weights is not None]
    measured = iter(map_in_workers(_profile_twice, [(point, samples) for point in trained], workers))
    frames = []
    for point in checkpoints:
        initial_Q, *twice = of_base[point.seed]
        after_Q, again_Q = next(measured) if point.weights is not None else twice
        columns = {
            "arm": point.arm,
            "seed": point.seed,
            "step": point.step,
            "query": np.arange(len(pool)),
            "family": [query.family for query in pool],
            "samples": samples,
            "initial": initial_Q,
            "after": after_Q,
            "again": again_Q,
        }
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


def _of_base(point: Checkpoint, pool: list[Query], profiles: Path, samples: int) -> list[np.ndarray]:
    """successes_Q in the first, second and third K samples of the profile with the checkpoint's seed; of the first, the
    plans were made."""
    source = _source(point, pool, hash_policy(point.policy))
    profile = Profile.load(profiles, f"seed-{point.seed}").check(source).first(3 * samples)
    if len(profile.prompt_tokens_Q) != len(pool):
        raise ProfileError(
            f"the profile of seed {point.seed} has {len(profile.prompt_tokens_Q)} queries, but {len(pool)} are trained "
            "on: run `dvc repro profile`"
        )
    return [part_Q_K.sum(1) for part_Q_K in np.split(profile.correct_Q_K, 3, axis=1)]


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
