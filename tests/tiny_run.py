"""Whole runs of a tiny policy in this process: what the tests of training share."""

import copy
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
import torch

from repro.arms import build
from repro.engine import sample as sampling_module
from repro.engine import train as train_module
from repro.engine.checkpoint import Checkpoints
from repro.engine.train import Data, Trainer
from repro.policy.model import build_qwen2
from repro.settings import Arm, load
from repro.tasks.queries import QueryPools, make_pools
from repro.tasks.tokenizer import build_tokenizer

STEPS, GROUP, ROLLOUTS = 5, 8, 16
SETTINGS = load(scale="smoke")
ENGINE = SETTINGS.engine.model_copy(
    update=dict(
        steps=STEPS,
        rollouts_per_step=ROLLOUTS,
        minibatch=8,
        max_new_tokens=8,
        checkpoint_every=2,
        learning_rate=1e-2,
        kl_probe=8,
        log_every=2,
        kept_rollouts=ROLLOUTS,
    )
)
PLAIN = dict(budget_gflops=None, generation_gflops=None, greedy=False, common=False)
EVALUATION = SETTINGS.evaluation.model_copy(update=dict(**PLAIN, samples=2, final_samples=3))
ARMS = {
    name: Arm(title=name, about="", group="", **parts)
    for name, parts in {
        "grpo": {},
        "cost-aware": {"samplers": ["cost_aware"]},
        "random-subset": {"samplers": ["random_subset"]},
        "zvf": {"filter": "zero_variance"},
        "random-reward": {"reward": "coin_flip"},
    }.items()
}


@cache
def pools() -> QueryPools:
    """Of a seed of its own, with which no batch of `parity` is without signal, whatever the study's is."""
    sizes = dict(seed=0, train_queries=7, evaluation_queries=7, pretraining_queries=7)
    return make_pools(SETTINGS.task.model_copy(update=sizes))


def parity(texts, *_) -> np.ndarray:
    """An untrained policy solves nothing, so reward what it does half the time: an even number of symbols."""
    return np.array([1.0 - len(text) % 2 for text in texts])


def reward_with(monkeypatch, score: Callable) -> None:
    """Put `score` in the verifier's place, in training, evaluation and profiling."""
    for module in (train_module, sampling_module):
        monkeypatch.setattr(module, "score", score)


def new_trainer(
    arm: str | Arm = "grpo", seed: int = 0, evaluation=EVALUATION, start=None, snapshots=(), profile=None, **engine: Any
) -> Trainer:
    """A Trainer of an untrained policy, the same each time; `engine` replaces entries of ENGINE."""
    torch.manual_seed(0)
    model = build_qwen2(hidden=16, layers=1, heads=2, max_length=64).eval()
    method = build("an arm", arm if isinstance(arm, Arm) else ARMS[arm])
    data = Data(pools().train, pools().evaluation, start, profile, 1.5 if profile else 0.0)
    settings = ENGINE.model_copy(update=engine)
    reference, tokenizer = copy.deepcopy(model), build_tokenizer()
    return Trainer(method, settings, evaluation, model, reference, tokenizer, data, seed, snapshots)


def run(trainer: Trainer, checkpoints: Checkpoints, stop_at: int | None = None) -> dict:
    """Train, as if killed when step `stop_at` is reached; the log without its seconds."""

    def progress(step, accuracy):
        if step == stop_at:
            raise KeyboardInterrupt

    return comparable(trainer.train(checkpoints, progress))


def comparable(log) -> dict:
    """A log as plain tables that equal tables equal: without seconds, and NaNs, which differ from themselves, None."""
    tables = asdict(log)
    tables.pop("seconds")
    return {
        name: [{key: None if value != value else value for key, value in row.items()} for row in rows]
        for name, rows in tables.items()
    }


def weights(trainer: Trainer) -> list[list[float]]:
    return [parameter.flatten().tolist() for parameter in trainer.model.parameters()]
