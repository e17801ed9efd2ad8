"""One batch of scored rollouts: the plan's groups, generated and verified, and refilled if the arm filters groups."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from repro.methods.method import Method
from repro.methods.plans import PlannedGroup, PlanStream


class Drawn:
    """Groups with their responses, as any engine holds them: `planned`, with the sizes drawn, rewards_N as used
    in training, and costs_N in prompt + response tokens; rows in the groups' order. An engine's own class has also

        taken(rows, planned)   the rows of these groups, in that order
        joined(others)         with the groups of `others` after its own
    """

    planned: list[PlannedGroup]
    rewards_N: np.ndarray
    costs_N: np.ndarray

    @property
    def group_N(self) -> np.ndarray:
        """0, 0, …, 1, 1, …: the group of each rollout."""
        return np.repeat(np.arange(len(self.planned)), [group.size for group in self.planned])

    @property
    def signal_N(self) -> np.ndarray:
        """What filters and memories see: the rewards, unless an engine tells rollouts apart by another number."""
        return self.rewards_N

    @property
    def query_N(self) -> np.ndarray:
        """Each rollout's query, an index into the training pool."""
        return np.repeat([group.query for group in self.planned], [group.size for group in self.planned])

    def outcomes(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(query, rewards_G, costs_G in prompt + response tokens) of each group."""
        costs_N, ends = self.costs_N, np.cumsum([group.size for group in self.planned])
        for group, end in zip(self.planned, ends, strict=True):
            own = slice(end - group.size, end)
            yield group.query, self.rewards_N[own].copy(), costs_N[own]

    def keep(self, keep_Q: np.ndarray) -> "Drawn":
        """Only the groups for which `keep_Q` is true."""
        rows = np.flatnonzero(np.asarray(keep_Q)[self.group_N])
        return self.taken(rows, [group for group, keep in zip(self.planned, keep_Q, strict=True) if keep])

    def grown(self, more_Q: Sequence[int], further: "Drawn") -> "Drawn":
        """With the groups of `further`, in order, at the end of those groups q whose `more_Q[q]` is not 0."""
        owner_N = np.concatenate([self.group_N, np.flatnonzero(more_Q)[further.group_N]])
        sizes_Q = np.bincount(owner_N, minlength=len(self.planned)).tolist()
        planned = [replace(group, size=size) for group, size in zip(self.planned, sizes_Q, strict=True)]
        return join([self, further]).taken(np.argsort(owner_N, kind="stable"), planned)


def join(parts: Sequence[Drawn]) -> Drawn:
    """Concatenate."""
    return parts[0].joined(parts[1:]) if len(parts) > 1 else parts[0]


Generate = Callable[[list[PlannedGroup]], Drawn]  # groups of size 0 are those of which an engine lost every rollout


def collect(
    method: Method, plan: PlanStream, step: int, budget: int, rounds: int, generate: Generate
) -> tuple[Drawn | None, list[Drawn]]:
    """(the batch, what was generated for it in each round). With a filter, or with groups in stages, the batch is
    refilled until it is full or the `rounds` are used up; None if no group passed."""
    seen, kept, size = [], [], 0
    for _ in range(rounds if method.filter or method.in_stages else 1):
        part = _with_stages(plan, plan.fill_step(budget - size), generate)
        seen.append(part)
        for outcome in part.outcomes():
            plan.observe(*outcome)
        choose = method.filter and part.planned
        kept.append(part.keep(method.kept_groups(step, part.signal_N, part.group_N)) if choose else part)
        size += len(kept[-1].rewards_N)
        if not plan.fits(budget - size):
            break
    return (join(kept) if size else None), seen


def _with_stages(plan: PlanStream, planned: list[PlannedGroup], generate: Generate) -> Drawn:
    """The groups with all the stages that the plan asks for."""
    groups, room = generate(planned), sum(group.later for group in planned)
    if not all(group.size for group in groups.planned):
        groups = groups.keep(np.array([group.size > 0 for group in groups.planned]))
    while room and groups.planned:
        queries_Q, rewards_Q, _ = zip(*groups.outcomes(), strict=True)
        more_Q = plan.more(list(queries_Q), list(rewards_Q), room)
        further = [PlannedGroup(query, more) for query, more in zip(queries_Q, more_Q, strict=True) if more]
        if not further:
            break
        groups = groups.grown(more_Q, generate(further))
        room -= sum(more_Q)
    return groups
