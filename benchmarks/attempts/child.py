"""One attempt in a process of its own: forked, so that imports are paid for once, with limits on time and memory."""

import contextlib
import os
import resource
import runpy
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SECONDS = 90  # of the CPU
PATIENCE = 1800.0  # seconds on the clock, for what waits instead of working, on a machine with other work
MEMORY = 32 << 30  # of addresses: what asks for more is refused it, and the machine stays up


@dataclass(frozen=True)
class Ending:
    """How a process ended: its exit status, None if it had to be ended, negative for a signal; what it said on stderr
    and printed on stdout."""

    status: int | None
    said: str
    printed: str = ""


def apart(act: Callable[[], Any], seconds: int = SECONDS, patience: float = PATIENCE) -> Ending:
    """`act()` in a forked process; what it returns is the exit status."""
    sys.stdout.flush()
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as said:
        if (child := os.fork()) == 0:
            _become(act, printed.fileno(), said.fileno(), seconds)
        status = _end_of(child, time.monotonic() + patience)
        texts = []
        for file in (said, printed):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    hung = status is None or -status == signal.SIGXCPU
    return Ending(None if hung else status, *texts)


def module(name: str, *arguments: str) -> Callable[[], Any]:
    """What `python -m name arguments` does, in a process that has imported most of it."""

    def act() -> int:
        sys.argv = [name, *arguments]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*found in sys.modules", category=RuntimeWarning)
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        return 0

    return act


def _become(act: Callable[[], Any], printed: int, said: int, seconds: int) -> None:
    """The child's life; it never returns."""
    status = 1
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(printed, 1)
        os.dup2(said, 2)
        sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        status = act() or 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status & 0xFF)


def _end_of(child: int, deadline: float) -> int | None:
    """Its exit status; None if it had to be ended. What it leaves in its session ends with it."""
    status = None
    while status is None and time.monotonic() < deadline:
        done, word = os.waitpid(child, os.WNOHANG)
        if done:
            status = os.waitstatus_to_exitcode(word)
        else:
            time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
    return status
