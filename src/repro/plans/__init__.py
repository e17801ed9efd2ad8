"""Query plans: which queries, in which order, with what group size; decided before rollouts.

A plan is a function `(queries, budget, steps, rng, *, parameters) -> Plan`, alone in a module of its own name.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class PlannedGroup:
    """One group of one step: `query` is an index into the training pool, `size` the number of rollouts."""

    query: int
    size: int


Plan = list[list[PlannedGroup]]  # one list of groups per step
