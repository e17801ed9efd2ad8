"""A method: the functions that distinguish one arm's training from another's."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """plan → rollouts → reward → filter → advantage → samplers → objective; signatures are documented in the packages
    of these names. `profile_again`: how often the queries are profiled again during training."""

    plan: Callable
    reward: Callable
    filter: Callable | None
    advantage: Callable
    samplers: list[Callable]
    objective: Callable
    aggregation: str
    profile_again: int = 0
