"""A pool of worker processes that train runs. Several pools may be at work at once, on one machine or on several that
share a file system: a run that another process has begun is left to it, and read when it has ended."""

import os
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import sleep
from typing import Any, NamedTuple

import cloudpickle

from repro.engine.checkpoint import Checkpoints
from repro.engine.workers import WorkerLost, keep_memory, set_up_worker, starting

PATIENCE = 0.5  # seconds until a run that another process makes is asked for again


class Job(NamedTuple):
    """A run as it is sent to a worker: `run` is pickled by value, so that it may contain functions of a notebook."""

    name: str
    checkpoints: Checkpoints
    run: bytes

    @property
    def key(self) -> tuple[Path, str]:
        return self.checkpoints.folder, self.checkpoints.fingerprint


class Event(NamedTuple):
    """kind: `step` (value: step; accuracy or None; rows of the log, see `_Watched`), `done` (None), `held` (None:
    another process makes the run), `failed` (the exception)."""

    job: Job
    kind: str
    value: Any = None


class Crew:
    """`size` worker processes that train `jobs`, in their order."""

    def __init__(self, size: int, jobs: Sequence[Job]):
        keep_memory()
        self._context = get_context("spawn")
        self._workers = [_Worker(self._context) for _ in range(size)]
        self._waiting = list(jobs)

    @property
    def idle(self) -> bool:
        return not self._waiting and all(worker.job is None for worker in self._workers)

    def events(self, seconds: float) -> list[Event]:
        """Assign work to idle workers, then wait for events, at most `seconds`."""
        for worker in self._workers:
            while worker.job is None and self._waiting:
                job = self._waiting.pop(0)
                if job.checkpoints.finished() is not None:
                    return [Event(job, "done")]
                worker.train(job)
        busy = {worker.connection: worker for worker in self._workers if worker.job}
        received = [busy[connection].receive() for connection in wait(list(busy), seconds)] if busy else []
        if held := [event.job for event in received if event.kind == "held"]:
            self._waiting += held
            if len(held) == len(busy):  # nothing else to do meanwhile
                sleep(PATIENCE)
        return [event for event in received if event.kind != "held"]

    def terminate(self) -> None:
        """Terminate the workers; running jobs can be resumed from their last checkpoint."""
        for worker in self._workers:
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join()


class _Worker:
    """One process and the job it is training, None while idle."""

    def __init__(self, context: Any):
        self._context = context
        self._start()

    def _start(self) -> None:
        self.connection, other = self._context.Pipe()
        self.job: Job | None = None
        self.process = self._context.Process(target=_work, args=(other,), daemon=True)
        with starting():
            self.process.start()
        other.close()

    def restart(self) -> None:
        self.process.terminate()
        self.process.join()
        self._start()

    def train(self, job: Job) -> None:
        try:
            self.connection.send(job)
        except OSError:  # it has died while it was idle
            self.restart()
            self.connection.send(job)
        self.job = job

    def receive(self) -> Event:
        """The next event of the running job; a worker that has died counts as a failed job and is replaced."""
        job = self.job
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            how = "was killed (out of memory?)" if code == -9 else f"ended with code {code}"
            said = f"the worker that trained {job.name} {how}; its last checkpoint is kept: run the same again to go on"
            kind, value = "failed", WorkerLost(said)
            self._start()
        if kind != "step":
            self.job = None
        return Event(job, kind, value)


def _work(connection: Connection) -> None:
    """A worker's main loop: train each job received and report the outcome."""
    set_up_worker()
    from repro.engine.run import train_one

    def tell(kind: str, value: Any = None) -> None:
        try:
            connection.send((kind, value))
        except OSError:  # whom it worked for is gone
            os._exit(1)

    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            watched = _Watched(*job.key)
            with watched.held() as ours:
                if ours and watched.finished() is None:
                    run = cloudpickle.loads(job.run)
                    train_one(run, watched, lambda *at, watched=watched: tell("step", (*at, *watched.rows(*at))))
            tell("done" if ours else "held")
        except Exception as error:
            tell("failed", _portable(error))


class _Watched(Checkpoints):
    """The checkpoints of a run, which alone are shown its trainer: they can tell what its last step measured."""

    def restore(self, trainer: Any) -> int:
        self._trainer = trainer
        return super().restore(trainer)

    def rows(self, step: int, accuracy: float | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """The log's row of the step before `step`, and that of the evaluation there; empty where there is none."""
        log = self._trainer.log
        return (log.steps[-1] if log.steps else {}), (log.evaluations[-1] if accuracy is not None else {})


def _portable(error: Exception) -> Exception:
    """The exception itself if it can be pickled, else its name and text."""
    try:
        cloudpickle.loads(cloudpickle.dumps(error))
        return error
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
