"""One reward of several as what tells rollouts apart: for filters, and for samplers that keep the most varied ones.

Of a sum every group varies: a bonus for length alone makes a zero-variance filter keep them all, and PODS and D³S keep
the shortest and the longest. With `signal_reward` they read the reward of that name; what is trained on keeps the
advantages of the sum. Samplers that weight what they draw, such as cost-aware ones, go by the sum's advantages.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from repro.errors import brief
from repro.methods.guard import name_of
from repro.methods.rollouts import Rollouts
from repro.settings import SettingsError, nearest

VARIED = ("zero_variance", "snr", "pass_rate_band", "pods", "d1s", "d1s_c", "d2s", "d3s", "d3s_i")


def index_of(name: Any, names: Sequence[str]) -> int | None:
    """The place of a reward function among those of a trainer; None for no name. SettingsError if there is none."""
    if name is None:
        return None
    if names.count(name) != 1:
        known = nearest(name, dict.fromkeys(names)) if isinstance(name, str) else f": they are {', '.join(names)}"
        raise SettingsError(f"signal_reward {brief(name)} is the name of no reward function, or of several{known}")
    return names.index(name)


def reading(sampler: Callable, trainer: Any) -> Callable:
    """The sampler, which sees the named reward and its advantages of the trainer's `_batch`. Those that it leaves as
    they are become the sum's; where it makes new ones, as PODS of what it keeps, they are made of the sum."""
    if (name := name_of(sampler)) not in VARIED:
        return sampler

    def named(rollouts: Rollouts, progress: float, rng: np.random.Generator) -> Rollouts:
        batch, seen = trainer._batch, rollouts.row_N
        named_N = trainer._advantages(batch, batch.named_N)
        shown = {"rewards_N": batch.named_N[seen], "advantages_N": named_N[seen]}
        chosen = sampler(replace(rollouts, **shown), progress, rng)
        rows = chosen.row_N
        kept = np.array_equal(chosen.advantages_N, named_N[rows])
        advantages_M = trainer._advantages_N[rows] if kept else trainer._advantages(batch, batch.rewards_N, rows)
        return replace(chosen, rewards_N=batch.rewards_N[rows], advantages_N=advantages_M)

    named.__name__ = name
    return named
