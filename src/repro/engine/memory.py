"""The memory of a run: groups that outlive their step, with the log-probabilities with which they were drawn."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from repro.engine.collect import Drawn, Groups, join
from repro.engine.generate import Responses
from repro.methods.memories import Remembered
from repro.methods.plans import PlannedGroup


def ages(age_N: np.ndarray) -> dict[str, float]:
    """How many of a batch's rollouts were drawn in earlier steps, and the mean age of all, in steps."""
    return {"replayed_rollouts": int((age_N > 0).sum()), "age": float(age_N.mean()) if len(age_N) else float("nan")}


@dataclass
class Memory:
    """The groups that are held, if any, and the step in which each was drawn."""

    held: Drawn | None = None
    drawn_Q: list[int] = field(default_factory=list)

    def recall(
        self, step: int, fresh: Drawn | None, choose: Callable[[np.ndarray, np.ndarray, np.ndarray], Remembered]
    ) -> tuple[Drawn | None, np.ndarray]:
        """(the groups that train, those of the step first; age_N of their rollouts in steps), as the arm's memory
        chooses from (rewards_N, group_N, age_Q). None if there are none. What it holds is held from now on."""
        parts = [part for part in (fresh, self.held) if part is not None]
        if not parts:
            return None, np.zeros(0, int)
        whole, news = join(parts), 0 if fresh is None else len(fresh.planned)
        drawn_Q = np.array([step] * news + self.drawn_Q)
        age_Q = step - drawn_Q
        found = choose(whole.rewards_N, whole.group_N, age_Q)
        self.held = whole.keep(found.hold_Q) if found.hold_Q.any() else None
        self.drawn_Q = drawn_Q[found.hold_Q].tolist()
        if not found.train_Q.any():
            return None, np.zeros(0, int)
        groups = whole.keep(found.train_Q)
        return groups, age_Q[found.train_Q][groups.group_N]

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint keeps of it."""
        if self.held is None:
            return None
        groups = self.held
        return {
            "drawn": self.drawn_Q,
            "planned": [(group.query, group.size) for group in groups.planned],
            "responses": vars(groups.responses),
            "texts": groups.texts,
            "verdicts": groups.verdicts_N.tolist(),
            "rewards": groups.rewards_N.tolist(),
        }

    @classmethod
    def of(cls, state: dict[str, Any] | None) -> "Memory":
        """The inverse of `state`."""
        if state is None:
            return cls()
        held = Groups(
            [PlannedGroup(*group) for group in state["planned"]],
            Responses(**state["responses"]),
            state["texts"],
            np.array(state["verdicts"]),
            np.array(state["rewards"]),
        )
        return cls(held, state["drawn"])
