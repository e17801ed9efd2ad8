"""Single-threaded worker processes for parallel work, and the watchdog that all processes share."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from typing import Any

from repro.errors import Refused

# glibc in the workers keeps freed memory instead of returning it at every batch: 40 times fewer page faults.
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "1073741824", "MALLOC_MMAP_THRESHOLD_": "1073741824"}


class WorkerLost(Refused, RuntimeError):
    """One sentence: which worker process ended before its work, and the remedy."""


def set_up_worker() -> None:
    """Called first in a worker: one thread, no progress bars, and exit when the parent process is gone."""
    owner = parent_process()  # not getppid, which is init's where the owner was gone before this line
    end_with(owner.pid if owner else os.getppid())  # before imports that take seconds
    import torch
    from transformers.utils import logging

    torch.set_num_threads(1)
    logging.disable_progress_bar()


@contextmanager
def starting() -> Iterator[None]:
    """Processes started inside do not see Ctrl-C, from their first import on: the one that started them ends them. Nor
    do they run the script that starts them once more, which may call for training without an `if __name__` of its
    own: all that they need is sent to them by value."""
    main, hidden = sys.modules["__main__"], ("__file__", "__spec__")
    kept = {name: getattr(main, name) for name in hidden if hasattr(main, name)}
    for name in kept:
        setattr(main, name, None)
    try:
        with _not_interrupted():
            yield
    finally:
        for name, value in kept.items():
            setattr(main, name, value)


@contextmanager
def _not_interrupted() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)  # one that came meanwhile comes now


def end_with(owner: int, cleanup: Callable[[], Any] = lambda: None) -> None:
    """Exit when process `owner` is gone, since its result is no longer needed."""
    import psutil

    try:
        process = psutil.Process(owner)
    except psutil.Error:
        process = None

    def alive() -> bool:
        try:  # by a time since the machine's start, which no change of its clock moves; a pid may be reused
            return process is not None and process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def watch() -> None:
        while alive():
            time.sleep(0.5)
        cleanup()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def keep_memory() -> None:
    """Let child processes keep freed memory."""
    for name, value in KEEP_MEMORY.items():
        os.environ.setdefault(name, value)


def map_in_workers(function: Callable[[Any], Any], items: Sequence[Any], workers: int) -> list[Any]:
    """[function(item) for item in items], `workers` at a time; the first failure terminates all of them."""
    if not items:
        return []
    keep_memory()
    try:
        with _pool(min(workers, len(items))) as pool:
            with starting():
                results = pool.map(function, items)  # starts the processes
            return list(results)
    except BrokenExecutor as error:
        raise WorkerLost(
            "a worker process was killed (out of memory?): run the same command again, with fewer engine.workers if it "
            "happens again"
        ) from error


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(workers, get_context("spawn"), set_up_worker)
    try:
        yield pool
    except BaseException:
        processes = list((pool._processes or {}).values())  # before the shutdown, which clears them
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        raise
    pool.shutdown(wait=True)
