"""Every checkpoint of the study, probed in parallel worker processes of one thread each."""

from pathlib import Path

import pandas as pd

from repro.engine.workers import map_in_workers
from repro.experiments.fidelity.probe import BASE, Checkpoint, probe
from repro.paths import train_results
from repro.settings import Settings


def list_checkpoints(settings: Settings, policy: Path) -> list[Checkpoint]:
    """The base policy once per seed, then every snapshot of `fidelity.arms`, arm by arm."""
    found = [Checkpoint(BASE, seed, 0, policy, None, settings) for seed in settings.seeds]
    for arm in settings.fidelity.arms:
        for seed in settings.seeds_of(arm):
            for step in settings.snapshots_of(arm):
                weights = train_results(arm) / "snapshots" / f"seed-{seed}-step-{step}.safetensors"
                found.append(Checkpoint(arm, seed, step, policy, weights, settings))
    return found


def probe_all(checkpoints: list[Checkpoint], workers: int) -> dict[str, pd.DataFrame]:
    """The tables of all checkpoints, in their order; see repro.experiments.fidelity.probe."""
    parts = map_in_workers(probe, checkpoints, workers)
    return {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}
