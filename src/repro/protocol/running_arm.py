"""An arm in a run, on any engine: its plan, its memory and its choices, drawn by the run's streams."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from repro.methods.method import Method
from repro.methods.plans import PlanStream, Queries
from repro.methods.rollouts import Rollouts
from repro.protocol.collect import Drawn, Generate, collect
from repro.protocol.memory import Memory, ages
from repro.protocol.streams import stream_seed


class RunningArm:
    """method, seed, rollouts_per_step (the budget of a batch)
    plan, known, since   the plan, and what of the queries it was made from, before step `since`; None where the engine
                         chooses the queries itself
    memory               the groups that outlive their step

    An engine calls, in each step: `collected`, `recalled`, `select`, `minibatches`; with a checkpoint `state` and
    `restore`; and `make_plan` where it has profiled the queries again.
    """

    plan: PlanStream | None = None

    def __init__(self, method: Method, seed: int, rollouts_per_step: int, known: Queries | None):
        self.method, self.seed, self.rollouts_per_step, self.memory = method, seed, rollouts_per_step, Memory()
        if known is not None:
            self.make_plan(0, known)

    def rng(self, step: int, purpose: str) -> np.random.Generator:
        return np.random.default_rng(stream_seed(self.seed, step, purpose))

    def make_plan(self, step: int, known: Queries) -> None:
        """Make the plan from step `step` on, given what is `known` about the training queries at that point."""
        self.known, self.since = known, step
        self.plan = self.method.made_plan(step, known, self.rollouts_per_step, self.rng(step, "plan"))

    def profiled_before(self, steps: int) -> set[int]:
        """The steps before which an arm with `profile.again` profiles again, in a run of so many: equal parts."""
        parts = self.method.profile_again + 1
        return {round(part * steps / parts) for part in range(1, parts)} - {0, steps}

    @property
    def offered(self) -> Any:
        """What a round is filled from: the plan."""
        return self.plan

    def collected(self, step: int, rounds: int, generate: Generate) -> tuple[Any, list[Drawn]]:
        """(the step's batch, None if no group passed; everything generated for it): repro.protocol.collect."""
        return collect(self.method, self.offered, step, self.rollouts_per_step, rounds, generate)

    def recalled(self, step: int, fresh: Drawn | None) -> tuple[Any, dict[str, float]]:
        """(what trains of the step's groups and of those in memory, None if nothing does; how old it is). An arm
        without a memory trains on what is fresh."""
        if self.method.memory is None:
            return fresh, {}
        choose = partial(self.method.remembered, step, rng=self.rng(step, "memory"))
        batch, age_N = self.memory.recall(step, fresh, choose)
        return batch, ages(age_N)

    def select(self, step: int, rollouts: Rollouts, progress: float) -> Rollouts | None:
        """What the samplers choose, at this share of the run; None if there is nothing to learn from."""
        return self.method.select(step, rollouts, progress, self.rng(step, "sample"))

    def minibatches(self, step: int, selected: Rollouts, count: int, order: Any = None) -> list[Rollouts]:
        """Each row of `selected` trains once, in random `order`: `count` mini-batches, or as many as a sampler asks
        for, fewer where rows are."""
        order = self.rng(step, "shuffle").permutation(len(selected)) if order is None else order
        return [selected.take(rows) for rows in np.array_split(order, selected.minibatches or count) if len(rows)]

    def state(self) -> dict[str, Any]:
        """Of the plan, in plain values, for a checkpoint."""
        known = [None if part is None else np.asarray(part).tolist() for part in vars(self.known).values()]
        return {"known": known, "since": self.since, "taken": self.plan.taken, "observed": self.plan.observed}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Make that plan again, and take it through the same groups and observations."""
        known = (None if part is None else np.array(part) for part in state["known"])
        self.make_plan(state["since"], Queries(*known))
        self.plan.skip(state["taken"], state["observed"])
