"""A training run's place: its base policy, its checkpoints, its tables, whether DVC or a person started it."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from repro import paths
from repro.engine.profile import hash_policy
from repro.engine.runs import Run, forget, tables_of, train_runs, write_results
from repro.pipeline.lock import recorded
from repro.settings import Settings


def policy_for(settings: Settings, output: str | None) -> Path:
    """The folder of the base policy: stage `policy`'s, or, for a notebook run by itself, one pre-trained on the spot.

    FileNotFoundError with the mend when a stage runs before `policy`.
    """
    made = paths.POLICY / "model"
    if (made / "config.json").exists():
        return made
    if output is not None:
        raise FileNotFoundError(f"{made} is not there yet: run `dvc repro policy` first")
    scratch = paths.BUILD / "scratch" / f"policy-{settings.scale}"
    if not (scratch / "config.json").exists():
        from repro.policy.base import make_base_policy
        from repro.policy.model import ensure_tokenizer, save_policy
        from repro.tasks.queries import make_pools

        print(f"no results/policy yet: pre-training one at scale {settings.scale}")
        model, _ = make_base_policy(settings.policy, make_pools(settings.task))
        save_policy(model, ensure_tokenizer(settings.policy.source), scratch)
    return scratch


def start_evaluation(groups: pd.DataFrame, settings: Settings) -> dict[str, float] | None:
    """The base policy's accuracy from its groups on the held-out queries
    (repro.experiments.base_policy.groups.sample_groups): one measurement, with many samples, for all arms and seeds.
    None where they were sampled at another temperature than evaluations are."""
    if settings.evaluation.temperature != settings.engine.temperature:
        return None
    return {
        "samples": len(groups) // groups["query"].nunique(),
        "accuracy": float(groups["correct"].mean()),
        "response_tokens": float(groups["response_tokens"].mean()),
        "truncated": float((~groups["finished"]).mean()),
    }


def train_arm(
    arm: str, settings: Settings, policy: Path, output: str | None, say: Callable[[str], None] = print
) -> dict[str, pd.DataFrame]:
    """Train every seed of `arm` and return its tables; write them to `output`, and the seconds beside, if it is kept.

    A kept run resumes from checkpoints with its fingerprint: a hash of its manifest (settings, notebook, code), of the
    policy's weights and, for an arm with a profile, of the profiles. In a pipeline, free workers go on with the next
    arms that are out of date. A run that is not kept starts afresh and works for itself alone.
    """
    settings.arm(arm)
    groups = paths.POLICY / "rollouts.parquet"
    kept = output is not None
    start = start_evaluation(pd.read_parquet(groups), settings) if kept and groups.exists() else None
    if not kept:
        return _train({arm: None}, settings, policy, start, paths.BUILD / "scratch" / f"train-{os.getpid()}", say)[arm]
    of_policy = hash_policy(policy)
    own = _runs({arm: _fingerprint(f"train-{arm}", of_policy)}, settings, policy, start, paths.CHECKPOINTS)
    later = _runs(_out_of_date(arm, settings, of_policy), settings, policy, start, paths.CHECKPOINTS)
    logs = list(train_runs(own, later, say).values())
    write_results(own, logs, Path(output), paths.train_timings(arm))
    forget(own)
    return tables_of(logs)


def train_regime(
    mix: str,
    settings: Settings,
    policy: Path,
    output: str | None,
    groups: pd.DataFrame | None = None,
) -> dict[str, dict[str, pd.DataFrame]]:
    """Train the arms of `regimes` on one mix, all arms and seeds at once; {arm: tables}.

    `groups`: the base policy's on this mix's held-out queries, the evaluation that every run starts from. An arm with a
    profile measures its own.
    """
    own = settings.with_mix(mix)
    start = start_evaluation(groups, own) if groups is not None else None
    if output is None:
        scratch = paths.BUILD / "scratch" / f"regime-{os.getpid()}"
        return _train(dict.fromkeys(own.regimes.arms), own, policy, start, scratch, print)
    fingerprints = dict.fromkeys(own.regimes.arms, _fingerprint(f"regime-{mix}", hash_policy(policy)))
    runs = _runs(fingerprints, own, policy, start, paths.CHECKPOINTS / f"regime-{mix}", profiled=False)
    logs = train_runs(runs)
    for arm in own.regimes.arms:
        mine = [run for run in runs if run.arm == arm]
        folder, timings = Path(output) / arm, paths.regime_timings(mix) / arm
        write_results(mine, [logs[run.arm, run.seed] for run in mine], folder, timings)
    forget(runs)
    return {arm: tables_of([logs[run.arm, run.seed] for run in runs if run.arm == arm]) for arm in own.regimes.arms}


def _train(
    arms: dict[str, str | None], settings: Settings, policy: Path, start: Any, scratch: Path, say: Callable[[str], None]
) -> dict[str, dict[str, pd.DataFrame]]:
    """Runs that are not kept: their checkpoints go with them."""
    shutil.rmtree(scratch, ignore_errors=True)
    runs = _runs(dict.fromkeys(arms, "scratch"), settings, policy, start, scratch, profiled=False)
    try:
        logs = train_runs(runs, say=say)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return {arm: tables_of([logs[run.arm, run.seed] for run in runs if run.arm == arm]) for arm in arms}


def _runs(
    arms: dict[str, str], settings: Settings, policy: Path, start: Any, checkpoints: Path, profiled: bool = True
) -> list[Run]:
    """Every seed of `arms` ({arm: fingerprint}). `profiled`: arms with a profile take stage `profile`'s."""
    runs = []
    for arm, fingerprint in arms.items():
        profiles, seconds = None, 0.0
        if profiled and settings.arm(arm).profile:
            profiles, seconds = paths.PROFILE, profile_seconds(paths.PROFILE_TIMINGS)
            fingerprint += _hash_files(sorted(profiles.glob("seed-*.parquet")))
        for seed in settings.seeds_of(arm):
            folder = checkpoints / f"train-{arm}" / f"seed-{seed}"
            runs.append(Run(arm, seed, settings, policy, start, folder, fingerprint, profiles, seconds))
    return runs


def profile_seconds(timings: Path) -> float:
    """What one sample of every training query took in stage `profile`, mean over seeds; 0 where that is not known."""
    path = timings / "seconds.json"
    return float(json.loads(path.read_text())["seconds_per_sample"]) if path.exists() else 0.0


def _hash_files(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _fingerprint(stage: str, of_policy: str) -> str:
    manifest = paths.MANIFESTS / f"{stage}.json"
    if not manifest.exists():
        raise FileNotFoundError(f"{manifest} is not there yet: run `python -m repro.pipeline manifest` first")
    return _hash_files([manifest]) + of_policy


def _out_of_date(arm: str, settings: Settings, of_policy: str) -> dict[str, str]:
    """{arm: fingerprint} of the arms after `arm` in params.yaml, then of those before it, that dvc.lock does not hold
    as they are now: those that a `dvc repro` will train."""
    names = list(settings.arms)
    place = names.index(arm)
    manifests = {name: paths.MANIFESTS / f"train-{name}.json" for name in names[place + 1 :] + names[:place]}
    texts = {name: manifest.read_text() for name, manifest in manifests.items() if manifest.exists()}
    done = recorded(texts.values())
    return {name: _fingerprint(f"train-{name}", of_policy) for name, held in zip(texts, done, strict=True) if not held}
