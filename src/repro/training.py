"""Train arms: the function behind every training stage, tutorial and notebook cell."""

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from repro import arms, paths
from repro.engine.crew import pipeline_process, shared_events
from repro.engine.profile import hash_policy
from repro.engine.progress import Watch
from repro.engine.run import Run
from repro.engine.runs import as_job, checkpoints_of, forget, tables_of, train_runs, write_results
from repro.files import NotThere, Unreadable
from repro.policy.model import SHIPPED
from repro.settings import Settings
from repro.stored import Amount, read_stored

GROUPS = ("query", "correct", "response_tokens", "finished")  # columns of rollouts.parquet that are read here


@dataclass(frozen=True)
class Kept:
    """Where a stage stores its runs: {arm: folder} of data and of timings, the folder of checkpoints, and {arm:
    manifest} of what the runs depend on. `profiles`: the folder of profiles for arms with a profile, None to let each
    run measure its own."""

    data: Mapping[str, Path]
    timings: Mapping[str, Path]
    checkpoints: Path
    manifests: Mapping[str, Path]
    profiles: Path | None = None


def train(
    settings: Settings,
    names: Sequence[str] | None = None,
    *,
    policy: Path | None = None,
    start: dict[str, float] | None = None,
    kept: Kept | None = None,
    later: Kept | None = None,
    say: Callable[[str], None] = print,
    watch: Watch | None = None,
) -> dict[str, pd.DataFrame]:
    """Train every seed of the arms `names` (default: all arms of the settings), `engine.workers` runs at a time, and
    return their tables with the column `arm` in front: steps, evaluations, questions, rollouts, selection, seconds.

    An arm's parts are names or functions: see `Settings.with_arms`. policy: the folder of the base policy; by default
    the pipeline's, or the one shipped with the project. start: the base policy's evaluation, if known
    (`start_evaluation`). kept: where a stage writes the tables of each arm; its runs resume from checkpoints with the
    same fingerprint, a hash of the arm's manifest, the policy's weights and the profiles. later: runs the workers
    continue with afterwards. Without `kept` nothing stays on disk. say, watch: are told of progress, in lines and
    in events (`repro.engine.runs.train_runs`). SettingsError before the first step if an arm cannot be built.
    """
    names, policy = list(names or settings.arms), policy or policy_for()
    if kept is None:
        arms.check(settings, names)
        folder = paths.BUILD / "scratch" / f"train-{os.getpid()}"
        shutil.rmtree(folder, ignore_errors=True)
        runs = _runs(settings, {name: "scratch" for name in names}, policy, start, folder, None)
        try:
            logs = train_runs(runs, say=say, watch=watch)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    else:
        of_policy = hash_policy(policy)
        runs, ahead = (_kept_runs(settings, place, policy, of_policy, start) for place in (kept, later))
        logs = train_runs(runs, ahead, say, watch)
        for name in names:
            own = [run for run in runs if run.arm == name]
            write_results(own, [logs[run.arm, run.seed] for run in own], kept.data[name], kept.timings[name])
        forget(runs)
    return _tables(runs, logs, names)


def begin(settings: Settings, kept: Kept, policy: Path, start: dict[str, float] | None) -> None:
    """Let the workers that serve the `dvc repro` around this process begin with the runs of `kept`, for the stages to
    come; return at once. Where they cannot be started, those stages train as they would have."""
    runs = _kept_runs(settings, kept, policy, hash_policy(policy), start)
    missing = [as_job(run) for run in runs if checkpoints_of(run).finished() is None]
    with suppress(ConnectionError):
        for _ in shared_events(pipeline_process(), settings.engine.workers, [], missing):
            pass


def _tables(runs: Sequence[Run], logs: Mapping, names: Sequence[str]) -> dict[str, pd.DataFrame]:
    parts: dict[str, list[pd.DataFrame]] = {}
    for name in names:
        for table, frame in tables_of([logs[run.arm, run.seed] for run in runs if run.arm == name]).items():
            frame.insert(0, "arm", name)
            parts.setdefault(table, []).append(frame)
    return {table: pd.concat(frames, ignore_index=True) for table, frames in parts.items()}


def _kept_runs(settings: Settings, kept: Kept | None, policy: Path, of_policy: str, start: Any) -> list[Run]:
    if kept is None:
        return []
    fingerprints = {name: hash_files([manifest]) + of_policy for name, manifest in kept.manifests.items()}
    return _runs(settings, fingerprints, policy, start, kept.checkpoints, kept.profiles)


def _runs(
    settings: Settings, fingerprints: Mapping[str, str], policy: Path, start: Any, folder: Path, profiles: Path | None
) -> list[Run]:
    """Every seed of the arms in `fingerprints`."""
    runs = []
    for name, fingerprint in fingerprints.items():
        arm, own, seconds = settings.arm(name), None, 0.0
        if profiles and arm.profile:
            own, seconds = profiles, profile_seconds(paths.PROFILE_TIMINGS)
            fingerprint += hash_files(sorted(profiles.glob("seed-*.parquet")))
        method = arms.build(name, arm)
        for seed in settings.seeds_of(name):
            place = folder / f"train-{name}" / f"seed-{seed}"
            runs.append(Run(name, seed, method, settings, policy, start, place, fingerprint, own, seconds))
    return runs


def policy_for(output: Any = None) -> Path:
    """The folder of the base policy: stage `policy`'s, or outside the pipeline the one shipped with the project.

    FileNotFoundError with the remedy if a stage (which has an `output`) runs before `policy`.
    """
    made = paths.POLICY / "model"
    if (made / "config.json").exists():
        return made
    if output is not None:
        raise NotThere(f"{made} is not there yet: run `dvc repro policy` first")
    return SHIPPED


def start_evaluation(groups: pd.DataFrame, settings: Settings) -> dict[str, float] | None:
    """The base policy's accuracy from its groups on the held-out queries (repro.engine.groups.sample_groups): a single
    measurement with many samples for all arms and seeds. None if evaluations use another temperature."""
    if settings.evaluation.temperature != settings.engine.temperature:
        return None
    if groups.empty:
        raise Unreadable("the base policy's groups are empty: delete results/policy and run `dvc repro policy`")
    return {
        "samples": len(groups) // groups["query"].nunique(),
        "accuracy": float(groups["correct"].mean()),
        "response_tokens": float(groups["response_tokens"].mean()),
        "truncated": float((~groups["finished"]).mean()),
    }


def profile_seconds(timings: Path) -> float:
    """Seconds for one sample of every training query in stage `profile`, mean over seeds; 0 if unknown."""
    path = timings / "seconds.json"
    if not path.exists():
        return 0.0
    name = "seconds_per_sample"
    return float(read_stored(path, "delete it and run `dvc repro profile`", {name: Amount})[name])


def hash_files(files: Sequence[Path]) -> str:
    """Hash of the bytes of several files; FileNotFoundError with the remedy for a missing manifest."""
    digest = hashlib.sha256()
    for path in files:
        if path.parent == paths.MANIFESTS and not path.exists():
            raise NotThere(f"{path} is not there yet: run `python -m repro.pipeline manifest` first")
        digest.update(path.read_bytes())
    return digest.hexdigest()
