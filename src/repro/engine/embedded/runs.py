"""All seeds of an arm, in parallel worker processes of one thread each; progress, resuming, tables."""

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd

from repro import arms
from repro.engine.embedded.checkpoint import Checkpoints
from repro.engine.embedded.train import Log, Trainer
from repro.files import write_parquet
from repro.policy.model import load_policy
from repro.settings import Settings
from repro.tasks.queries import make_pools

# glibc in the workers keeps freed memory instead of handing it back at every batch: 40 times fewer page faults.
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "1073741824", "MALLOC_MMAP_THRESHOLD_": "1073741824"}


@dataclass(frozen=True)
class Run:
    """One training run, as it is sent to a worker."""

    arm: str
    seed: int
    settings: Settings
    policy: Path
    checkpoints: Path
    fingerprint: str


def train_arm(
    arm: str, settings: Settings, policy: Path, checkpoints: Path, fingerprint: str, say: Callable[[str], None] = print
) -> dict[str, pd.DataFrame]:
    """Train every seed of `arm` and return its tables by name: steps, evaluations, questions, rollouts, seconds.

    Finished seeds and checkpoints of an earlier, interrupted call with the same fingerprint are taken up again; they
    are removed by `forget` once the tables are safe. Each line given to `say` is one evaluation: seed, step, accuracy,
    time left.
    """
    runs = [Run(arm, seed, settings, policy, checkpoints / f"seed-{seed}", fingerprint) for seed in settings.seeds]
    workers = min(settings.engine.workers, len(runs))
    for name, value in KEEP_MEMORY.items():
        os.environ.setdefault(name, value)
    context = get_context("spawn")
    news = context.Queue()
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_set_up_worker, initargs=(news,)) as pool:
        futures = [pool.submit(train_seed, run) for run in runs]
        try:
            for line in _progress(arm, futures, news, settings.engine.steps):
                say(line)
            logs = [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list((pool._processes or {}).values()):
                process.terminate()
            raise
    return {part.name: pd.DataFrame([row for log in logs for row in getattr(log, part.name)]) for part in fields(Log)}


def train_seed(run: Run) -> Log:
    """One run from where it was left; called in a worker. The parent gets (seed, step, accuracy or None)."""
    checkpoints = Checkpoints(run.checkpoints, run.fingerprint)
    if (log := checkpoints.finished()) is not None:
        _news.put((run.seed, run.settings.engine.steps, log.evaluations[-1]["accuracy"]))
        return log
    log = make_trainer(run).train(checkpoints, lambda step, accuracy: _news.put((run.seed, step, accuracy)))
    checkpoints.finish(log)
    return log


def make_trainer(run: Run) -> Trainer:
    """The trainer of a run at its first step."""
    settings = run.settings
    check_device(settings.engine.device)
    pools = make_pools(settings.task.model_copy(update={"pretraining_queries": 1}))
    model, tokenizer = load_policy(run.policy, settings.engine.device, settings.engine.dtype)
    reference, _ = load_policy(run.policy, settings.engine.device, settings.engine.dtype)
    method = arms.build(run.arm, settings.arm(run.arm))
    return Trainer(
        method,
        settings.engine,
        settings.evaluation,
        model,
        reference,
        tokenizer,
        pools.train,
        pools.evaluation,
        run.seed,
    )


def check_device(device: str) -> None:
    """RuntimeError in one sentence when the device that the settings ask for is not there."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            "engine.device is 'cuda', but torch sees no GPU here: set it to 'cpu', or install a CUDA torch"
        )


def write_tables(tables: dict[str, pd.DataFrame], data: Path, timings: Path) -> None:
    """`seconds` to `timings`, everything else, which is the same at every run, to `data`."""
    for name, table in tables.items():
        write_parquet(table, (timings if name == "seconds" else data) / f"{name}.parquet")


def forget(settings: Settings, checkpoints: Path) -> None:
    """Remove the checkpoints of all seeds, now that their tables are written."""
    for seed in settings.seeds:
        Checkpoints(checkpoints / f"seed-{seed}", "").remove()


_news: Any = None  # a worker's queue to its parent


def _set_up_worker(news: Any) -> None:
    import torch
    from transformers.utils import logging

    global _news
    _news = news
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)  # the parent was killed: nobody waits for the result, and the last checkpoint stays

    threading.Thread(target=watch, daemon=True).start()
    torch.set_num_threads(1)
    logging.disable_progress_bar()


def _progress(arm: str, futures: list[Future], news: Any, steps: int) -> Iterator[str]:
    """Lines for the evaluations as they come in, until every run is done or one has failed."""
    at: dict[int, int] = {}
    first: dict[int, int] = {}
    started = None  # the first news, not the call: workers import for seconds
    while True:
        done = all(future.done() for future in futures)
        failed = any(future.done() and future.exception() for future in futures)
        while True:
            try:
                seed, step, accuracy = news.get_nowait()
            except queue.Empty:
                break
            started = started or time.monotonic()
            first.setdefault(seed, step)
            at[seed] = step
            if accuracy is not None:
                fresh = sum(at.values()) - sum(first.values())
                missing = steps * len(futures) - sum(at.values())
                left = f", about {(time.monotonic() - started) / fresh * missing:.0f} s left" if fresh else ""
                yield f"{arm}  seed {seed}  step {step:>3}/{steps}  accuracy {accuracy:.3f}{left}"
        if done or failed:
            return
        wait(futures, timeout=0.2, return_when=FIRST_COMPLETED)
