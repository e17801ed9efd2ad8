"""Many runs in parallel single-threaded worker processes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import fields

import cloudpickle
import pandas as pd

from repro.engine.checkpoint import Checkpoints
from repro.engine.crew import Crew, Event, Job
from repro.engine.progress import Lines, Watch, follow
from repro.engine.run import Run
from repro.protocol.log import Log


def checkpoints_of(run: Run) -> Checkpoints:
    """Where a run's state is stored, and the fingerprint it must have."""
    return Checkpoints(run.folder, run.fingerprint)


def train_runs(
    runs: Sequence[Run], say: Callable[[str], None] = print, watch: Watch | None = None
) -> dict[tuple[str, int], Log]:
    """Train every run, `engine.workers` at a time, and return their logs by (arm, seed); what an earlier call with the
    same fingerprints has finished or begun is taken up.

    `watch` is called with every step of every run, and with the silences in between (repro.engine.progress); `say` with
    lines made of them: one for each evaluation, with arm, seed, step, accuracy and time left.
    """
    missing = [run for run in runs if checkpoints_of(run).finished() is None]
    if missing:
        with closing(_events(missing)) as events:
            told = [one for one in (Lines(say), watch) if one is not None]
            for event in follow(missing, events):
                for one in told:
                    one(event)
    return {(run.arm, run.seed): checkpoints_of(run).finished() for run in runs}


def _events(runs: Sequence[Run]) -> Iterator[Event | None]:
    """From a pool of workers; None after half a second without one. Raises the exception of a failed run."""
    crew = Crew(min(runs[0].settings.engine.workers, len(runs)), [as_job(run) for run in runs])
    try:
        while not crew.idle:
            for event in crew.events(0.5) or [None]:
                yield _checked(event)
    finally:
        crew.terminate()


def as_job(run: Run) -> Job:
    """The run as it is sent to a worker."""
    return Job(f"{run.arm}, seed {run.seed},", checkpoints_of(run), cloudpickle.dumps(run))


def _checked(event: Event | None) -> Event | None:
    if event is not None and event.kind == "failed":
        raise event.value  # immediately, without waiting for the other runs
    return event


def tables_of(logs: Sequence[Log]) -> dict[str, pd.DataFrame]:
    """The tables of several runs by name: steps, evaluations, questions, rollouts, selection, seconds; harder
    where there is such a split."""
    rows = {part.name: [row for log in logs for row in getattr(log, part.name)] for part in fields(Log)}
    return {name: pd.DataFrame(found) for name, found in rows.items() if found or name != "harder"}
