"""Every arm's first step on the embedded engine and on a trainer, with the same responses, in worker processes."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from repro import paths
from repro.engine.workers import map_in_workers
from repro.settings import Settings, SettingsError

LOG = paths.BUILD / "parity.log"


@dataclass(frozen=True)
class Job:
    """The arms that one worker compares on `trainer`, "verl" or "trl". `profiles`: the folder of stage `profile`'s
    profiles, None to measure them again."""

    trainer: str
    arms: list[str]
    seed: int
    settings: Settings
    policy: Path
    profiles: Path | None


def arms_for_trl(settings: Settings) -> dict[str, str]:
    """{arm: why ArmTrainer refuses it, "" where it does not}, in the order of params.yaml; verl's trainer takes all.
    UnsupportedTRL where TRL is missing."""
    from repro.trl.refused import require_arm

    reasons = {}
    for name, arm in settings.all_arms.items():
        try:
            require_arm(arm, profile=True)  # there will be one
            reasons[name] = ""
        except SettingsError as error:
            reasons[name] = str(error)
    return reasons


def compare_batches(
    trainer: str, names: Sequence[str], seed: int, settings: Settings, policy: Path, profiles: Path | None
) -> pd.DataFrame:
    """A row for each arm, in order, of the comparison of its first step on `trainer` with the embedded engine's:

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
    jobs = [Job(trainer, list(names[start::count]), seed, settings, Path(policy), profiles) for start in starts]
    LOG.parent.mkdir(parents=True, exist_ok=True)
    rows = pd.DataFrame([row for part in map_in_workers(_compare, jobs, count) for row in part])
    return rows.set_index("arm").loc[list(names)].reset_index()


def _compare(job: Job) -> list[dict[str, Any]]:
    with LOG.open("a") as log:  # both trainers print a lot
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    with TemporaryDirectory() as folder:
        side = {"verl": _verl, "trl": _trl}[job.trainer](job, Path(folder))
        from repro.experiments.parity.recorded import record

        return [side.replay(record(arm, job.seed, job.settings, job.policy, job.profiles)) for arm in job.arms]


def _verl(job: Job, folder: Path) -> Any:
    from repro.experiments.parity.replayed import VerlSide, be_the_only_rank

    be_the_only_rank()
    return VerlSide(job.settings, job.seed, job.policy, job.profiles, folder)


def _trl(job: Job, folder: Path) -> Any:
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"  # TRL counts its trainers otherwise; read when it is imported
    from repro.experiments.parity.on_trl import TRLSide

    return TRLSide(job.settings, job.seed, job.policy, job.profiles, folder)
