"""Query plans: which queries, in which order, with which group size; decided before rollouts.

A plan is a function `(queries, rollouts_per_step, rng, *, parameters) -> iterator of PlannedGroup` in a module of the
same name. The iterator is infinite: each step takes as many groups as fit its budget (`fill_step`), and an arm that
refills its batch takes more.
"""

from collections.abc import Iterator
from dataclasses import dataclass

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

    @property
    def rate_Q(self) -> np.ndarray:
        """p̂, the success rate in the profile; ValueError without a profile."""
        if self.successes_Q is None:
            raise ValueError(
                "this plan needs a profile of the training queries (successes and samples of each), and there is none: "
                "give the arm `profile: {samples: 8}` in params.yaml, or the plan `uniform`"
            )
        return np.asarray(self.successes_Q) / np.asarray(self.samples_Q)


@dataclass(frozen=True)
class PlannedGroup:
    """One group: `query` is an index into the training pool, `size` the number of rollouts."""

    query: int
    size: int


class PlanStream:
    """A plan's groups as they are consumed; `taken` counts them, so a resumed run can skip those already used."""

    def __init__(self, groups: Iterator[PlannedGroup]):
        self._groups, self._waiting, self.taken = groups, None, 0

    def skip(self, count: int) -> None:
        """Skip the first `count` groups."""
        for _ in range(count):
            self._next()

    def fill_step(self, budget: int) -> list[PlannedGroup]:
        """The next groups, in order, while their rollouts fit into `budget`; the first that does not fit starts the
        next step. ValueError if not even one fits: no step could ever be filled."""
        step: list[PlannedGroup] = []
        used = 0
        while self.fits(budget - used):
            step.append(self._next())
            used += step[-1].size
        if not step:
            raise ValueError(f"plan: a group of {self._peek().size} rollouts does not fit a budget of {budget}")
        return step

    def fits(self, budget: int) -> bool:
        """Whether the next group fits into `budget` rollouts."""
        return self._peek().size <= budget

    def _peek(self) -> PlannedGroup:
        if self._waiting is None:
            self._waiting = next(self._groups)
        return self._waiting

    def _next(self) -> PlannedGroup:
        group, self._waiting = self._peek(), None
        self.taken += 1
        return group
