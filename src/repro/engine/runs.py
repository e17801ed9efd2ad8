"""Many runs in parallel worker processes of one thread each: progress, resuming, tables."""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from repro import arms
from repro.engine.checkpoint import Checkpoints
from repro.engine.crew import Crew, News
from repro.engine.log import Log
from repro.engine.standing import ask_standing_crew, pipeline_process
from repro.files import write_parquet
from repro.settings import Settings

if TYPE_CHECKING:
    from repro.engine.profile import Profile
    from repro.engine.train import Trainer
    from repro.tasks.queries import Query


@dataclass(frozen=True)
class Run:
    """One training run, as it is sent to a worker; `folder` keeps its checkpoints until its tables are written.

    `profiles`: the folder of the profiles that arms with a profile build on (repro.profiling), None to measure one on
    the spot; `profile_seconds`: what one sample of every query took there.
    """

    arm: str
    seed: int
    settings: Settings
    policy: Path
    start: dict[str, float] | None
    folder: Path
    fingerprint: str
    profiles: Path | None = None
    profile_seconds: float = 0.0

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.folder, self.fingerprint)


def train_runs(
    runs: Sequence[Run], later: Sequence[Run] = (), say: Callable[[str], None] = print
) -> dict[tuple[str, int], Log]:
    """Train every run, `engine.workers` at once, and return their logs by (arm, seed).

    Finished runs and checkpoints of an earlier, interrupted call with the same fingerprint are taken up again. In a
    stage of the pipeline the runs are trained by a crew that stands between stages, and that goes on with `later`, runs
    that will be wanted next. Each line given to `say` is one evaluation: arm, seed, step, accuracy, time left.
    """
    missing = [run for run in runs if run.checkpoints.finished() is None]
    if missing:
        for line in _progress(missing, _news_of(missing, later, say)):
            say(line)
    return {(run.arm, run.seed): run.checkpoints.finished() for run in runs}


def _news_of(runs: Sequence[Run], later: Sequence[Run], say: Callable[[str], None]) -> Iterator[News]:
    """From the standing crew where a pipeline runs, else from one of our own; the exception of a run that failed."""
    owner, size = pipeline_process() if later else None, runs[0].settings.engine.workers
    if owner is not None:
        try:
            for news in ask_standing_crew(owner, size, runs, later):
                yield _heard(news)
            return
        except ConnectionError as error:
            say(f"{error}: training here")
            runs = [run for run in runs if run.checkpoints.finished() is None]
    crew = Crew(min(size, len(runs)))
    try:
        crew.ask(runs)
        while not crew.idle:
            for news in crew.listen(0.5):
                yield _heard(news)
    finally:
        crew.dismiss()


def _heard(news: News) -> News:
    if news.kind == "failed":
        raise news.value  # at once, not after the healthy runs before it
    return news


def train_one(run: Run, progress: Callable[[int, float | None], None]) -> Log:
    """One run from where it was left; called in a worker. Its log is kept with its checkpoints."""
    log = make_trainer(run).train(run.checkpoints, progress)
    run.checkpoints.finish(log)
    return log


def make_trainer(run: Run) -> "Trainer":
    """The Trainer of a run at its first step."""
    from repro.engine.train import Data, Trainer
    from repro.policy.model import load_policy
    from repro.tasks.queries import make_pools

    settings, arm = run.settings, run.settings.arm(run.arm)
    check_device(settings.engine.device)
    pools = make_pools(settings.task.model_copy(update={"pretraining_queries": 1}))
    model, tokenizer = load_policy(run.policy, settings.engine.device, settings.engine.dtype)
    reference, _ = load_policy(run.policy, settings.engine.device, settings.engine.dtype)
    engine = settings.engine.model_copy(update={"steps": arm.steps or settings.engine.steps})
    profile, seconds = profile_for(run, reference, tokenizer, pools.train) if arm.profile else (None, 0.0)
    return Trainer(
        arms.build(run.arm, arm),
        engine,
        settings.evaluation,
        model,
        reference,
        tokenizer,
        Data(pools.train, pools.evaluation, run.start, profile, seconds),
        run.seed,
        tuple(settings.snapshots_of(run.arm)),
    )


def profile_for(run: Run, model: Any, tokenizer: Any, queries: Sequence["Query"]) -> tuple["Profile", float]:
    """The profile that the run's arm builds on, and the seconds that it took: its seed's, as stage `profile` measured
    it, of as many samples as the arm uses; or, where no profiles are kept, one measured on the spot. ProfileError where
    it is of another policy or of other queries."""
    from repro.engine.measure import measure_profile
    from repro.engine.profile import Profile, Source, hash_policy, hash_queries

    engine, samples = run.settings.engine, run.settings.arm(run.arm).profile.samples
    source = Source(hash_policy(run.policy), hash_queries(queries), engine.temperature, engine.max_new_tokens, run.seed)
    if run.profiles is None:
        started, rollouts = time.process_time(), run.settings.evaluation.batch_rollouts
        profile = measure_profile(model, tokenizer, queries, source, samples=samples, batch_rollouts=rollouts)
        return profile, time.process_time() - started
    profile = Profile.load(run.profiles, f"seed-{run.seed}").check(source)
    return profile.first(samples), run.profile_seconds * samples


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


def _progress(runs: Sequence[Run], news: Iterator[News]) -> Iterator[str]:
    """Lines for the evaluations as they come in."""
    steps = {run.folder: run.settings.steps_of(run.arm) for run in runs}
    at: dict[Path, int] = {}
    first: dict[Path, int] = {}
    started = None  # the first news, not the call: workers import for seconds
    for run, kind, value in news:
        if kind != "step":
            continue
        step, accuracy = value
        started = started or time.monotonic()
        first.setdefault(run.folder, step)
        at[run.folder] = step
        if accuracy is not None:
            fresh, missing = sum(at.values()) - sum(first.values()), sum(steps.values()) - sum(at.values())
            left = f", about {(time.monotonic() - started) / fresh * missing:.0f} s left" if fresh else ""
            yield f"{run.arm}  seed {run.seed}  step {step:>3}/{steps[run.folder]}  accuracy {accuracy:.3f}{left}"
