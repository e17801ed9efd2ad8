"""From an arm's names to the functions they stand for, parameters checked and bound.

Importing an arm imports its own plan, samplers and objective and no other's, so that an edit to one sampler concerns
the arms that use it and nothing else.
"""

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from pydantic import ConfigDict, ValidationError, create_model

from repro.paths import SOURCE
from repro.plans import Queries
from repro.settings import Arm, Settings, SettingsError, nearest


@dataclass(frozen=True)
class Method:
    """An arm ready to run; the packages of these names give the signatures."""

    plan: Callable
    advantage: Callable
    samplers: list[Callable]
    objective: Callable


def build(name: str, arm: Arm) -> Method:
    """The functions of an arm; SettingsError in one sentence when a name or a parameter is wrong."""
    bound = [(package, bind(name, package, call, parameters)) for package, call, parameters in arm.calls]
    by_package = {kind: [function for package, function in bound if package == kind] for kind, _ in bound}
    return Method(
        by_package["plans"][0],
        by_package["advantages"][0],
        by_package.get("samplers", []),
        by_package["objectives"][0],
    )


def check(settings: Settings) -> None:
    """Build every arm once and start its plan; SettingsError on the first that cannot be."""
    for name, arm in settings.arms.items():
        method = build(name, arm)
        queries = Queries(np.ones(settings.task.train_queries, int))
        try:
            method.plan(queries, settings.engine.rollouts_per_step, np.random.default_rng(0))
        except ValueError as error:
            raise SettingsError(f"params.yaml: arms.{name}: {error}") from None


def bind(arm: str, package: str, name: str, parameters: dict[str, Any]) -> Callable:
    """`repro.<package>.<name>.<name>` with its parameters bound, once they are checked against its signature."""
    where = f"params.yaml: arms.{arm}"
    if not name.isidentifier() or importlib.util.find_spec(f"repro.{package}.{name}") is None:
        helpers = ("_", "aggregate")
        known = sorted(path.stem for path in (SOURCE / package).glob("*.py") if not path.stem.startswith(helpers))
        raise SettingsError(f"{where}: src/repro/{package} has no module {name!r}{nearest(name, known)}")
    function = getattr(importlib.import_module(f"repro.{package}.{name}"), name, None)
    if not callable(function):
        raise SettingsError(f"{where}: src/repro/{package}/{name}.py should define a function {name!r}, its own name")
    signature = inspect.signature(function).parameters.values()
    keywords = {parameter.name: parameter for parameter in signature if parameter.kind is parameter.KEYWORD_ONLY}
    for key in parameters:
        if key not in keywords:
            raise SettingsError(f"{where}: {name} takes no parameter {key!r}{nearest(key, keywords)}")
    fields = {
        key: (Any if p.annotation is p.empty else p.annotation, ... if p.default is p.empty else p.default)
        for key, p in keywords.items()
    }
    schema = create_model(name, __config__=ConfigDict(extra="forbid", strict=True), **fields)
    try:
        return partial(function, **dict(schema(**parameters)))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise SettingsError(f"{where}: {name}.{key} is {first['input']!r}: {first['msg'].lower()}") from None
