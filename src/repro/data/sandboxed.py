"""The child's side of a sandbox: a keeper, which does the slow imports, and forked from it a process for each call.

No call runs in the keeper, so each begins from the same state, and code that takes over its process decides no result
but its own. The process of a call has no descriptor of the caller's. It hands its result to the keeper, which ends it,
with all that it has started, and passes the result on as one line. A result must begin with a word drawn for the call:
what the function writes to any descriptor is no result.
"""

import gc
import importlib
import json
import os
import secrets
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from repro.data.confined import DUMPABLE, PARENT_DEATH_SIGNAL, SUBREAPER, Confinement, prctl, prepare

MOST = 1 << 16  # bytes of one result
TOO_LONG = f"the result is longer than {MOST >> 10} KiB"


def serve(factory: str, seconds: float, megabytes: int) -> None:
    """The keeper: answer lines of arguments with lines of [outcome, value, error], until the input ends."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    for descriptor in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    prctl(SUBREAPER, 1)  # what calls leave behind becomes a child of this process
    prctl(DUMPABLE, 0)  # no call looks into it

    def answer(*content: Any) -> None:
        answers.write(json.dumps(content).encode() + b"\n")
        answers.flush()

    try:
        module, _, name = factory.partition(":")
        function = getattr(importlib.import_module(module), name)()
    except Exception as error:
        return answer("error", None, " ".join((str(error) or type(error).__name__).split()))
    runner = Runner(function, seconds, megabytes, prepare(folder for folder in sys.path if folder), (requests, answers))
    gc.freeze()  # so that the memory of what is loaded stays shared
    answer("value", runner.confinement.held, "")
    for line in requests:
        answer(*runner.call(line))
    runner.end()


class Process(NamedTuple):
    """Forked for one call: its id, what it writes (`inward`), what it reads (`outward`)."""

    id: int
    inward: int
    outward: int

    def close(self) -> None:
        os.close(self.inward)
        os.close(self.outward)


class Runner:
    """Runs each call in a process of its own, forked from this one, which never runs one. `pipes` are the keeper's own.

    Where no call can reach another process, the next call's process is made while one goes on, since forking and
    confining take longer than most calls. It first calls the function's `rehearse`, if there is one: after a fork, what
    is touched for the first time is copied.
    """

    def __init__(self, function: Callable, seconds: float, megabytes: int, confinement: Confinement, pipes: tuple = ()):
        self.function, self.seconds, self.megabytes = function, seconds, megabytes
        self.confinement, self.pipes, self.next = confinement, pipes, None
        self.ahead = "processes" in confinement.held

    def call(self, line: bytes) -> list:
        """[outcome, value, error]."""
        process, self.next = self.next or self._start(), None
        word = secrets.token_hex(16).encode() + b" "
        _write(process.outward, word + line)
        deadline = time.monotonic() + self.seconds
        if self.ahead:
            self.next = self._start(process)
        written = _read(process.inward, deadline)
        status = self._end(process)
        first, end, _ = (written or b"").partition(b"\n")
        if end and first.startswith(word):
            return json.loads(first.removeprefix(word))
        return self._why(written, status)

    def end(self) -> None:
        """End the process that waits for a call."""
        if self.next is not None:
            self._end(self.next)

    def _end(self, process: Process) -> int:
        """End the call's process and all that it has started; its exit status as in subprocess."""
        process.close()
        for end in (os.killpg, os.kill):  # the group first, at one stroke
            with suppress(ProcessLookupError, PermissionError):
                end(process.id, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(process.id, 0)[1])
        if not self.ahead:
            _end_others()
        return status

    def _start(self, *others: Process) -> Process:
        inward, results = os.pipe()
        calls, outward = os.pipe()
        process = Process(os.fork(), inward, outward)
        if process.id:
            os.close(results)
            os.close(calls)
            return process
        try:
            for each in (process, *others, *self.pipes):
                each.close()
            self._run(os.fdopen(calls, "rb"), results)
        finally:
            os._exit(0)

    def _run(self, calls: Any, results: int) -> None:
        """In the process of its own: one call, with everything given up that it does not need."""
        os.setsid()
        prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
        for name, most in {"AS": self.megabytes << 20, "FSIZE": 0, "CORE": 0}.items():
            _limit(name, most)
        self.confinement.enter()
        with suppress(Exception):
            getattr(self.function, "rehearse", bool)()
        word, _, arguments = calls.readline().partition(b" ")
        _limit("CPU", int(time.process_time() + self.seconds) + 2)  # should the keeper be gone
        try:
            result = json.dumps(["value", self.function(*json.loads(arguments)), ""])
            if len(result) + len(word) + 2 > MOST:
                raise ValueError(TOO_LONG)
        except MemoryError:
            result = json.dumps(["memory", None, f"more than {self.megabytes} MB"])
        except BaseException as error:
            result = json.dumps(["error", None, f"{type(error).__name__}: {error}"[:500]])
        os.write(results, word + b" " + result.encode() + b"\n")  # at most a pipe's size: in one piece

    def _why(self, written: bytes | None, status: int) -> list:
        """Why there is no result."""
        if written is None:
            return ["timeout", None, f"no answer within {self.seconds:g} s"]
        if len(written) > MOST:
            return ["error", None, TOO_LONG]
        if written:
            return ["error", None, "the function has written where its result belongs"]
        how = f"signal {-status}" if status < 0 else f"code {status}"
        return ["crash", None, f"the process of the call ended with {how} and no result"]


def _write(descriptor: int, request: bytes) -> None:
    with suppress(BrokenPipeError):
        while request:
            request = request[os.write(descriptor, request) :]


def _read(descriptor: int, deadline: float) -> bytes | None:
    """What was written up to the first line's end, or until all writers are gone; None if time is up."""
    read = b""
    while b"\n" not in read and len(read) <= MOST:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return None
        more = os.read(descriptor, MOST)
        if not more:
            break
        read += more
    return read


def _end_others() -> None:
    """End what calls have started, in whatever session: it came to this process when its parent went."""
    import psutil

    while True:
        others = psutil.Process().children(recursive=True)
        for each in others:
            with suppress(psutil.Error):
                each.kill()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not [each for each in others if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]:
            return
        time.sleep(0.001)


def _limit(name: str, most: int) -> None:
    """Lower a limit for good; skipped on systems without this kind of limit."""
    import resource

    kind = getattr(resource, f"RLIMIT_{name}")
    hard = resource.getrlimit(kind)[1]
    with suppress(ValueError, OSError):
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
