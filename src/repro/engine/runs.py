"""Many runs in parallel single-threaded worker processes: resuming, tables."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import fields
from pathlib import Path

import cloudpickle
import pandas as pd

from repro.engine import live
from repro.engine.checkpoint import Checkpoints
from repro.engine.crew import Crew, Event, Job, pipeline_process, shared_events
from repro.engine.log import Log
from repro.engine.progress import Lines, Watch, follow
from repro.engine.run import Run
from repro.files import write_parquet


def checkpoints_of(run: Run) -> Checkpoints:
    """Where a run's state is stored, and the fingerprint it must have."""
    return Checkpoints(run.folder, f"{run.fingerprint} seed {run.seed}")  # never another seed's, were they exchanged


def train_runs(
    runs: Sequence[Run],
    later: Sequence[Run] = (),
    say: Callable[[str], None] = print,
    watch: Watch | None = None,
) -> dict[tuple[str, int], Log]:
    """Train every run, `engine.workers` at a time, and return their logs by (arm, seed).

    Finished runs and checkpoints of an earlier, interrupted call with the same fingerprint are reused. In a pipeline
    stage, the worker pool shared by all stages trains the runs and continues with `later`, the runs needed next.

    `watch` is called with every step of every run, and with the silences in between (repro.engine.progress); `say` with
    lines made of them: one for each evaluation, with arm, seed, step, accuracy and time left. Where the variable
    REPRO_LIVE names a folder, DVCLive keeps the metrics of every seed there (repro.engine.live).
    """
    missing = [run for run in runs if checkpoints_of(run).finished() is None]
    if missing:
        with closing(_events(missing, later, say)) as events, live.from_environment() as record:
            told = [one for one in (Lines(say), record, watch) if one is not None]
            for event in follow(missing, events):
                for one in told:
                    one(event)
    return {(run.arm, run.seed): checkpoints_of(run).finished() for run in runs}


def _events(runs: Sequence[Run], later: Sequence[Run], say: Callable[[str], None]) -> Iterator[Event | None]:
    """From the shared pool inside a pipeline, else from a local pool; None after half a second without one. Raises the
    exception of a failed run."""
    owner, size = pipeline_process() if later else None, runs[0].settings.engine.workers
    if owner is not None:
        try:
            for event in shared_events(owner, size, [as_job(run) for run in runs], [as_job(run) for run in later]):
                yield _checked(event)
            return
        except ConnectionError as error:
            say(f"{error}: training here")
            runs = [run for run in runs if checkpoints_of(run).finished() is None]
    crew = Crew(min(size, len(runs)))
    try:
        crew.submit([as_job(run) for run in runs])
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
    """The tables of several runs by name: steps, evaluations, questions, rollouts, selection, seconds."""
    return {part.name: pd.DataFrame([row for log in logs for row in getattr(log, part.name)]) for part in fields(Log)}


def write_results(runs: Sequence[Run], logs: Sequence[Log], data: Path, timings: Path) -> None:
    """Write an arm's tables and snapshots: `seconds` to `timings`, the rest, which is deterministic, to `data`."""
    for name, table in tables_of(logs).items():
        write_parquet(table, (timings if name == "seconds" else data) / f"{name}.parquet")
    for run in runs:
        wanted = run.settings.snapshots_of(run.arm)
        for step, path in checkpoints_of(run).snapshots().items():
            if step in wanted:
                target = data / "snapshots" / f"seed-{run.seed}-{path.name}"
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)


def forget(runs: Sequence[Run]) -> None:
    """Remove the checkpoints of runs whose tables have been written."""
    for run in runs:
        checkpoints_of(run).remove()
        if run.folder.parent.exists() and not any(run.folder.parent.iterdir()):
            run.folder.parent.rmdir()
