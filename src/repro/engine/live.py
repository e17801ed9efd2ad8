"""Metrics of every run while it trains, in DVCLive's files and under verl's names; off unless it is asked for.

`REPRO_LIVE=live dvc repro report@zvf` writes live/zvf/seed-0 and so on, of runs that are missing. In Python it is
`train(settings, watch=record)` within `with Record("live") as record`; another tracker may take the same figures, as
`watch` and with `metrics`.
"""

import contextlib
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from repro.engine.progress import Progress, Step
from repro.errors import Refused

if TYPE_CHECKING:
    from dvclive import Live

VARIABLE = "REPRO_LIVE"
MEASURED = {  # columns of the table `steps`, as verl calls them; what it has no name for is the arm's, as in repro.verl
    "loss": "actor/loss",
    "gradient_norm": "actor/grad_norm",
    "clipped": "actor/pg_clipfrac",
    "entropy": "actor/entropy",
    "kl": "actor/kl_loss",
    "accuracy": "critic/score/mean",
    "reward": "critic/rewards/mean",
    "response_tokens": "response_length/mean",
    "truncated": "response_length/clip_ratio",
    "groups_without_signal": "arm/groups_without_signal",
    "refill_rounds": "arm/refill_rounds",
    "distinct_rollouts": "arm/distinct_rollouts",
    "effective_sample_size": "arm/effective_sample_size",
    "generated_tokens": "arm/generated_tokens",
    "trained_tokens": "arm/trained_tokens",
    "paper_tokens": "arm/paper_tokens",
    "flops": "arm/flops",
}
EVALUATED = {"response_tokens": "val-aux/heldout/response_length/mean", "truncated": "val-aux/heldout/clip_ratio"}


class NoLive(Refused):
    """One sentence: DVCLive is not installed."""


def metrics(step: Step) -> dict[str, float]:
    """What was measured at `step`, by verl's names; without figures that are not finite, as in a skipped step."""
    named = {name: step.measured[column] for column, name in MEASURED.items() if column in step.measured}
    if step.accuracy is not None:
        named[f"val-core/heldout/acc/mean@{step.evaluated.get('samples', 1)}"] = step.accuracy
        named |= {name: step.evaluated[column] for column, name in EVALUATED.items() if column in step.evaluated}
    return {name: float(value) for name, value in named.items() if math.isfinite(value)}


class Record:
    """Keeps metrics of every run in `folder`/ARM/seed-N with DVCLive: a context manager, and a `watch` of `train`."""

    def __init__(self, folder: str | Path):
        try:
            import dvclive  # noqa: F401
        except ImportError:
            raise NoLive("live metrics need DVCLive: install it with `make extra-live`, or unset REPRO_LIVE") from None
        self.folder, self._runs = Path(folder), {}

    def __call__(self, event: Progress) -> None:
        if isinstance(event, Step):
            run = self._live(event.arm, event.seed)
            run.step = event.step
            for name, value in metrics(event).items():
                run.log_metric(name, value)
            run.make_summary()

    def _live(self, arm: str, seed: int) -> "Live":
        if (arm, seed) not in self._runs:
            from dvclive import Live

            place = self.folder / arm / f"seed-{seed}"
            shutil.rmtree(place, ignore_errors=True)  # of an earlier run
            # Neither a report nor an experiment of DVC's, nor an entry in the project's dvc.yaml: only the figures.
            self._runs[arm, seed] = Live(str(place), report=None, save_dvc_exp=False, dvcyaml=None)
        return self._runs[arm, seed]

    def __enter__(self) -> "Record":
        return self

    def __exit__(self, *error: object) -> None:
        for run in self._runs.values():
            run.end()


@contextlib.contextmanager
def from_environment() -> Iterator[Record | None]:
    """The record in the folder that REPRO_LIVE names, relative to the project's root; None where it is not set."""
    from repro.paths import ROOT

    if folder := os.environ.get(VARIABLE):
        with Record(ROOT / folder) as record:
            yield record
    else:
        yield None
