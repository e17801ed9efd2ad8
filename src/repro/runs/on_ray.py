"""Train runs on the machines of a Ray cluster, one a core, where they share the project's folder. verl brings Ray."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle

from repro.engine.crew import PATIENCE
from repro.engine.run import Run, train_one
from repro.engine.runs import checkpoints_of
from repro.verl.start import patiently


def train_runs(runs: Sequence[Run], say: Callable[[str], Any] = print, watch: Any = None) -> None:
    """Train every run on the cluster in RAY_ADDRESS, or on one of this machine; what is cut off is taken up by the next
    call. The first run that fails ends it."""
    patiently(lambda: _train_all(runs, say))


def _train_all(runs: Sequence[Run], say: Callable[[str], Any]) -> None:
    import ray

    if not ray.is_initialized():
        ray.init(address=os.environ.get("RAY_ADDRESS"), log_to_driver=False, include_dashboard=False)
    train = ray.remote(num_cpus=1)(_train)
    waiting = [train.remote(cloudpickle.dumps(run)) for run in runs]
    while waiting:
        [ended], waiting = ray.wait(waiting)
        say(f"{ray.get(ended)}, {len(waiting)} of {len(runs)} left")


def _train(pickled: bytes) -> str:
    """On a machine of the cluster, in a process of one thread."""
    import torch

    torch.set_num_threads(1)
    run: Run = cloudpickle.loads(pickled)
    checkpoints = checkpoints_of(run)
    while checkpoints.finished() is None:
        with checkpoints.held() as ours:
            if ours and checkpoints.finished() is None:
                train_one(run, checkpoints, lambda *_: None)
        if not ours:
            time.sleep(PATIENCE)
    return f"{run.arm}, seed {run.seed}"
