"""One function in a child process of its own, with a limit on the time and the memory of each call.

For code that may hang, exhaust the memory or crash on what a language model writes. The child may fill no file and
sees no variables of the environment; it is not a wall against an attacker, who could still use the network. The limits
on memory, processor time and files are the kernel's (Linux; macOS does not enforce the memory's).
"""

import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

START_SECONDS = 120.0  # for the child's imports, on a busy machine too
Outcome = Literal["value", "error", "timeout", "memory", "crash"]


class SandboxFailed(RuntimeError):
    """One sentence: why the child process cannot be started, and the mend."""


@dataclass(frozen=True)
class Answer:
    """What a call came to: its `value`, or why there is none, with the error's text."""

    outcome: Outcome
    value: Any = None
    error: str = ""


class Sandbox:
    """Calls of one function, one after the other; safe to share between threads.

    `factory`: "module:function"; called in the child, it imports what is heavy and returns the function to call. Its
    arguments and its value must be JSON. `seconds`: of wall time, for each call. `megabytes`: of address space, for the
    whole child. A child that was stopped or has died is replaced before the next call, and a call whose child died is
    made once more: it may have died of something else, as when the kernel runs out of memory.
    """

    def __init__(self, factory: str, *, seconds: float, megabytes: int):
        self.factory, self.seconds, self.megabytes = factory, seconds, megabytes
        self._lock, self._child, self._owner, self._worked = threading.Lock(), None, None, False

    def call(self, *arguments: Any) -> Answer:
        """Never raises for what the function does; SandboxFailed where no child could ever be started."""
        with self._lock:
            answer = self._attempt(arguments)
            return self._attempt(arguments) if answer.outcome == "crash" else answer

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._stop()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _attempt(self, arguments: tuple) -> Answer:
        try:
            self._start()
        except SandboxFailed as error:
            if not self._worked:
                raise
            return Answer("crash", error=str(error))  # of the machine's, hours into a run perhaps: not to end it
        answer = self._exchange(arguments)
        if answer.outcome not in ("value", "error"):
            self._stop()
        return answer

    def _exchange(self, arguments: tuple) -> Answer:
        try:
            self._child.stdin.write(json.dumps(arguments).encode() + b"\n")
            self._child.stdin.flush()
        except OSError:
            return Answer("crash", error="the child process had ended")
        line = self._line(self.seconds)
        if line is None:
            return Answer("timeout", error=f"no answer within {self.seconds:g} s")
        return Answer(*json.loads(line)) if line else Answer("crash", error="the child process ended")

    def _start(self) -> None:
        if self._child is not None and self._owner == os.getpid() and self._child.poll() is None:
            return
        self._stop()
        try:
            self._child = self._spawn()
        except OSError as error:  # no memory, no more processes
            raise SandboxFailed(f"the child process for {self.factory} does not start: {error}") from error
        self._owner = os.getpid()
        if hello := self._line(START_SECONDS):
            answer = Answer(*json.loads(hello))
            if answer.outcome == "value":
                self._worked = True
                return
        else:
            answer = Answer("crash", error="it ended" if hello == b"" else f"not ready after {START_SECONDS:g} s")
        self._stop()
        raise SandboxFailed(f"the child process for {self.factory} does not start: {answer.error}")

    def _spawn(self) -> subprocess.Popen:
        path = os.pathsep.join(folder for folder in sys.path if folder)
        return subprocess.Popen(
            [sys.executable, "-m", "repro.data.sandbox", self.factory, str(self.seconds), str(self.megabytes)],
            env={"PATH": os.defpath, "PYTHONPATH": path, "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _line(self, seconds: float) -> bytes | None:
        """The child's next line; empty where it has ended, None where none came in time."""
        deadline, read = time.monotonic() + seconds, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while not read.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                more = os.read(self._child.stdout.fileno(), 1 << 16)
                if not more:
                    return b""
                read += more
        return read

    def _stop(self) -> None:
        child, self._child = self._child, None
        if child is None or self._owner != os.getpid():  # in a fork of its owner, the child is the owner's
            return
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # it leads a session, and so a group, of its own
        child.wait()
        for pipe in (child.stdin, child.stdout):
            with suppress(OSError):  # what was not yet written has no reader any more
                pipe.close()


def serve(factory: str, seconds: float, megabytes: int) -> None:
    """The child: answer lines of arguments with lines of (outcome, value, error) until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the function prints must not stand between the answers

    def answer(*content: Any) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        module, _, name = factory.partition(":")
        function = getattr(importlib.import_module(module), name)()
    except Exception as error:
        return answer("error", None, str(error) or type(error).__name__)
    _limit("AS", megabytes << 20)
    _limit("FSIZE", 0)
    _limit("CORE", 0)
    answer("value")
    for line in sys.stdin:
        # The caller stops a call that takes too long; when the caller itself is gone, the kernel does.
        _limit("CPU", int(time.process_time() + seconds) + 2)
        try:
            answer("value", function(*json.loads(line)), "")
        except MemoryError:
            answer("memory", None, f"more than {megabytes} MB")
        except BaseException as error:
            answer("error", None, f"{type(error).__name__}: {error}"[:500])
    return None


def _limit(what: str, value: int) -> None:
    """Lower the soft limit; a system that has none of the kind goes on without."""
    import resource

    kind = getattr(resource, f"RLIMIT_{what}")
    _, hard = resource.getrlimit(kind)
    with suppress(ValueError, OSError):
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
