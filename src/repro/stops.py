"""Ctrl-C and SIGTERM: both end a command with one sentence, once what is under way has been put away.

Either raises a KeyboardInterrupt in the main thread, SIGTERM a kind of its own, so that what cleans up after a Ctrl-C
does so after SIGTERM too. `repro.errors.command` listens while its `main` runs. Before that, while `python -m repro.…`
imports what it needs, SIGTERM is told of and ends it at once.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
TAKES_UP = "the same command goes on from what is finished"
AGAIN_SECONDS = 1.0  # the same signal so soon is no second request: `timeout` and `make` may pass it on twice
PATIENCE_SECONDS = 60.0  # for what swallows the exception, or does not come to an end of its cleaning up
PARENT = os.getppid()  # that started this process; by the time it is watched, another may have its place

DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)
_came: list[tuple[int, float]] = []  # signals while `listening`, and when


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


def number_of(error: BaseException) -> int | None:
    """The signal that an exception comes of, or that came before it; None if there is none."""
    if isinstance(error, SystemExit) and error.code == signal.SIGTERM:  # Ray has put its own handler in place of ours
        return signal.SIGTERM
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
    return _came[0][0] if _came else None


def heed() -> None:
    """Raise again what a signal raised, if one came and the exception was swallowed, as by a library that tries
    imports, or in a callback: otherwise the work would go on as if nothing had been asked."""
    if _came:
        raise _exception(_came[0][0])


@contextmanager
def listening(tell: Callable[[int], Any]) -> Iterator[None]:
    """Inside, SIGINT and SIGTERM raise, in the main thread, where nobody else handles them. `tell` says which one came
    if the process has to be ended, because it goes on for PATIENCE_SECONDS."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stop, usual = _Stop(tell), {number: signal.getsignal(number) for number in WORDS}
    _came.clear()
    try:
        for number, handler in usual.items():
            if handler in (*DEFAULTS, _at_once) or (isinstance(handler, _Stop) and handler.process != os.getpid()):
                signal.signal(number, stop)
        yield
    finally:
        stop.overdue.cancel()
        _came.clear()
        for number, handler in usual.items():
            if signal.getsignal(number) is stop:
                signal.signal(number, signal.SIG_DFL if handler is _at_once else handler)


class _Stop:
    """The handler of both signals while a command runs."""

    def __init__(self, tell: Callable[[int], Any]):
        self.process, self.overdue = os.getpid(), threading.Timer(PATIENCE_SECONDS, self._end, [tell])
        self.overdue.daemon = True

    def __call__(self, number: int, frame: Any) -> None:
        if os.getpid() != self.process:  # forked from it, with work of another kind
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            return
        before = [at for each, at in _came if each == number]
        _came.append((number, time.monotonic()))
        if len(_came) == 1:
            self.overdue.start()
        if not before or time.monotonic() - before[-1] > AGAIN_SECONDS:
            raise _exception(number)

    def _end(self, tell: Callable[[int], Any]) -> None:
        number = _came[0][0]
        tell(number)
        os._exit(128 + number)


def _exception(number: int) -> KeyboardInterrupt:
    return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()


def _at_once(number: int, frame: Any) -> None:
    """For the seconds of the imports, when there is nothing to put away."""
    os.write(2, f"repro: {WORDS[number]}; {TAKES_UP}\n".encode())
    os._exit(128 + number)


def _is_ours(words: list[str]) -> bool:
    """Whether the interpreter runs `python -m repro.…`."""
    module = words[words.index("-m") + 1 :][:1] if "-m" in words else []
    return module != [] and module[0].split(".")[0] == "repro"


if _is_ours(sys.orig_argv) and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
    signal.signal(signal.SIGTERM, _at_once)
