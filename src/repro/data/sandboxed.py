"""The child's side of a sandbox: a keeper, which does the slow imports, and forked from it the process that runs calls.

That process has no descriptor of the caller's. It hands each result to the keeper, which passes it on as one line, and
which ends it, with all that it has started, after a call that does not end well; the next one needs no new imports. A
result must begin with a word drawn for the call: what the function writes to any descriptor is no result.
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
from typing import Any

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
    return runner.end()


class Runner:
    """The process that runs calls; a new one after a call that did not end well. `pipes` are the keeper's own."""

    def __init__(self, function: Callable, seconds: float, megabytes: int, confinement: Confinement, pipes: tuple = ()):
        self.function, self.seconds, self.megabytes = function, seconds, megabytes
        self.confinement, self.pipes, self.process = confinement, pipes, None

    def call(self, line: bytes) -> list:
        """[outcome, value, error]."""
        if self.process is not None and _readable(self.inward, 0.0):  # something was written between two calls
            self.end()
        if self.process is None:
            self._start()
        word = secrets.token_hex(16).encode() + b" "
        self._write(word + line)
        written = self._read()
        first, end, stray = (written or b"").partition(b"\n")
        if not (end and first.startswith(word)):
            return self._why(written, self.end())
        result = json.loads(first.removeprefix(word))
        if stray or result[0] == "memory":
            self.end()
        elif "processes" not in self.confinement.held:
            self._end_others(but=self.process)
        return result

    def end(self) -> int:
        """End the process and all that it has started; its exit status as in subprocess."""
        child, self.process = self.process, None
        if child is None:
            return 0
        for pipe in (self.inward, self.outward):
            os.close(pipe)
        for end in (os.killpg, os.kill):  # the group first, at one stroke
            with suppress(ProcessLookupError, PermissionError):
                end(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self._end_others()
        return status

    def _start(self) -> None:
        self.inward, results = os.pipe()
        calls, self.outward = os.pipe()
        self.process = os.fork()
        if self.process:
            os.close(results)
            os.close(calls)
            return
        try:
            for pipe in (self.inward, self.outward, *(pipe.fileno() for pipe in self.pipes)):
                os.close(pipe)
            self._run(os.fdopen(calls, "rb"), results)
        finally:
            os._exit(0)

    def _run(self, calls: Any, results: int) -> None:
        """In the process of its own: calls, one after the other, with everything given up that they do not need."""
        os.setsid()
        prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
        for name, most in {"AS": self.megabytes << 20, "FSIZE": 0, "CORE": 0}.items():
            _limit(name, most, for_good=True)
        self.confinement.enter()
        for line in calls:
            _limit("CPU", int(time.process_time() + self.seconds) + 2)  # should the keeper be gone
            word, _, arguments = line.partition(b" ")
            try:
                result = json.dumps(["value", self.function(*json.loads(arguments)), ""])
                if len(result) + len(word) + 2 > MOST:
                    raise ValueError(TOO_LONG)
            except MemoryError:
                result = json.dumps(["memory", None, f"more than {self.megabytes} MB"])
            except BaseException as error:
                result = json.dumps(["error", None, f"{type(error).__name__}: {error}"[:500]])
            os.write(results, word + b" " + result.encode() + b"\n")  # at most a pipe's size: in one piece

    def _write(self, request: bytes) -> None:
        with suppress(BrokenPipeError):
            while request:
                request = request[os.write(self.outward, request) :]

    def _read(self) -> bytes | None:
        """What was written up to the first line's end, or until all writers are gone; None if time is up."""
        deadline, read = time.monotonic() + self.seconds, b""
        while b"\n" not in read and len(read) <= MOST:
            left = deadline - time.monotonic()
            if left <= 0 or not _readable(self.inward, left):
                return None
            more = os.read(self.inward, MOST)
            if not more:
                break
            read += more
        return read

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

    def _end_others(self, but: int | None = None) -> None:
        """End what calls have started, in whatever session: it came to this process when its parent went."""
        import psutil

        while True:
            others = [each for each in psutil.Process().children(recursive=True) if each.pid != but]
            for each in others:
                with suppress(psutil.Error):
                    each.kill()
            with suppress(ChildProcessError):
                while but is None and os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if not [each for each in others if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]:
                return
            time.sleep(0.001)


def _readable(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def _limit(name: str, most: int, for_good: bool = False) -> None:
    """Lower a limit; skipped on systems without this kind of limit."""
    import resource

    kind = getattr(resource, f"RLIMIT_{name}")
    hard = resource.getrlimit(kind)[1]
    with suppress(ValueError, OSError):
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most if for_good else hard))


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
