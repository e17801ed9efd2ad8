"""One function in a child process, with limits on the time, the memory and the size of the result of each call.

For code that may hang, exhaust memory, crash or be made to do something else by a language model's output. The child
(repro.data.sandboxed) runs each call in a process of its own, which cannot write files, sees no environment, and ends
with all that it has started. On Linux it cannot read files, use the network or start processes either, where the
kernel and libseccomp allow that (repro.data.confined; `Sandbox.held` says what holds here). Code that takes over its
process from within decides the result of its own call, and of no other.
"""

import json
import os
import selectors
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from repro.errors import Refused

START_SECONDS = 120.0  # for the child's imports, even on a busy machine
MORE_SECONDS = 5.0  # that the child may take to end a call whose time is up
MOST = 1 << 20  # bytes of one call's arguments
TOO_LONG = f"the arguments are longer than {MOST >> 20} MiB and were not examined"
Outcome = Literal["value", "error", "timeout", "memory", "crash"]


class SandboxFailed(Refused, RuntimeError):
    """One sentence: why the child process cannot be started, and the remedy."""


@dataclass(frozen=True)
class Answer:
    """The outcome of a call: its `value`, or why there is none, with the error's text."""

    outcome: Outcome
    value: Any = None
    error: str = ""


SOURCES = os.path.realpath(Path(__file__).parents[2])  # where `repro` is imported from


class Sandbox:
    """Calls one function, sequentially; safe to share between threads.

    `factory`: "module:function"; called in the child, it does slow imports and returns the function to call, whose
    arguments and value must be JSON, of at most 1 MiB and 64 KiB; it may have an attribute `rehearse`, a call of ours
    that touches what most calls need. Each call begins from what the factory left: nothing that a call changes lasts.
    `seconds`: wall time limit per call. `megabytes`:
    limit on the function's address space. A child that was stopped or has died is replaced before the next call, and a
    call whose process died is retried once, since the cause may lie elsewhere, for instance in the kernel running out
    of memory.

    `held`: what else a call cannot do here, of "files" (read them), "network", "processes" (start or signal them);
    known after the first call.
    """

    def __init__(self, factory: str, *, seconds: float, megabytes: int):
        self.factory, self.seconds, self.megabytes = factory, seconds, megabytes
        self._lock, self._child, self._owner, self._worked = threading.Lock(), None, None, False
        self.held: tuple[str, ...] = ()

    def call(self, *arguments: Any) -> Answer:
        """Never raises because of the function; SandboxFailed if no child could ever be started."""
        if max((len(each) for each in arguments if isinstance(each, str)), default=0) > MOST:
            return Answer("error", error=TOO_LONG)
        request = json.dumps(arguments).encode() + b"\n"
        if len(request) > MOST:
            return Answer("error", error=TOO_LONG)
        with self._lock:
            answer = self._attempt(request)
            return self._attempt(request) if answer.outcome == "crash" else answer

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._stop()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _attempt(self, request: bytes) -> Answer:
        try:
            self._start()
        except SandboxFailed as error:
            if not self._worked:
                raise
            return Answer("crash", error=str(error))  # a problem of the machine should not end a long run
        try:
            self._child.stdin.write(request)
            self._child.stdin.flush()
        except OSError:
            self._stop()
            return Answer("crash", error="the child process had ended")
        line = self._line(self.seconds + MORE_SECONDS)
        if line:
            return Answer(*json.loads(line))
        self._stop()
        if line is None:
            return Answer("timeout", error=f"no answer within {self.seconds:g} s")
        return Answer("crash", error="the child process ended")

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
                self._worked, self.held = True, tuple(answer.value)
                return
        else:
            answer = Answer("crash", error="it ended" if hello == b"" else f"not ready after {START_SECONDS:g} s")
        self._stop()
        raise SandboxFailed(f"the child process for {self.factory} does not start: {answer.error}")

    def _spawn(self) -> subprocess.Popen:
        here = os.path.realpath(os.curdir)  # on sys.path by `python -m` alone: a home folder, perhaps
        kept = [each for each in sys.path if each and (os.path.realpath(each) != here or here == SOURCES)]
        path = os.pathsep.join(kept)
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "repro.data.sandboxed", self.factory, str(self.seconds), str(self.megabytes)],
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

    @staticmethod
    def _started(child: subprocess.Popen) -> list[psutil.Process]:
        """What a call under way has started, in whatever session: the child is the reaper of all of it."""
        with suppress(psutil.Error):
            return psutil.Process(child.pid).children(recursive=True)
        return []

    def _stop(self) -> None:
        child, self._child = self._child, None
        if child is None or self._owner != os.getpid():  # in a forked process, the child belongs to the parent
            return
        for process in self._started(child):
            with suppress(psutil.Error):
                process.kill()
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            with suppress(OSError):  # buffered data has no reader any more
                pipe.close()
