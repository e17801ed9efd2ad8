"""One function in a child process, with a time and a memory limit for each call.

For code that may hang, exhaust memory or crash on a language model's output. The child cannot write files and does not
see the environment; this is not a security boundary: an attacker could still use the network. The limits on memory,
processor time and files are enforced by the kernel (Linux; macOS does not enforce the memory limit).
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

from repro.errors import Refused

START_SECONDS = 120.0  # for the child's imports, even on a busy machine
Outcome = Literal["value", "error", "timeout", "memory", "crash"]


class SandboxFailed(Refused, RuntimeError):
    """One sentence: why the child process cannot be started, and the remedy."""


@dataclass(frozen=True)
class Answer:
    """The outcome of a call: its `value`, or why there is none, with the error's text."""

    outcome: Outcome
    value: Any = None
    error: str = ""


class Sandbox:
    """Calls one function, sequentially; safe to share between threads.

    `factory`: "module:function"; called in the child, it does slow imports and returns the function to call, whose
    arguments and value must be JSON. `seconds`: wall time limit per call. `megabytes`: limit on the child's address
    space. A child that was stopped or has died is replaced before the next call, and a call whose child died is retried
    once, since the cause may lie elsewhere, for instance in the kernel running out of memory.
    """

    def __init__(self, factory: str, *, seconds: float, megabytes: int):
        self.factory, self.seconds, self.megabytes = factory, seconds, megabytes
        self._lock, self._child, self._owner, self._worked = threading.Lock(), None, None, False

    def call(self, *arguments: Any) -> Answer:
        """Never raises because of the function; SandboxFailed if no child could ever be started."""
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
            return Answer("crash", error=str(error))  # a problem of the machine should not end a long run
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
            env={
                "PATH": os.defpath,
                "PYTHONPATH": path,
                "PYTHONDONTWRITEBYTECODE": "1",  # the parent has compiled what it shares with the child
                "LANG": "C.UTF-8",
                "OMP_NUM_THREADS": "1",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _line(self, seconds: float) -> bytes | None:
        """The child's next line; empty if the child has ended, None if none came in time."""
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
        if child is None or self._owner != os.getpid():  # in a forked process, the child belongs to the parent
            return
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # the child leads its own session and process group
        child.wait()
        for pipe in (child.stdin, child.stdout):
            with suppress(OSError):  # buffered data has no reader any more
                pipe.close()


def serve(factory: str, seconds: float, megabytes: int) -> None:
    """The child: answer lines of arguments with lines of (outcome, value, error) until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the function's own output must not mix with the answers

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
        # The caller stops a call that takes too long; if the caller is gone, the kernel does.
        _limit("CPU", int(time.process_time() + seconds) + 2)
        try:
            answer("value", function(*json.loads(line)), "")
        except MemoryError:
            answer("memory", None, f"more than {megabytes} MB")
        except BaseException as error:
            answer("error", None, f"{type(error).__name__}: {error}"[:500])
    return None


def _limit(what: str, value: int) -> None:
    """Lower the soft limit; skipped on systems without this kind of limit."""
    import resource

    kind = getattr(resource, f"RLIMIT_{what}")
    _, hard = resource.getrlimit(kind)
    with suppress(ValueError, OSError):
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
