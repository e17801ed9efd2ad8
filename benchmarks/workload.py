"""The work of every competitor, from settings.yaml. Runs on the code of bbba75f too."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from repro import settings
from repro.tasks.queries import Query, QueryPools, make_pools

FIXED = yaml.safe_load(Path(__file__).with_name("settings.yaml").read_text())
RACE = FIXED["race"]
ROLLOUTS, GROUP = RACE["engine"]["rollouts_per_step"], RACE["group"]
UPDATES = ROLLOUTS // RACE["engine"]["minibatch"]  # optimiser steps per batch

_of_params = cache(settings.load)


def section(name: str, **changes: Any) -> Any:
    """A section of the settings in the schema of the code that runs, with the values fixed here, then `changes`."""
    return getattr(_of_params(scale="cpu"), name).model_copy(update=FIXED[name] | changes)


@cache
def pools() -> QueryPools:
    """The training and held-out queries."""
    task = _of_params(scale="cpu").task
    return make_pools(type(task).model_validate(task.model_dump() | FIXED["task"]))


def race_queries() -> list[Query]:
    """The training queries in the order in which the race takes them, shuffled, since the pool is sorted by family."""
    train = pools().train
    return [train[index] for index in np.random.default_rng(0).permutation(len(train))]
