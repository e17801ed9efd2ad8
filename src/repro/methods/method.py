"""A method: the functions that distinguish one arm's training from another's.

Every engine calls them here, so that what they do wrong is found, and told, in one place (repro.methods.guard).
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import signature
from itertools import count
from typing import Any

import numpy as np

from repro.errors import brief
from repro.methods.guard import MethodError, array_of, call, is_whole, name_of, token_loss
from repro.methods.lengths import Lengths
from repro.methods.memories import Remembered
from repro.methods.plans import PlannedGroup, PlanStream, Queries
from repro.methods.rollouts import NoSignal, Rollouts
from repro.methods.samplers import apply_chain

MOST_HELD = 4096  # groups of a memory


@dataclass(frozen=True)
class Method:
    """plan → rollouts → reward → filter → memory → advantage → samplers → objective; signatures are documented in the
    packages of these names. `profile_again`: how often the queries are profiled again during training. `arm`: its name.

    The methods below take the step, counted from 0, which an error names with the arm.
    """

    plan: Callable
    reward: Callable
    filter: Callable | None
    advantage: Callable
    samplers: list[Callable]
    objective: Callable
    aggregation: str
    profile_again: int = 0
    arm: str = ""
    memory: Callable | None = None

    @contextmanager
    def _at(self, step: int) -> Iterator[None]:
        try:
            yield
        except MethodError as error:
            if error.where:
                raise
            raise MethodError(error.said, f"arm {self.arm}, step {step}" if self.arm else f"step {step}") from error

    def made_plan(self, step: int, known: Queries, budget: int, rng: np.random.Generator) -> PlanStream:
        """The plan's groups from `step` on, `budget` rollouts a step."""
        with self._at(step):
            groups, name = call("plan", self.plan, known, budget, rng, rng=rng), name_of(self.plan)
            tell, ask = (getattr(groups, part, None) for part in ("observe", "more"))
            if (tell or ask) and not self.learns:
                raise MethodError(f"plan {name} returns what observes outcomes: give the class itself as the plan")
            tell, ask = tell and partial(self._told, step, tell), ask and partial(self._asked, step, ask)
            return PlanStream(self._groups(step, groups, len(known), budget), tell, ask)

    def _told(self, step: int, tell: Callable, *outcome: Any) -> None:
        with self._at(step):
            call("plan", tell, *outcome, name=f"{name_of(self.plan)}.observe")

    def _asked(
        self, step: int, ask: Callable, queries_Q: list[int], rewards_Q: list[np.ndarray], room: int
    ) -> list[int]:
        name = f"{name_of(self.plan)}.more"
        with self._at(step):
            more_Q = call("plan", ask, queries_Q, rewards_Q, room, name=name)
            whole = isinstance(more_Q, Sequence) and all(is_whole(more) and more >= 0 for more in more_Q)
            if not whole or len(more_Q) != len(queries_Q) or sum(more_Q) > room:
                raise MethodError(
                    f"plan {name} returned {brief(more_Q)}; it should return a list of {len(queries_Q)} whole numbers, "
                    f"one for each group, at most {room} together"
                )
        return list(map(int, more_Q))

    @property
    def learns(self) -> bool:
        """Whether the plan learns from what its groups earn, or draws them in stages (repro.methods.plans)."""
        return self.in_stages or hasattr(getattr(self.plan, "func", self.plan), "observe")

    @property
    def in_stages(self) -> bool:
        """Whether the plan may ask for more rollouts of a group on seeing the first."""
        return hasattr(getattr(self.plan, "func", self.plan), "more")

    def _groups(self, step: int, groups: Any, queries: int, budget: int) -> Iterator[PlannedGroup]:
        """The plan's groups, each checked when its turn comes."""
        with self._at(step):
            try:
                stream = iter(groups)
            except TypeError:
                raise MethodError(f"plan {name_of(self.plan)} returned {brief(groups)}; yield PlannedGroups") from None
        for place in count():
            with self._at(step):
                group = call(
                    "plan",
                    partial(next, stream, None),
                    rng=zlib.crc32(b"%d %d" % (step, place)),
                    name=name_of(self.plan),
                )
                if group is None:
                    said = f"ended after {place} groups; it should go on without end, epoch after epoch"
                elif not isinstance(group, PlannedGroup):
                    said = f"yields {brief(group)}; it should yield PlannedGroup(query, size)"
                elif not all(is_whole(number) for number in (group.query, group.size, group.later)):
                    said = f"yields {brief(group)}; its query and size should be whole numbers"
                elif not (0 <= group.query < queries and group.size >= 1 and group.later >= 0):
                    said = f"yields {brief(group)}; queries are 0 to {queries - 1}, and a group has at least 1 rollout"
                elif group.largest > budget:
                    said = f"yields a group of {group.largest}, beyond the {budget} rollouts of a step: make it smaller"
                else:
                    said = ""
                if said:
                    raise MethodError(f"plan {name_of(self.plan)} {said}")
            yield group

    def rewards(self, step: int, verdicts_N: np.ndarray, rng: np.random.Generator, lengths: Lengths) -> np.ndarray:
        """rewards_N: what training sees of the verifier's verdicts."""
        with self._at(step):
            rewards_N = call("reward", self.reward, verdicts_N, rng, *_if_named(self.reward, lengths), rng=rng)
            return array_of("reward", self.reward, rewards_N, np.shape(verdicts_N))

    def kept_groups(self, step: int, rewards_N: np.ndarray, group_N: np.ndarray) -> np.ndarray:
        """keep_Q (bool) of the arm's filter, groups in sorted order."""
        with self._at(step):
            keep_Q, groups = call("filter", self.filter, rewards_N, group_N), len(np.unique(group_N))
            what = "one entry per group, groups in sorted order"
            return array_of("filter", self.filter, keep_Q, (groups,), what=what).astype(bool)

    def remembered(
        self, step: int, rewards_N: np.ndarray, group_N: np.ndarray, age_Q: np.ndarray, rng: np.random.Generator
    ) -> Remembered:
        """Which groups train and which are held, by the arm's memory; groups in sorted order."""
        with self._at(step):
            found = call("memory", self.memory, rewards_N, group_N, age_Q, rng, rng=rng)
            if not isinstance(found, Remembered):
                raise MethodError(f"memory {name_of(self.memory)} returned {brief(found)}; it should return Remembered")
            what = "train_Q and hold_Q with one entry per group, groups in sorted order"
            masks = (found.train_Q, found.hold_Q)
            train_Q, hold_Q = (
                array_of("memory", self.memory, mask_Q, np.shape(age_Q), what=what).astype(bool) for mask_Q in masks
            )
            if hold_Q.sum() > MOST_HELD:
                name = name_of(self.memory)
                raise MethodError(f"memory {name} holds {hold_Q.sum()} groups; hold at most {MOST_HELD}")
            return Remembered(train_Q, hold_Q)

    def advantages(self, step: int, rewards_N: np.ndarray, group_N: np.ndarray, lengths: Lengths) -> np.ndarray:
        """advantages_N."""
        with self._at(step):
            advantages_N = call("advantage", self.advantage, rewards_N, group_N, *_if_named(self.advantage, lengths))
            return array_of("advantage", self.advantage, advantages_N, np.shape(rewards_N))

    def select(self, step: int, rollouts: Rollouts, progress: float, rng: np.random.Generator) -> Rollouts | None:
        """What the samplers choose; None if nothing is left to learn from, and the update is skipped."""
        with self._at(step):
            try:
                return apply_chain(self.samplers, rollouts, progress, rng)
            except NoSignal:
                return None

    def token_loss(self, step: int, *tensors: Any) -> Any:
        """The objective's TokenLoss of (logprob_N_T, old_logprob_N_T, advantages_N, mask_N_T)."""
        with self._at(step):
            return token_loss(self.objective, *tensors)


def _if_named(function: Callable, lengths: Lengths) -> tuple[Lengths, ...]:
    """What a function is given last: the lengths, if its signature names them."""
    return (lengths,) if "lengths" in signature(function).parameters else ()
