"""Selection: the mathematics shared by samplers: max-variance subsets and importance-weighted draws."""

from typing import Annotated

from pydantic import Field

from repro.methods.rollouts import NoSignal, Rollouts

Share = Annotated[float, Field(gt=0, le=1)]


def require_signal(rollouts: Rollouts) -> Rollouts:
    """The same rollouts; NoSignal if every advantage is zero."""
    if not rollouts.advantages_N.any():
        raise NoSignal("every selected advantage is zero, so there is nothing to learn from; skip the update")
    return rollouts
