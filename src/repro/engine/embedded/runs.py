"""Many runs in parallel worker processes of one thread each: progress, resuming, working ahead, tables."""

import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd

from repro import arms
from repro.engine.embedded.checkpoint import Checkpoints
from repro.engine.embedded.log import Log
from repro.files import write_parquet
from repro.settings import Settings

# glibc in the workers keeps freed memory instead of handing it back at every batch: 40 times fewer page faults.
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "1073741824", "MALLOC_MMAP_THRESHOLD_": "1073741824"}


@dataclass(frozen=True)
class Run:
    """One training run, as it is sent to a worker; `folder` keeps its checkpoints until its tables are written."""

    arm: str
    seed: int
    settings: Settings
    policy: Path
    start: dict[str, float] | None
    folder: Path
    fingerprint: str

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.folder, self.fingerprint)


def train_runs(
    runs: Sequence[Run], ahead: Sequence[Run] = (), say: Callable[[str], None] = print
) -> dict[tuple[str, int], Log]:
    """Train every run, `engine.workers` at once, and return their logs by (arm, seed).

    Finished runs and checkpoints of an earlier, interrupted call with the same fingerprint are taken up again. While
    the last runs are under way, workers that have nothing left to do begin with `ahead`, runs that will be wanted
    later; when the last run ends they save what they have and stop, and whoever wants those runs goes on from there.
    Each line given to `say` is one evaluation: arm, seed, step, accuracy, time left.
    """
    logs = {(run.arm, run.seed): log for run in runs if (log := run.checkpoints.finished()) is not None}
    waiting = [run for run in runs if (run.arm, run.seed) not in logs]
    if not waiting:
        return logs
    for name, value in KEEP_MEMORY.items():
        os.environ.setdefault(name, value)
    context = get_context("spawn")
    news, stop = context.Queue(), context.Event()
    later = [run for run in ahead if run.checkpoints.finished() is None]
    workers = min(waiting[0].settings.engine.workers, len(waiting) + len(later))
    with ProcessPoolExecutor(workers, context, _set_up_worker, (news, stop)) as pool:
        wanted = {(run.arm, run.seed): pool.submit(train_one, run) for run in waiting}
        for run in later:
            pool.submit(train_one, run, True)
        try:
            for line in _progress(wanted, news, waiting[0].settings.engine.steps):
                say(line)
            for future in wait(wanted.values(), return_when=FIRST_EXCEPTION).done:
                future.result()  # a run that failed is heard at once, not after the healthy ones before it
            logs |= {key: future.result() for key, future in wanted.items()}
        except BaseException:
            processes = list((pool._processes or {}).values())  # before the shutdown, which forgets them
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
            raise
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
    return logs


def train_one(run: Run, ahead: bool = False) -> Log | None:
    """One run from where it was left; called in a worker. A run ahead of its time stops when asked, and gives None."""
    stop = _stop.is_set if ahead else lambda: False
    news = (lambda *_: None) if ahead else lambda step, accuracy: _news.put((run.arm, run.seed, step, accuracy))
    if stop():
        return None
    log = make_trainer(run).train(run.checkpoints, news, stop)
    if log is not None:
        run.checkpoints.finish(log)
    return log


def make_trainer(run: Run) -> Any:
    """The Trainer of a run at its first step."""
    from repro.engine.embedded.train import Data, Trainer
    from repro.policy.model import load_policy
    from repro.tasks.queries import make_pools

    settings = run.settings
    check_device(settings.engine.device)
    pools = make_pools(settings.task.model_copy(update={"pretraining_queries": 1}))
    model, tokenizer = load_policy(run.policy, settings.engine.device, settings.engine.dtype)
    reference, _ = load_policy(run.policy, settings.engine.device, settings.engine.dtype)
    return Trainer(
        arms.build(run.arm, settings.arm(run.arm)),
        settings.engine,
        settings.evaluation,
        model,
        reference,
        tokenizer,
        Data(pools.train, pools.evaluation, run.start),
        run.seed,
        tuple(settings.snapshots_of(run.arm)),
    )


def check_device(device: str) -> None:
    """RuntimeError in one sentence when the device that the settings ask for is not there."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            "engine.device is 'cuda', but torch sees no GPU here: set it to 'cpu', or install a CUDA torch"
        )


def tables_of(logs: Sequence[Log]) -> dict[str, pd.DataFrame]:
    """The tables of several runs by name: steps, evaluations, questions, rollouts, selection, seconds."""
    return {part.name: pd.DataFrame([row for log in logs for row in getattr(log, part.name)]) for part in fields(Log)}


def write_results(runs: Sequence[Run], logs: Sequence[Log], data: Path, timings: Path) -> None:
    """An arm's tables and snapshots: `seconds` to `timings`, everything else, the same at every run, to `data`."""
    for name, table in tables_of(logs).items():
        write_parquet(table, (timings if name == "seconds" else data) / f"{name}.parquet")
    for run in runs:
        wanted = run.settings.snapshots_of(run.arm)
        for step, path in run.checkpoints.snapshots().items():
            if step in wanted:
                target = data / "snapshots" / f"seed-{run.seed}-{path.name}"
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)


def forget(runs: Sequence[Run]) -> None:
    """Remove the checkpoints of runs whose tables are written."""
    for run in runs:
        run.checkpoints.remove()
        if run.folder.parent.exists() and not any(run.folder.parent.iterdir()):
            run.folder.parent.rmdir()


_news: Any = None  # a worker's queue to its parent
_stop: Any = None  # set when the runs that were asked for are done


def _set_up_worker(news: Any, stop: Any) -> None:
    import torch
    from transformers.utils import logging

    global _news, _stop
    _news, _stop = news, stop
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)  # the parent was killed: nobody waits for the result, and the last checkpoint stays

    threading.Thread(target=watch, daemon=True).start()
    torch.set_num_threads(1)
    logging.disable_progress_bar()


def _progress(wanted: dict[tuple[str, int], Future], news: Any, steps: int) -> Iterator[str]:
    """Lines for the evaluations as they come in, until every run is done or one has failed."""
    at: dict[tuple[str, int], int] = {}
    first: dict[tuple[str, int], int] = {}
    started = None  # the first news, not the call: workers import for seconds
    while True:
        done = all(future.done() for future in wanted.values())
        failed = any(future.done() and future.exception() for future in wanted.values())
        while True:
            try:
                arm, seed, step, accuracy = news.get_nowait()
            except queue.Empty:
                break
            started = started or time.monotonic()
            first.setdefault((arm, seed), step)
            at[arm, seed] = step
            if accuracy is not None:
                fresh = sum(at.values()) - sum(first.values())
                missing = steps * len(wanted) - sum(at.values())
                left = f", about {(time.monotonic() - started) / fresh * missing:.0f} s left" if fresh else ""
                yield f"{arm}  seed {seed}  step {step:>3}/{steps}  accuracy {accuracy:.3f}{left}"
        if done or failed:
            return
        # On those still under way only: with a finished one among them `wait` returns at once, and this would spin.
        wait([future for future in wanted.values() if not future.done()], timeout=0.5, return_when=FIRST_COMPLETED)
