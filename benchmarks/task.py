"""The task of both competitors: the same policy, the same prompts in the same order, the same work per batch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from repro import settings
from repro.paths import BUILD, POLICY
from repro.policy.base import make_base_policy
from repro.policy.model import save_policy
from repro.tasks.queries import Query, make_pools
from repro.tasks.tokenizer import build_tokenizer

GROUP = 8
ROLLOUTS = 256
MINIBATCH = 64
UPDATES = ROLLOUTS // MINIBATCH  # optimiser steps per batch
PRETRAINING_STEPS = 300  # of a substitute policy, if the pipeline has made none: enough for answers of every length


@dataclass(frozen=True)
class Task:
    """`queries` in the order in which both read them, ROLLOUTS / GROUP per batch; settings of scale cpu."""

    settings: Any
    queries: list[Query]

    @classmethod
    def load(cls) -> "Task":
        """The training pool of params.yaml, shuffled once, since the pool is sorted by difficulty."""
        chosen = settings.load(scale="cpu")
        pool = make_pools(chosen.task.model_copy(update={"pretraining_queries": 1})).train
        whole = len(pool) - len(pool) % (ROLLOUTS // GROUP)
        order = np.random.default_rng(0).permutation(len(pool))[:whole]
        return cls(chosen, [pool[index] for index in order])


def base_policy() -> Path:
    """Folder of the initial policy of both: the pipeline's, or a substitute of the same size, pre-trained once."""
    if (POLICY / "model" / "config.json").exists():
        return POLICY / "model"
    folder = BUILD / "benchmark" / "policy"
    if not (folder / "config.json").exists():
        chosen = settings.load(scale="cpu")
        policy = chosen.policy.model_copy(update={"source": None, "steps": PRETRAINING_STEPS, "threads": 1})
        model, _ = make_base_policy(policy, make_pools(chosen.task))
        save_policy(model, build_tokenizer(), folder)
    return folder
