"""Ctrl-C and SIGTERM: both end a command with one sentence, once what is under way has been put away.

Either raises a KeyboardInterrupt in the main thread, SIGTERM a kind of its own, so that what cleans up after a Ctrl-C
does so after SIGTERM too. `repro.errors.command` listens while its `main` runs.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
TAKES_UP = "the same command goes on from what is finished"
PARENT = os.getppid()  # that started this process; by the time it is watched, another may have its place


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a notebook, which shows this line in place of a traceback."""

    def _render_traceback_(self) -> list[str]:
        return ["interrupted; the same call goes on from what is finished"]


def number_of(error: BaseException) -> int | None:
    """The signal that an exception comes of; None if there is none."""
    if isinstance(error, SystemExit) and error.code == signal.SIGTERM:  # Ray has put its own handler in place of ours
        return signal.SIGTERM
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
    return None


@contextmanager
def listening() -> Iterator[None]:
    """Inside, SIGTERM raises in the main thread, where nobody else handles it."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    process = os.getpid()

    def stop(number: int, frame: Any) -> None:
        if os.getpid() != process:  # forked from it, with work of another kind
            signal.signal(number, signal.SIG_DFL)
            return signal.raise_signal(number)
        signal.signal(number, signal.SIG_IGN)  # `timeout` sends it twice: it should not cut the cleaning up short
        raise Terminated

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
