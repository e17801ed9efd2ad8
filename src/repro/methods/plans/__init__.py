"""Query plans: which queries, in which order, with which group size; decided before rollouts.

A plan is a function `(queries, rollouts_per_step, rng, *, parameters) -> iterable of PlannedGroup` in a module of the
same name. The groups are without end: each step takes as many as fit its budget (`fill_step`), and an arm that refills
its batch takes more.

A plan that learns while it trains is a class with the same arguments, whose `__iter__` yields the groups, and with

    observe(query, rewards_G, costs_G)     int; G training rewards; G costs, prompt + response tokens

which is called for every group that is generated, in order, those that a filter drops included, before the plan is
asked for the group after them. All its random numbers come from `rng`, so that a resumed run can take it through the
same groups and observations again.

Its groups may be drawn in stages: `PlannedGroup(query, size, later)` draws `size` rollouts and keeps room for `later`
more in the step. What is drawn in that room

    more(queries_Q, rewards_Q, room) → [further rollouts of each group]     at most `room` together; 0 ends a group

says on seeing the rewards of all groups drawn so far, again and again until it asks for none. It changes nothing: a
group is observed once, at its end, with the rewards of all stages. Room that is left is filled with further groups.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Queries:
    """What a plan may know about the training pool of Q queries.

    prompt_tokens_Q      int    tokens of each prompt
    successes_Q          int    successes in profiling the base policy; None for an arm that has no profile
    samples_Q            int    samples of each query in that profile; None without a profile
    """

    prompt_tokens_Q: np.ndarray
    successes_Q: np.ndarray | None = None
    samples_Q: np.ndarray | None = None

    def __post_init__(self):
        if self.successes_Q is None and self.samples_Q is None:
            return
        shapes = [np.shape(counts) for counts in (self.successes_Q, self.samples_Q)]  # () if missing
        if shapes != [(len(self),)] * 2:
            raise ValueError(
                f"queries: {len(self)} are trained on, but the profile's successes and samples have shapes {shapes[0]} "
                f"and {shapes[1]}: profile every query of the training pool, and no other"
            )
        successes_Q, samples_Q = np.asarray(self.successes_Q), np.asarray(self.samples_Q)
        if (bad := ~((samples_Q >= 1) & (successes_Q >= 0) & (successes_Q <= samples_Q))).any():
            query = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"queries: query {query} has {successes_Q[query]} successes in {samples_Q[query]} samples, which is no "
                "success rate in [0, 1]: profile it anew, with at least one sample"
            )

    def __len__(self) -> int:
        return len(self.prompt_tokens_Q)

    def groups_per_step(self, plan: str, rollouts_per_step: int, group_size: int) -> int:
        """The groups of one size that fill a step. ValueError, in the name of `plan`, if none do exactly, or only by
        asking a query twice."""
        groups, rest = divmod(rollouts_per_step, group_size)
        if rest or groups == 0:
            raise ValueError(
                f"{plan}: {rollouts_per_step} rollouts a step cannot be split into groups of {group_size}; "
                "make engine.rollouts_per_step a multiple of the group size"
            )
        if groups > len(self):
            raise ValueError(
                f"{plan}: a step of {groups} groups is more than the {len(self)} training queries; "
                "raise task.train_queries or lower engine.rollouts_per_step"
            )
        return groups

    @property
    def rate_Q(self) -> np.ndarray:
        """p̂, the success rate in the profile; ValueError without a profile."""
        if self.successes_Q is None:
            raise ValueError(
                "this plan needs a profile of the training queries (successes and samples of each), and there is none: "
                "give the arm `profile: {samples: 8}`, or the plan `uniform`"
            )
        return np.asarray(self.successes_Q) / np.asarray(self.samples_Q)


@dataclass(frozen=True)
class PlannedGroup:
    """One group: `query` is an index into the training pool, `size` the number of rollouts, `later` the room kept for
    further stages of the groups drawn with it."""

    query: int
    size: int
    later: int = field(default=0, repr=False)

    @property
    def largest(self) -> int:
        """The rollouts for which a step must have room."""
        return self.size + self.later


def epochs(queries: int, rng: np.random.Generator) -> Iterator[int]:
    """Each of `queries` queries once in random order, then again in another one, without end."""
    while True:
        yield from rng.permutation(queries).tolist()


Tell = Callable[[int, np.ndarray, np.ndarray], Any]
Ask = Callable[[list[int], list[np.ndarray], int], list[int]]


class PlanStream:
    """A plan's groups as they are consumed. A resumed run takes the first `taken` again, which `skip` does, and between
    them what was `observed`: (groups drawn before, query, rewards, costs) of each, for a plan that learns."""

    def __init__(self, groups: Iterator[PlannedGroup], tell: Tell | None = None, ask: Ask | None = None):
        self._groups, self._tell, self._ask = groups, tell, ask
        self._waiting: deque[PlannedGroup] = deque()
        self.taken, self.observed = 0, []

    def skip(self, count: int, observed: Sequence[tuple[int, int, list[float], list[int]]] = ()) -> None:
        """Skip the first `count` groups, and tell the plan what it `observed` when it had drawn as many as then."""
        for drawn, query, rewards, costs in observed:
            self._draw(drawn)
            self.observe(query, np.array(rewards), np.array(costs))
        for _ in range(count):
            self._next()

    def observe(self, query: int, rewards_G: np.ndarray, costs_G: np.ndarray) -> None:
        """Tell a plan that learns what one of its groups earned, and cost."""
        if self._tell is not None:
            self.observed.append((self.taken + len(self._waiting), query, rewards_G.tolist(), costs_G.tolist()))
            self._tell(query, rewards_G, costs_G)

    def more(self, queries_Q: list[int], rewards_Q: list[np.ndarray], room: int) -> list[int]:
        """How many further rollouts the plan wants of each group that was drawn so far, with `room` for them."""
        return self._ask(queries_Q, rewards_Q, room) if self._ask and room else [0] * len(queries_Q)

    def fill_step(self, budget: int) -> list[PlannedGroup]:
        """The next groups, in order, while their rollouts fit into `budget`; the first that does not fit starts the
        next step. ValueError if not even one fits: no step could ever be filled."""
        step: list[PlannedGroup] = []
        used = 0
        while self.fits(budget - used):
            step.append(self._next())
            used += step[-1].largest
        if not step:
            raise ValueError(f"plan: a group of {self._peek().largest} rollouts does not fit a budget of {budget}")
        return step

    def fits(self, budget: int) -> bool:
        """Whether the next group fits into `budget` rollouts. A full step does not draw it: its outcomes come first."""
        return budget > 0 and self._peek().largest <= budget

    def _draw(self, count: int) -> None:
        """Draw groups until there were `count`, taken or not."""
        while self.taken + len(self._waiting) < count:
            self._waiting.append(next(self._groups))

    def _peek(self) -> PlannedGroup:
        self._draw(self.taken + 1)
        return self._waiting[0]

    def _next(self) -> PlannedGroup:
        group = self._peek()
        self._waiting.popleft()
        self.taken += 1
        return group
