"""Train a language model with the embedded engine: few-shot prompts, and a response that ends with its line.

The engine, the arms and the verifier are those of every other run; only the queries, and what ends a response, differ.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from repro.engine.backends.load import fetch
from repro.engine.run import Run, check_device
from repro.engine.runs import checkpoints_of
from repro.engine.train import Data, Trainer
from repro.engine.workers import map_in_workers
from repro.experiments.language_model.profile import newline_token
from repro.experiments.language_model.queries import draw_pools
from repro.policy.model import load_policy
from repro.protocol.log import Log
from repro.settings import Settings


def policy_of(settings: Settings) -> Path:
    """The folder of the language model. ModelMissing with the remedy where it is not to be had."""
    return fetch(settings.language_model.source, settings.engine.dtype)


def load(folder: Path, settings: Settings) -> tuple[Any, Any]:
    """(model, tokenizer), for which a newline is the end of a response."""
    model, tokenizer = load_policy(folder, settings.engine.device, settings.engine.dtype)
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(newline_token(tokenizer))
    return model, tokenizer


def train_runs(runs: Sequence[Run], say: Callable[[str], None] = print) -> dict[tuple[str, int], Log]:
    """Train every run, `engine.workers` at a time, and return their logs by (arm, seed); finished runs and checkpoints
    of an earlier, interrupted call with the same fingerprint are reused."""
    missing = [run for run in runs if checkpoints_of(run).finished() is None]
    if missing:
        say(f"{len(missing)} runs of a language model, {missing[0].settings.engine.workers} at a time")
        map_in_workers(_train, [cloudpickle.dumps(run) for run in missing], missing[0].settings.engine.workers)
    return {(run.arm, run.seed): checkpoints_of(run).finished() for run in runs}


def _train(pickled: bytes) -> None:
    run: Run = cloudpickle.loads(pickled)
    checkpoints = checkpoints_of(run)

    def tell(step: int, accuracy: float | None) -> None:
        if accuracy is not None:
            print(f"{run.arm}  seed {run.seed}  step {step:>3}  accuracy {accuracy:.3f}", flush=True)

    checkpoints.finish(make_trainer(run).train(checkpoints, tell))
    (run.folder / "state.pt").unlink(missing_ok=True)  # gigabytes, of which nothing is read any more


def make_trainer(run: Run) -> Trainer:
    """The trainer of a run before its first step, of an arm without a profile."""
    settings, engine = run.settings, run.settings.engine_of(run.arm)
    check_device(engine.device, engine.dtype)
    (model, tokenizer), (reference, _) = (load(run.policy, settings) for _ in range(2))
    pools = draw_pools(settings)
    data = Data(pools.train, pools.evaluation, run.start)
    return Trainer(run.method, engine, settings.evaluation, model, reference, tokenizer, data, run.seed)
