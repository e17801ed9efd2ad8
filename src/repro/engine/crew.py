"""Workers that train runs, the most wanted first, and stay when the runs that were asked for are done."""

import pickle
import time
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, NamedTuple

from repro.engine.workers import keep_memory, set_up_worker

if TYPE_CHECKING:
    from repro.engine.runs import Run


class News(NamedTuple):
    """What a worker says of its run. kind: `step` (value: step, accuracy or None), `done` (None), `failed` (the
    exception)."""

    run: "Run"
    kind: str
    value: Any = None


class Crew:
    """`size` worker processes. `ask` says what to train, `listen` hands out work and tells what came of it."""

    def __init__(self, size: int):
        keep_memory()
        self._context = get_context("spawn")
        self._members = [_Member(self._context) for _ in range(size)]
        self._waiting: list[Run] = []
        self._failed: set[tuple] = set()

    def ask(self, wanted: Sequence["Run"], later: Sequence["Run"] = ()) -> None:
        """Train `wanted`, then `later`, instead of what was asked before; what is under way goes on, unless it is an
        outdated version of one of these runs. A run of `later` that failed once is not tried again."""
        runs = [*wanted, *(run for run in later if _key(run) not in self._failed)]
        keys = {run.folder: run.fingerprint for run in runs}
        for member in self._members:
            if member.run is not None and keys.get(member.run.folder, member.run.fingerprint) != member.run.fingerprint:
                member.start_anew()
        under_way = {_key(member.run) for member in self._members if member.run is not None}
        self._waiting = [run for run in runs if _key(run) not in under_way]

    @property
    def idle(self) -> bool:
        """Nothing under way, nothing waiting."""
        return not self._waiting and all(member.run is None for member in self._members)

    def listen(self, seconds: float) -> list[News]:
        """Give work to whoever has none, then wait for news, at most so long."""
        for member in self._members:
            while member.run is None and self._waiting:
                run = self._waiting.pop(0)
                if run.checkpoints.finished() is None:
                    member.train(run)
                else:
                    return [News(run, "done")]
        busy = {member.connection: member for member in self._members if member.run is not None}
        if not busy:
            time.sleep(seconds)
        heard = [busy[connection].hear() for connection in wait(list(busy), seconds)] if busy else []
        self._failed |= {_key(news.run) for news in heard if news.kind == "failed"}
        return heard

    def dismiss(self) -> None:
        """End the workers; what they have under way stays at its last checkpoint."""
        for member in self._members:
            member.process.terminate()
        for member in self._members:
            member.process.join()


class _Member:
    """One worker process and the run that it trains, None while it waits."""

    def __init__(self, context: Any):
        self._context = context
        self._start()

    def _start(self) -> None:
        self.connection, other = self._context.Pipe()
        self.run: Run | None = None
        self.process = self._context.Process(target=_work, args=(other,), daemon=True)
        self.process.start()
        other.close()

    def start_anew(self) -> None:
        self.process.terminate()
        self.process.join()
        self._start()

    def train(self, run: "Run") -> None:
        self.run = run
        self.connection.send(run)

    def hear(self) -> News:
        """The next news of the run under way; a worker that is gone counts as a failed run, and is replaced."""
        run = self.run
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            kind, value = (
                "failed",
                RuntimeError(
                    f"the worker that trained {run.arm}, seed {run.seed}, ended with code {self.process.exitcode} "
                    "(out of memory?); its last checkpoint is kept, run the stage again to go on"
                ),
            )
            self._start()
        if kind != "step":
            self.run = None
        return News(run, kind, value)


def _key(run: "Run") -> tuple:
    return run.folder, run.fingerprint


def _work(connection: Connection) -> None:
    """A worker's life: train what comes in, say what came of it."""
    set_up_worker()
    from repro.engine.runs import train_one

    while True:
        try:
            run = connection.recv()
        except EOFError:
            return
        try:
            train_one(run, lambda step, accuracy: connection.send(("step", (step, accuracy))))
            connection.send(("done", None))
        except Exception as error:
            connection.send(("failed", _portable(error)))


def _portable(error: Exception) -> Exception:
    """The exception itself, if it survives the way to another process; else its name and text."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
