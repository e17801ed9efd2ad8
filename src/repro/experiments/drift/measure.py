"""Profiles of a policy as it trains: every checkpoint, twice, beside the profile that the plan was made of.

Twice, because one profile cannot tell drift from its own noise: the second says how far two profiles of one and the
same policy agree. The base policy is profiled anew too; what changes there is noise alone.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from repro.engine.measure import measure_profile
from repro.engine.profile import Profile, ProfileError, Source, hash_policy, hash_queries
from repro.engine.workers import map_in_workers
from repro.experiments.fidelity.probe import BASE, Checkpoint, load_checkpoint
from repro.experiments.profile.stage import seed_name
from repro.paths import train_results
from repro.settings import Settings
from repro.tasks.queries import Query, make_pools

STREAM = 3  # apart from the random numbers of training and of other probes with the same seed and step


def list_checkpoints(settings: Settings, policy: Path) -> list[Checkpoint]:
    """The base policy once per seed, then every snapshot of `drift.arms`, arm by arm; all with the common seeds."""
    drift = settings.drift
    found = [Checkpoint(BASE, seed, 0, policy, None, settings) for seed in settings.seeds]
    for arm in drift.arms:
        for seed in settings.seeds:
            for step in range(drift.snapshot_every, settings.engine.steps + 1, drift.snapshot_every):
                weights = train_results(arm) / "snapshots" / f"seed-{seed}-step-{step}.safetensors"
                found.append(Checkpoint(arm, seed, step, policy, weights, settings))
    return found


def measure_drift(checkpoints: Sequence[Checkpoint], profiles: Path, samples: int, workers: int) -> pd.DataFrame:
    """One row per checkpoint and training query, checkpoints in their order: arm, seed, step, query (its place in the
    pool), family, samples (K), and successes among K samples each of

    initial   the profile of the base policy with the checkpoint's seed: the first K samples of seed-<seed> in the
              folder `profiles`, which is what the plans of that seed knew
    after     a profile of the checkpoint's policy
    again     another one, independent of `after`

    ProfileError if a profile is of another policy, other queries or another temperature, or has fewer samples than K;
    FileNotFoundError names a checkpoint or a profile that is missing.
    """
    missing = [point for point in checkpoints if point.weights is not None and not point.weights.exists()]
    if missing:  # said before minutes are spent on the others
        raise FileNotFoundError(f"{missing[0].weights} is not there yet: run `dvc repro train@{missing[0].arm}` first")
    pool, initial = _pool(checkpoints[0].settings), {}
    for point in checkpoints:
        if point.seed not in initial:
            source = _source(point, pool, hash_policy(point.policy))
            profile = Profile.load(profiles, seed_name(point.seed)).check(source).first(samples)
            if len(profile.prompt_tokens_Q) != len(pool):
                raise ProfileError(
                    f"the profile of seed {point.seed} is of {len(profile.prompt_tokens_Q)} queries, not of all "
                    f"{len(pool)} that are trained on: profile anew with `dvc repro profile`"
                )
            initial[point.seed] = profile.successes_Q
    found = map_in_workers(_profile_twice, [(point, samples) for point in checkpoints], workers)
    families = [query.family for query in pool]
    frames = []
    for point, (after_Q, again_Q) in zip(checkpoints, found, strict=True):
        where = {"arm": point.arm, "seed": point.seed, "step": point.step}
        what = {"query": np.arange(len(pool)), "family": families, "samples": samples}
        counts = {"initial": initial[point.seed], "after": after_Q, "again": again_Q}
        frames.append(pd.DataFrame({**where, **what, **counts}))
    return pd.concat(frames, ignore_index=True)


def _profile_twice(job: tuple[Checkpoint, int]) -> tuple[np.ndarray, np.ndarray]:
    """(after_Q, again_Q) of one checkpoint; called in a worker, a function of its argument alone."""
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
    return make_pools(settings.task.model_copy(update={"pretraining_queries": 1})).train
