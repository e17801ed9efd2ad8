"""What training tells while it runs: events with fields, and the printer that makes lines of them."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.engine.crew import Event

if TYPE_CHECKING:  # a stage reads SILENCE here, and needs no torch
    from repro.engine.run import Run

SILENCE = 30.0  # seconds after which one is told that the work goes on

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


@dataclass(frozen=True)
class Step:
    """A run stands before training step `step` of about `steps`; after the last one it has ended.

    accuracy: on the held-out queries, where it was evaluated here. left: seconds until all runs have ended, None at
    the start. measured: columns of the table `steps` for the step before; evaluated: those of `evaluations`."""

    arm: str
    seed: int
    step: int
    steps: int
    accuracy: float | None = None
    left: float | None = None
    measured: Mapping[str, float] = field(default_factory=dict)
    evaluated: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        accuracy = "" if self.accuracy is None else f"  accuracy {self.accuracy:.3f}"
        left = "" if self.left is None else f", about {self.left:.0f} s left"
        of = f"/{self.steps}" if self.step <= self.steps else ""  # a run that stops at a budget may need more
        return f"{self.arm}  seed {self.seed}  step {self.step:>3}{of}{accuracy}{left}"


@dataclass(frozen=True)
class Silence:
    """No step has ended for `seconds`: workers import, wait for a stage's other runs, or a step is a long one."""

    seconds: float
    doing: str

    def __str__(self) -> str:
        return f"{self.doing}, {self.seconds:.0f} s"


Progress = Step | Silence
Watch = Callable[[Progress], Any]


class Lines:
    """Prints a line for each evaluation, and one whenever none has been printed for `SILENCE` seconds."""

    def __init__(self, say: Callable[[str], Any] = print):
        self.say, self.last = say, time.monotonic()

    def __call__(self, event: Progress) -> None:
        now = time.monotonic()
        if getattr(event, "accuracy", None) is not None or now - self.last >= SILENCE:
            self.last = now
            self.say(str(event))


def follow(runs: "Iterable[Run]", events: Iterator[Event | None]) -> Iterator[Progress]:
    """The progress of `runs` from what their workers send; None stands for a moment without news."""
    by_folder = {run.folder: run for run in runs}
    steps = {folder: run.settings.steps_of(run.arm) for folder, run in by_folder.items()}
    at: dict[Path, int] = {}
    first: dict[Path, int] = {}
    news = time.monotonic()
    started = None  # time of the first step, since workers spend seconds on imports
    for event in events:
        now = time.monotonic()
        if event is None:
            yield Silence(now - news, "training" if at else "starting the workers")
        elif event.kind == "step":
            folder, (step, accuracy, measured, evaluated) = event.job.checkpoints.folder, event.value
            started, news = started or now, now
            first.setdefault(folder, step)
            at[folder] = step
            done, missing = sum(at.values()) - sum(first.values()), sum(steps.values()) - sum(at.values())
            left = (now - started) / done * max(0, missing) if done else None
            run = by_folder[folder]
            yield Step(run.arm, run.seed, step, steps[folder], accuracy, left, measured, evaluated)


def metrics(step: Step) -> dict[str, float]:
    """What was measured at `step`, by verl's names; without figures that are not finite, as in a skipped step."""
    named = {name: step.measured[column] for column, name in MEASURED.items() if column in step.measured}
    if step.accuracy is not None:
        named[f"val-core/heldout/acc/mean@{step.evaluated.get('samples', 1)}"] = step.accuracy
        named |= {name: step.evaluated[column] for column, name in EVALUATED.items() if column in step.evaluated}
    return {name: float(value) for name, value in named.items() if math.isfinite(value)}
