"""A training run's place: its base policy, its checkpoints, its tables, whether DVC or a person started it."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from repro import paths
from repro.engine.embedded import runs
from repro.policy.base import make_base_policy
from repro.policy.model import ensure_tokenizer, save_policy
from repro.settings import Settings
from repro.tasks.queries import make_pools


@dataclass(frozen=True)
class Folders:
    """`output` and `timings` are None for a run that is not kept; `fingerprint` says what a checkpoint belongs to."""

    checkpoints: Path
    fingerprint: str
    output: Path | None
    timings: Path | None


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
        print(f"no results/policy yet: pre-training one at scale {settings.scale}")
        model, _ = make_base_policy(settings.policy, make_pools(settings.task))
        save_policy(model, ensure_tokenizer(settings.policy.source), scratch)
    return scratch


def run_folders(arm: str, settings: Settings, policy: Path, output: str | None) -> Folders:
    """Where this run of `arm` keeps its things.

    A kept run resumes from checkpoints with its fingerprint: a hash of its manifest (settings, notebook, code) and of
    the policy's weights. A run that is not kept starts afresh.
    """
    settings.arm(arm)
    if output is None:
        scratch = paths.BUILD / "scratch" / f"train-{arm}-{os.getpid()}"
        return Folders(scratch, "scratch", None, None)
    manifest = paths.MANIFESTS / f"train-{arm}.json"
    if not manifest.exists():
        raise FileNotFoundError(f"{manifest} is not there yet: run `python -m repro.pipeline manifest` first")
    digest = hashlib.sha256(manifest.read_bytes())
    for path in sorted(policy.glob("*.safetensors")):
        digest.update(path.read_bytes())
    return Folders(paths.CHECKPOINTS / f"train-{arm}", digest.hexdigest(), Path(output), paths.train_timings(arm))


def save_run(tables: dict[str, pd.DataFrame], settings: Settings, folders: Folders) -> None:
    """Write the tables of all seeds, then let their checkpoints go."""
    runs.write_tables(tables, folders.output, folders.timings)
    runs.forget(settings, folders.checkpoints)
