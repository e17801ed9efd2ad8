"""An arm trained by verl's own main loop, seed by seed, and its saved policies evaluated by the embedded engine.

Training is verl's entirely: Ray, replay queue, replica, FSDP2 worker. Evaluation is not: the policies that verl saves
every `engine.log_every` steps are sampled with the embedded engine's evaluation and the random streams that it uses for
the same seed and step. verl's loop knows only fixed steps; the embedded engine evaluates at fixed budgets, so that its
curve is read off at those steps (`summary.curves`).
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pandas as pd

from repro import paths
from repro.engine.snapshots import Checkpoint, load_checkpoint
from repro.engine.workers import map_in_workers
from repro.files import read_parquet, write_parquet, write_text
from repro.protocol.profile import hash_policy
from repro.protocol.streams import stream_seed
from repro.settings import Settings

DONE = "done"  # an empty file next to a finished run's tables


def train_kept(settings: Settings, policy: Path, output: Path | None, say: Callable[[str], None] = print) -> None:
    """Train `parity.arms` on verl and write evaluations.parquet and steps.parquet, column `arm` in front, to `output`.

    Runs stay in build/checkpoints until their tables are written, under a fingerprint of the stage's manifest and of
    the policy, so that an interrupted stage resumes. `output` None: in a scratch folder, from the beginning.
    """
    arms = settings.parity.arms
    if output is None:
        folder, profiles = paths.BUILD / "scratch" / f"parity-{os.getpid()}", None
    else:
        manifest = (paths.MANIFESTS / "parity_train.json").read_bytes()
        fingerprint = hashlib.sha256(manifest + hash_policy(policy).encode()).hexdigest()[:16]
        folder, profiles = paths.SCRATCH / f"parity-{fingerprint}", paths.PROFILE
    train_on_verl(arms, settings, policy, profiles, folder, at_once=settings.parity.at_once, say=say)
    tables = {
        "evaluations": evaluations_on_verl(arms, settings, folder),
        "steps": steps_on_verl(arms, settings, folder),
    }
    for name, table in tables.items():
        write_parquet(table, (output or folder) / f"{name}.parquet")
    if output is not None:
        shutil.rmtree(folder)


def train_on_verl(
    arms: Sequence[str],
    settings: Settings,
    policy: Path,
    profiles: Path | None,
    folder: Path,
    *,
    at_once: int,
    say: Callable[[str], None] = print,
) -> None:
    """Train `arms` with every seed of `parity.seeds`, `at_once` at a time, into `folder`. Finished runs there are left
    as they are, interrupted ones resume from their last checkpoint. RuntimeError names the log of a run that failed."""
    wanted = [(arm, seed) for arm in arms for seed in settings.parity.seeds]
    missing = [run for run in wanted if not (_place(folder, *run) / DONE).exists()]
    started: list[subprocess.Popen] = []
    began = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        tasks = {pool.submit(_train, *run, settings, policy, profiles, folder, started): run for run in missing}
        try:
            for count, task in enumerate(as_completed(tasks), 1):
                task.result()
                arm, seed = tasks[task]
                say(f"{arm} with seed {seed} trained on verl; {count} of {len(missing)} in {_since(began)}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in started:
                process.terminate()
            raise


def _train(
    arm: str, seed: int, settings: Settings, policy: Path, profiles: Path | None, folder: Path, started: list
) -> None:
    place = _place(folder, arm, seed)
    place.mkdir(parents=True, exist_ok=True)
    write_text(settings.model_dump_json() + "\n", folder / arm / f"settings-{seed}.json")
    command = [sys.executable, "-m", "repro.verl", "--arm", arm, "--seed", str(seed), "--resume", "--end-with-parent"]
    command += ["--settings", str(folder / arm / f"settings-{seed}.json"), "--policy", str(policy)]
    command += ["--profiles", str(profiles)] if profiles else []
    command += ["--output", str(folder), "--until", str(_steps(settings, arm)), *_saving(settings)]
    log = folder / arm / f"seed-{seed}.log"
    with log.open("w") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT)
        started.append(process)
        code = process.wait()
    if code:
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
        raise RuntimeError(f"parity: verl failed on {arm} with seed {seed}: {''.join(last)} (the whole log: {log})")
    (place / DONE).touch()


def _steps(settings: Settings, arm: str) -> int:
    return min(settings.parity.steps, settings.steps_of(arm))


def _saving(settings: Settings) -> list[str]:
    """verl's settings to save a policy for every evaluation, and evaluate none itself."""
    return [
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
        f"trainer.save_freq={settings.engine.log_every}",
        "actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]",
    ]


def evaluations_on_verl(arms: Sequence[str], settings: Settings, folder: Path) -> pd.DataFrame:
    """The evaluations of the policies that `train_on_verl` left in `folder`: arm, seed, step, samples, accuracy,
    response_tokens, truncated. The base policy's is not among them."""
    snapshots = []
    for arm in arms:
        last, every = settings.steps_of(arm), settings.engine.log_every
        trained = _steps(settings, arm)
        steps = sorted({*range(every, trained + 1, every)} | ({last} if trained == last else set()))
        for seed in settings.parity.seeds:
            for step in steps:
                place = _place(folder, arm, seed) / "checkpoints" / f"global_step_{step}" / "actor" / "huggingface"
                samples = settings.evaluation.final_samples if step == last else settings.evaluation.samples
                snapshots.append((Checkpoint(arm, seed, step, place, None, settings), samples))
    return pd.DataFrame(map_in_workers(_evaluate, snapshots, settings.engine.workers))


def _evaluate(saved: tuple[Checkpoint, int]) -> dict[str, Any]:
    """A policy that verl has saved, with so many samples of a query."""
    from repro.engine.evaluate import evaluate, summary
    from repro.tasks.queries import make_pools

    checkpoint, samples = saved
    settings, known = checkpoint.settings, {name: getattr(checkpoint, name) for name in ("arm", "seed", "step")}
    if not checkpoint.policy.exists():
        raise RuntimeError(
            f"parity: the run of {checkpoint.arm} with seed {checkpoint.seed} on verl left no policy after step "
            f"{checkpoint.step}: it diverged; take other parity.arms or parity.seeds"
        )
    outcome = evaluate(
        *load_checkpoint(checkpoint),
        make_pools(settings.task, pretraining=False).evaluation,
        samples=samples,
        batch_rollouts=settings.evaluation.batch_rollouts,
        max_new_tokens=settings.engine.max_new_tokens,
        temperature=settings.evaluation.temperature,
        seed=stream_seed(checkpoint.seed, checkpoint.step, "evaluate"),
    )
    return known | summary(outcome, samples)


def steps_on_verl(arms: Sequence[str], settings: Settings, folder: Path) -> pd.DataFrame:
    """The `steps` tables of all runs, column `arm` in front."""
    parts = []
    for arm in arms:
        for seed in settings.parity.seeds:
            table = read_parquet(_place(folder, arm, seed) / "tables" / "steps.parquet", "dvc repro parity_train")
            table.insert(0, "arm", arm)
            parts.append(table)
    return pd.concat(parts, ignore_index=True)


def _place(folder: Path, arm: str, seed: int) -> Path:
    return Path(folder) / arm / f"seed-{seed}"


def _since(began: float) -> str:
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    return f"{minutes} min {seconds} s"
