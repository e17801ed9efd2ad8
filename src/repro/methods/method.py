"""A method: everything that distinguishes one arm's training from another's, as functions."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """plan → rollouts → reward → filter → advantage → samplers → objective; the packages of these names give the
    signatures. `profile_again`: how often the queries are profiled again while training."""

    plan: Callable
    reward: Callable
    filter: Callable | None
    advantage: Callable
    samplers: list[Callable]
    objective: Callable
    aggregation: str
    profile_again: int = 0
