"""One training run as a value that can be sent to a worker process, and its trainer."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repro.engine.measure import measure_profile
from repro.engine.train import Data, Trainer
from repro.errors import Refused
from repro.methods.method import Method
from repro.policy.adapters import load_learner
from repro.policy.model import NoPolicy
from repro.protocol.log import Log
from repro.protocol.profile import Profile, Source, hash_policy, hash_queries
from repro.settings import Engine, Settings
from repro.tasks.queries import Query, make_pools


@dataclass(frozen=True)
class Run:
    """One arm with one seed. `folder` holds its checkpoints and then its log; `fingerprint` identifies their settings,
    code and policy; `made` says where and when.

    `start`: the base policy's evaluation, if already known. `profiles`: the folder of the profiles used by arms with a
    profile, None to measure one in the run; `profile_seconds`: the time that one sample of every query took.
    """

    arm: str
    seed: int
    method: Method
    settings: Settings
    policy: Path
    start: dict[str, float] | None
    folder: Path
    fingerprint: str
    profiles: Path | None = None
    profile_seconds: float = 0.0
    made: Mapping[str, Any] = field(default_factory=dict)


def train_one(run: Run, checkpoints: Any, progress: Callable[[int, float | None], None]) -> Log:
    """Train one run, resuming from its checkpoint, and store its log with its checkpoints."""
    log = make_trainer(run).train(checkpoints, progress)
    checkpoints.finish(log, run.made)
    return log


def make_trainer(run: Run) -> Trainer:
    """The trainer of a run before its first step."""
    settings, arm = run.settings, run.settings.arm(run.arm)
    engine = settings.engine_of(run.arm)
    check_device(engine)
    pools = make_pools(settings.task, pretraining=False)
    model, tokenizer = load_learner(run.policy, engine, run.seed)
    if not all(bool(weights.isfinite().all()) for weights in model.parameters()):
        raise NoPolicy(f"{run.policy} has weights that are no finite numbers: make the policy again, or name another")
    reference, _ = load_learner(run.policy, engine, run.seed)
    profile, seconds = profile_for(run, reference, tokenizer, pools.train) if arm.profile else (None, 0.0)
    return Trainer(
        run.method,
        engine,
        settings.evaluation,
        model,
        reference,
        tokenizer,
        Data(pools.train, pools.evaluation, run.start, profile, seconds, pools.harder),
        run.seed,
        tuple(settings.snapshots_of(run.arm)),
    )


def profile_for(run: Run, model: Any, tokenizer: Any, queries: Sequence[Query]) -> tuple[Profile, float]:
    """The profile that the run's arm uses, and the seconds it took: the one of its seed that stage `profile` measured,
    cut to the arm's number of samples, or without stored profiles one measured here. ProfileError if it is of another
    policy or of other queries."""
    engine, samples = run.settings.engine_of(run.arm), run.settings.arm(run.arm).profile.samples
    source = Source(hash_policy(run.policy), hash_queries(queries), engine.temperature, engine.max_new_tokens, run.seed)
    if run.profiles is None:
        started, rollouts = time.process_time(), run.settings.evaluation.batch_rollouts
        profile = measure_profile(model, tokenizer, queries, source, samples=samples, batch_rollouts=rollouts)
        return profile, time.process_time() - started
    profile = Profile.load(run.profiles, f"seed-{run.seed}").check(source)
    return profile.first(samples), run.profile_seconds * samples


class NoDevice(Refused, RuntimeError):
    """One sentence: the device that the settings name is not here."""


def check_device(engine: Engine) -> None:
    """NoDevice if the device of the settings is not available, or training in their dtype would lose its steps."""
    import torch

    if engine.dtype != "float32" and engine.adapter is None:
        raise NoDevice(
            f"engine.dtype is {engine.dtype!r}, and this engine trains the weights as they are: AdamW's steps vanish "
            "in eight bits; set it to 'float32', train an adapter, or train on verl, which keeps float32 as well"
        )
    if engine.device == "cuda" and not torch.cuda.is_available():
        raise NoDevice("engine.device is 'cuda', but torch sees no GPU here: set it to 'cpu', or install a CUDA torch")
