"""An arm trained by verl's own main loop, seed by seed, and its saved policies evaluated by the embedded engine.

Training is verl's entirely: Ray, replay queue, replica, FSDP2 worker. Evaluation is not: the policies that each engine
saves every `engine.log_every` steps are sampled with the embedded engine's evaluation and the random streams that it
uses for the same seed and step. Read off between its own evaluations its curve would be too low: it is concave.
"""

import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from repro import paths
from repro.engine.snapshots import Checkpoint, load_checkpoint
from repro.engine.workers import map_in_workers
from repro.files import write_parquet, write_text
from repro.protocol.streams import stream_seed
from repro.settings import Settings


def train_kept(settings: Settings, policy: Path, output: Path | None, say: Callable[[str], None] = print) -> None:
    """Train `parity.arms` on verl, one run after the other, and write evaluations.parquet to `output`: arm, seed, step,
    samples, accuracy, response_tokens, truncated. The base policy's evaluation is not among them. `output` None:
    profile the queries again, and write nothing. RuntimeError says how a run ended that failed."""
    paths.BUILD.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=paths.BUILD, prefix="parity-") as folder:
        saved = []
        for arm in settings.parity.arms:
            for seed in settings.parity.seeds:
                _train(arm, seed, settings, policy, paths.PROFILE if output else None, Path(folder))
                saved += _saved(arm, seed, settings, Path(folder))
                say(f"{arm} with seed {seed} trained on verl")
        evaluations = pd.DataFrame(map_in_workers(_evaluate, saved, settings.engine.workers))
    if output is not None:
        write_parquet(evaluations, output / "evaluations.parquet")


def _train(arm: str, seed: int, settings: Settings, policy: Path, profiles: Path | None, folder: Path) -> None:
    asked = folder / "settings.json"
    write_text(settings.model_dump_json() + "\n", asked)
    command = [sys.executable, "-m", "repro.verl", "--arm", arm, "--seed", str(seed), "--end-with-parent"]
    command += ["--settings", str(asked), "--policy", str(policy), "--output", str(folder)]
    command += ["--profiles", str(profiles)] if profiles else []
    command += ["--until", str(_steps(settings, arm)), *_saving(settings)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode:
        raise RuntimeError(f"parity: verl failed on {arm} with seed {seed}: {done.stdout[-4000:]}")


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


def _evaluated_at(settings: Settings, arm: str) -> list[int]:
    last, every, trained = settings.steps_of(arm), settings.engine.log_every, _steps(settings, arm)
    return sorted({*range(every, trained + 1, every)} | ({last} if trained == last else set()))


def _saved(arm: str, seed: int, settings: Settings, folder: Path) -> list[Checkpoint]:
    """The policies that a run left in `folder`."""
    saved = []
    for step in _evaluated_at(settings, arm):
        policy = folder / arm / f"seed-{seed}" / "checkpoints" / f"global_step_{step}" / "actor" / "huggingface"
        if not policy.exists():
            raise RuntimeError(f"parity: {arm} with seed {seed} diverged on verl before step {step}: take another one")
        saved.append(Checkpoint(arm, seed, step, policy, None, settings))
    return saved


def on_the_embedded_engine(settings: Settings, policy: Path, folders: Mapping[tuple[str, int], Path]) -> pd.DataFrame:
    """As evaluations.parquet, of this engine's runs with `parity.seeds`, and of the start, step 0, which is common.
    `folders`: of each arm and seed (repro.training.weights)."""
    saved = []
    for arm, seed in product(settings.parity.arms, settings.parity.seeds):
        of_step = {step: folders[arm, seed] / f"step-{step}.safetensors" for step in _evaluated_at(settings, arm)}
        saved += [Checkpoint(arm, seed, step, policy, of_step.get(step), settings) for step in (0, *of_step)]
    return pd.DataFrame(map_in_workers(_evaluate, saved, settings.engine.workers))


def _evaluate(checkpoint: Checkpoint) -> dict[str, Any]:
    from repro.engine.evaluate import evaluate, summary
    from repro.tasks.queries import make_pools

    settings, samples = checkpoint.settings, checkpoint.settings.evaluation.final_samples
    outcome = evaluate(
        *load_checkpoint(checkpoint),
        make_pools(settings.task, pretraining=False).evaluation,
        samples=samples,
        batch_rollouts=settings.evaluation.batch_rollouts,
        max_new_tokens=settings.engine.max_new_tokens,
        temperature=settings.evaluation.temperature,
        seed=stream_seed(checkpoint.seed, checkpoint.step, "evaluate"),
    )
    known = {"arm": checkpoint.arm, "seed": checkpoint.seed, "step": checkpoint.step}
    return known | summary(outcome, samples)
