"""Functions of others that their time limit does not end, since they catch what it raises or take its signal away: then
their process ends, in a sentence. One that is inside a single operation of C, as in 10 ** 10 ** 9, is not seen.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from repro.methods import guard
from repro.methods.guard import MethodError

GRACE = 30.0  # seconds beyond the limit of a call
PAUSE = 1.0  # between two looks
_started = threading.Event()


def watch(end: Callable[[MethodError], Any] | None = None) -> None:
    """Watch the calls of this process's main thread from now on; the first call of `watch` counts. `end` is told of one
    that does not end; without it, the process prints the sentence and exits, but for a notebook's, whose state is the
    user's."""
    interactive = "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None
    if not _started.is_set() and not (end is None and interactive):
        _started.set()
        threading.Thread(target=_watch, args=(end or _exit,), daemon=True).start()


def _watch(end: Callable[[MethodError], Any]) -> None:
    seen, looks = None, 0
    while True:
        time.sleep(PAUSE)
        call = _under_way()
        looks = looks + 1 if call is seen else 0  # not the time, which goes on while a process is suspended
        seen = call  # held, so that no later call gets its place in memory
        if call is not None and looks * PAUSE > guard.SECONDS + GRACE:
            what = f"{call.f_locals['part']} {call.f_locals['name']} goes on after its {guard.SECONDS:.0f} s"
            cure = "let it end, catch no BaseException in it, and leave the signals alone"
            return end(MethodError(f"{what}, though it was interrupted: {cure}"))


def _under_way() -> FrameType | None:
    """The guard's call that the main thread is in."""
    frame = sys._current_frames().get(threading.main_thread().ident)
    while frame is not None and frame.f_code is not guard.call.__code__:
        frame = frame.f_back
    return frame


def _exit(error: MethodError) -> None:
    print(f"repro: {error}", file=sys.__stderr__, flush=True)
    os._exit(1)
