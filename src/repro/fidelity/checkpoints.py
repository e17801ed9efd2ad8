"""Every checkpoint of the study, probed in parallel worker processes of one thread each."""

import os
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pandas as pd

from repro.fidelity.probe import BASE, Checkpoint, probe
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
    """The tables of all checkpoints, in their order; see repro.fidelity.probe."""
    context = get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(checkpoints)), mp_context=context, initializer=_set_up_worker) as pool:
        try:
            parts = list(pool.map(probe, checkpoints))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}


def _set_up_worker() -> None:
    import torch
    from transformers.utils import logging

    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)  # the parent was killed: nobody waits for the result

    threading.Thread(target=watch, daemon=True).start()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
