"""What a run depends on, as one short key.

A run is asked for by its settings, arm, seed and base policy. What of these its numbers depend on is hashed into
`asks`; what its code computes is named by golden steps (repro.runs.golden). Titles, the number of workers or of
checkpoints, and the other arms are no part of it, so that an edit asks for other runs exactly where it changes numbers.
"""

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from repro.protocol.profile import hash_policy, hash_queries
from repro.settings import SCHEDULING, WORDS, Arm, Settings
from repro.tasks.queries import QueryPools, make_pools

OF_THE_STUDY = {*WORDS, "seeds", "engine"}  # of an arm: words, which seeds, and what the engine's settings include


@dataclass(frozen=True, eq=False)
class Asked:
    """One run that is asked for. `policy`: the folder of its base policy."""

    settings: Settings
    arm: str
    seed: int
    policy: Path

    @cached_property
    def depends_on(self) -> dict[str, Any]:
        """All that its numbers depend on, but for the base policy's weights, the code and the kind of CPU."""
        settings, entry = self.settings, self.settings.arm(self.arm)
        engine, evaluation, described = settings.engine_of(self.arm), settings.evaluation, settings.policy
        asks = {
            "arm": parts_of(entry),
            "seed": self.seed,
            "engine": engine.model_dump(mode="json", exclude=set(SCHEDULING)),
            "evaluation": evaluation.model_dump(mode="json"),
            "queries": queries_of(settings),
        }
        if evaluation.temperature == engine.temperature:  # the first evaluation is of the base policy's own samples
            asks["start"] = [described.describe_groups, described.group_size, described.seed]
        if entry.profile:  # an arm uses the first of these samples, which are drawn together
            asks["profile"] = settings.profile.samples
        return asks

    @cached_property
    def asks(self) -> str:
        """The hash of `depends_on` and of the base policy."""
        return digest(self.depends_on, policy_of(self.policy))


def every_seed(settings: Settings, names: Iterable[str], policy: Path) -> list[Asked]:
    """The runs of the arms `names`, with each of their seeds."""
    return [Asked(settings, name, seed, policy) for name in names for seed in settings.seeds_of(name)]


def digest(*parts: Any) -> str:
    """16 hexadecimal digits of the hash of JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def parts_of(entry: Arm) -> dict[str, Any]:
    """The fields of an arm that its numbers depend on; a function stands there as its source."""
    parts = entry.model_dump(exclude=OF_THE_STUDY)
    return json.loads(json.dumps(parts, default=_source))


def has_functions(entry: Arm) -> bool:
    """Whether a part of the arm is a function, as in a notebook, and no name."""
    return any(callable(part) for _, part, _ in entry.calls)


def _source(function: Callable) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):  # none is at hand; what it computes is part of the key all the same
        return getattr(function, "__qualname__", type(function).__qualname__)


def queries_of(settings: Settings) -> str:
    """The hash of the queries to train on and held out."""
    return _of_task(settings.task.model_dump_json(exclude={"pretraining_queries"}), type(settings.task))


@cache
def _of_task(task: str, kind: type) -> str:
    return _hash(make_pools(kind.model_validate({**json.loads(task), "pretraining_queries": 1}), pretraining=False))


def _hash(pools: QueryPools) -> str:
    parts = [pools.train, pools.evaluation, *([pools.harder] if pools.harder else [])]
    return digest(*map(hash_queries, parts))


def policy_of(folder: Path) -> str:
    """The hash of the base policy's weights."""
    stamps = tuple(sorted((str(path), path.stat().st_mtime_ns) for path in Path(folder).glob("*.safetensors")))
    return _weights(folder, stamps)


@cache
def _weights(folder: Path, stamps: tuple) -> str:
    return hash_policy(folder)[:16]
