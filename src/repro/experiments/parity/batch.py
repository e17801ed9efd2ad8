"""Every arm's first step on the embedded engine and on verl, with the same responses, in worker processes."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from repro import paths
from repro.engine.workers import map_in_workers
from repro.settings import Settings

LOG = paths.BUILD / "parity.log"


@dataclass(frozen=True)
class Job:
    """The arms that one worker compares. `profiles`: the folder of stage `profile`'s profiles, None to measure them
    again."""

    arms: list[str]
    seed: int
    settings: Settings
    policy: Path
    profiles: Path | None


def compare_batches(
    names: Sequence[str], seed: int, settings: Settings, policy: Path, profiles: Path | None
) -> pd.DataFrame:
    """A row for each arm, in order, of the comparison of its first step on verl with the embedded engine's:

    arm, same_plan, same_verdicts, same_finished, same_rollouts
    rollouts, selected, tokens               of the batch, those selected, and the tokens trained on
    other_tokens                             tokens that count on one side only
    weight_difference, logprob_difference    the largest ones; log-probabilities in nats
    loss_difference                          over the mean of |weight · advantage|
    first_gradient_error, gradient_error, step_error
                                             norm of the difference over the norm, of the first mini-batch's gradient,
                                             of all mini-batches' and of the change of the weights
    optimiser_error                          the same of that change and AdamW's of the trainer's own gradients
    """
    count = min(settings.engine.workers, len(names))
    starts = range(count)
    jobs = [Job(list(names[start::count]), seed, settings, Path(policy), profiles) for start in starts]
    LOG.parent.mkdir(parents=True, exist_ok=True)
    rows = pd.DataFrame([row for part in map_in_workers(_compare, jobs, count) for row in part])
    return rows.set_index("arm").loc[list(names)].reset_index()


def _compare(job: Job) -> list[dict[str, Any]]:
    with LOG.open("a") as log:  # verl prints a lot
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    from repro.experiments.parity.recorded import record
    from repro.experiments.parity.replayed import VerlSide, be_the_only_rank

    be_the_only_rank()
    with TemporaryDirectory() as folder:
        side = VerlSide(job.settings, job.seed, job.policy, job.profiles, Path(folder))
        return [side.replay(record(arm, job.seed, job.settings, job.policy, job.profiles)) for arm in job.arms]
