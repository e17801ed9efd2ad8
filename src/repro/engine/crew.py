"""A pool of worker processes that train runs, most urgent first: for one call, or for all stages of a `dvc repro`.

A pipeline stage spends seconds on start-up before it trains and on tables afterwards; its own workers would be idle. So
the first training stage of a `dvc repro` starts a separate process, `python -m repro.engine.crew`, which owns the
workers. Stages send it their runs over a local socket; between requests it trains the runs that will be needed next. It
exits with the `dvc repro` that it serves, or when there is nothing left to train.
"""

import contextlib
import json
import os
import queue
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing import AuthenticationError, get_context
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge, wait
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle

from repro import paths
from repro.engine.checkpoint import Checkpoints
from repro.engine.workers import WorkerLost, end_with, keep_memory, not_interrupted, set_up_worker
from repro.files import write_json

IDLE_SECONDS = 60.0  # a shared pool without work exits after this long
START_SECONDS = 120.0  # a new shared pool must answer within this long
NO_POOL = (OSError, ValueError, KeyError, EOFError, AuthenticationError)  # the last: the file has another one's key


class Job(NamedTuple):
    """A run as it is sent to a worker: `run` is pickled by value, so that it may contain functions of a notebook."""

    name: str
    checkpoints: Checkpoints
    run: bytes

    @property
    def key(self) -> tuple[Path, str]:
        return self.checkpoints.folder, self.checkpoints.fingerprint


class Event(NamedTuple):
    """kind: `step` (value: step; accuracy or None; rows of the log, see `_Watched`), `done` (None), `failed` (the
    exception)."""

    job: Job
    kind: str
    value: Any = None


class Crew:
    """`size` worker processes. `submit` sets what to train, `events` assigns work and returns what happened."""

    def __init__(self, size: int):
        keep_memory()
        self._context = get_context("spawn")
        self._workers = [_Worker(self._context) for _ in range(size)]
        self._waiting: list[Job] = []
        self._failed: set[tuple] = set()

    def submit(self, wanted: Sequence[Job], later: Sequence[Job] = ()) -> None:
        """Train `wanted`, then `later`, replacing earlier submissions; running jobs continue unless they are an
        outdated version of one of these. A job of `later` that has failed is not retried."""
        jobs = [*wanted, *(job for job in later if job.key not in self._failed)]
        current = dict(job.key for job in jobs)
        for worker in self._workers:
            if worker.job and current.get(worker.job.key[0], worker.job.key[1]) != worker.job.key[1]:
                worker.restart()
        running = {worker.job.key for worker in self._workers if worker.job}
        self._waiting = [job for job in jobs if job.key not in running]

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
        if not busy:
            time.sleep(seconds)
        received = [busy[connection].receive() for connection in wait(list(busy), seconds)] if busy else []
        self._failed |= {event.job.key for event in received if event.kind == "failed"}
        return received

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
        with not_interrupted():
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
        """The next event of the running job; a worker that has died, or will not come back, counts as a failed job and
        is replaced."""
        job = self.job
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            kind, value = (
                "failed",
                WorkerLost(
                    f"the worker that trained {job.name} ended with code {self.process.exitcode} "
                    "(out of memory?); its last checkpoint is kept, run the stage again to go on"
                ),
            )
            self._start()
        if kind == "overdue":  # it does not come back to its loop
            self.process.kill()
            self.process.join()
            self._start()
            kind = "failed"
        if kind != "step":
            self.job = None
        return Event(job, kind, value)


def _work(connection: Connection) -> None:
    """A worker's main loop: train each job received and report the outcome."""
    set_up_worker()
    from repro.engine.run import train_one
    from repro.methods import overdue
    from repro.methods.guard import MethodError

    def tell(kind: str, value: Any = None) -> None:
        try:
            connection.send((kind, value))
        except OSError:  # whom it worked for is gone
            os._exit(1)

    job: Job | None = None
    overdue.watch(lambda error: tell("overdue", MethodError(error.said, f"arm {job.name.rstrip(',')}")))
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            run, watched = cloudpickle.loads(job.run), _Watched(*job.key)
            train_one(run, watched, lambda *at, watched=watched: tell("step", (*at, *watched.rows(*at))))
            tell("done")
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


def pipeline_process() -> int | None:
    """The id of the `dvc` process that this one runs under; None outside a pipeline."""
    if "DVC_STAGE" not in os.environ:
        return None
    import psutil

    for parent in psutil.Process().parents():
        with contextlib.suppress(psutil.Error):
            if any(Path(word).name in ("dvc", "dvc.exe") for word in parent.cmdline()[:3]):
                return parent.pid
    return None


def shared_events(owner: int, size: int, wanted: Sequence[Job], later: Sequence[Job]) -> Iterator[Event | None]:
    """Events of `wanted`, from the pool that serves the pipeline `owner`, until all are done or one has failed; None
    after half a second without one. ConnectionError if no pool can be started, or it exits first: the runs are then at
    their last checkpoints."""
    with _connect(owner, size) as connection:
        connection.send((list(wanted), list(later)))
        missing = {job.key for job in wanted}
        while missing:
            try:
                event = connection.recv() if connection.poll(0.5) else None
            except (EOFError, OSError) as error:
                raise ConnectionError("the worker pool shared by the stages is gone") from error
            yield event
            if event is not None and event.kind == "done":
                missing.discard(event.job.key)


def _connect(owner: int, size: int) -> Connection:
    """A connection to the pool that serves `owner`, which is started if there is none."""
    file = paths.BUILD / "crew.json"
    with contextlib.suppress(*NO_POOL):
        return _dial(file, owner)
    file.unlink(missing_ok=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "repro.engine.crew", str(owner), str(size), str(file)]
    with (paths.BUILD / "crew.log").open("w") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=paths.ROOT, start_new_session=True
        )
    limit = time.monotonic() + START_SECONDS
    while time.monotonic() < limit and process.poll() is None:
        with contextlib.suppress(*NO_POOL):
            return _dial(file, owner)
        time.sleep(0.1)
    raise ConnectionError(f"no shared worker pool could be started; see {paths.BUILD / 'crew.log'}")


def _dial(file: Path, owner: int) -> Connection:
    known = json.loads(file.read_text())
    if known["owner"] != owner:
        raise ValueError("it serves another pipeline")
    return Client(known["address"], authkey=bytes.fromhex(known["key"]))


def serve(owner: int, size: int, file: Path) -> None:
    """Serve the stages of process `owner`, one after the other, until it exits or there is nothing to do."""
    end_with(owner, cleanup=lambda: file.unlink(missing_ok=True))
    key, callers = secrets.token_bytes(32), queue.Queue()
    with Listener() as listener:
        threading.Thread(target=_accept, args=(listener, key, callers), daemon=True).start()
        others = os.umask(0o077)  # the key is for this user alone, from the file's first instant
        write_json({"owner": owner, "address": listener.address, "key": key.hex()}, file)
        os.umask(others)
        crew, caller, asked, busy_at = Crew(size), None, set(), time.monotonic()
        try:
            while time.monotonic() - busy_at < IDLE_SECONDS:
                with contextlib.suppress(queue.Empty):
                    connection, (wanted, later) = callers.get_nowait()
                    caller = queue.SimpleQueue()
                    threading.Thread(target=_tell, args=(connection, caller), daemon=True).start()
                    asked = {job.key for job in wanted}
                    crew.submit(wanted, later)
                for event in crew.events(0.2):
                    if caller is not None and event.job.key in asked:
                        caller.put(event)
                if not crew.idle:
                    busy_at = time.monotonic()
        finally:
            crew.terminate()
            file.unlink(missing_ok=True)


def _tell(connection: Connection, events: queue.SimpleQueue) -> None:
    """Send a caller its events, in a thread of its own: one that does not read them holds up no other, nor the end."""
    with contextlib.suppress(OSError):  # its stage has ended
        while True:
            connection.send(events.get())


def _accept(listener: Listener, key: bytes, callers: queue.Queue) -> None:
    while True:
        try:
            connection = listener.accept()
        except OSError:  # it hung up at once
            time.sleep(0.1)
            continue
        threading.Thread(target=_greet, args=(connection, key, callers), daemon=True).start()


def _greet(connection: Connection, key: bytes, callers: queue.Queue) -> None:
    """Check a caller's key and read what it wants, in a thread of its own: one that is silent holds up no other."""
    try:
        deliver_challenge(connection, key)
        answer_challenge(connection, key)
        callers.put((connection, connection.recv()))
    except Exception:  # without the key, or gone
        connection.close()


if __name__ == "__main__":
    import importlib  # what travels must have the module's own name, not __main__'s

    own = importlib.import_module("repro.engine.crew")
    own.serve(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
