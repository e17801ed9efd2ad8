"""The memory of a run: groups that outlive their step, with the log-probabilities with which they were drawn."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from repro.methods.memories import Remembered
from repro.protocol.collect import Drawn, join


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
        chooses from (signal_N, group_N, age_Q). None if there are none. What it holds is held from now on."""
        parts = [part for part in (fresh, self.held) if part is not None]
        if not parts:
            return None, np.zeros(0, int)
        whole, news = join(parts), 0 if fresh is None else len(fresh.planned)
        drawn_Q = np.array([step] * news + self.drawn_Q)
        age_Q = step - drawn_Q
        found = choose(whole.signal_N, whole.group_N, age_Q)
        self.held = whole.keep(found.hold_Q) if found.hold_Q.any() else None
        self.drawn_Q = drawn_Q[found.hold_Q].tolist()
        if not found.train_Q.any():
            return None, np.zeros(0, int)
        groups = whole.keep(found.train_Q)
        return groups, age_Q[found.train_Q][groups.group_N]

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint keeps of it, if it keeps plain values: those of the groups are their own `state`."""
        return None if self.held is None else {"drawn": self.drawn_Q, "held": self.held.state()}

    @classmethod
    def of(cls, state: dict[str, Any] | None, held_of: Callable[[Any], Drawn]) -> "Memory":
        """The inverse of `state`, and `held_of` of the groups'."""
        return cls() if state is None else cls(held_of(state["held"]), state["drawn"])
