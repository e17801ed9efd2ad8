"""Group sizes that maximise the total gain under a rollout budget, with diminishing returns per rollout.

A gain table gains_Q_G holds the gain of a group of each size in sizes_G for each query, for instance
`expected_informative` of its posterior. Size 0 (the query is left out) gains nothing and needs no column. A query's
first step, from nothing to its smallest group, is a lump; every later step is one rollout. Gains per rollout must not
increase along a query's steps. Taking the steps in decreasing order of gain per rollout is then optimal: exactly so if
every step fits (Fox 1966), and otherwise to within the gain of one lump.

Array names: Q queries (or classes of queries), G group sizes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from repro.methods.group_sizes.posterior import fit_population, gain_table, posterior
from repro.methods.group_sizes.rule import Array


def allocate(gains_Q_G: ArrayLike, sizes_G: Sequence[int], budget: int, *, drop: bool = True) -> NDArray[np.int64]:
    """sizes_Q: the group size of each query, 0 where it is left out; the sum is at most `budget` rollouts.

    With `drop` false every query gets at least the smallest size, and the result is an exact optimum. With `drop` true
    it is exact unless the budget was too small for some lump, and then within one lump of the optimum. Ties go to the
    earlier query. ValueError if a gain per rollout increases, or the budget is too small for the smallest groups.
    """
    steps = _steps(gains_Q_G, sizes_G)
    n_queries, lump = len(steps.density_Q_G), int(sizes_G[0])
    sizes_Q = np.zeros(n_queries, dtype=np.int64)
    if not drop:
        if budget < lump * n_queries:
            raise ValueError(
                f"{n_queries} groups of {lump} exceed the budget of {budget} rollouts; raise it or drop queries"
            )
        sizes_Q += lump
    left = budget - int(sizes_Q.sum())
    for step in steps.order:
        query, place = divmod(int(step), len(sizes_G))
        cost = int(steps.cost_G[place])
        if left == 0 or steps.density_Q_G[query, place] <= 0:
            break
        follows = sizes_Q[query] == sizes_G[place] - cost  # false if the lump did not fit or is already taken
        if follows and cost <= left:
            sizes_Q[query] += cost
            left -= cost
    return sizes_Q


def allocate_profile(
    successes_Q: ArrayLike,
    samples: int,
    sizes_G: Sequence[int],
    budget: int,
    *,
    population: tuple[float, float] | None = None,
    drop: bool = True,
) -> NDArray[np.int64]:
    """sizes_Q that maximise the expected number of informative groups, given successes in K samples; see `allocate`.

    `population` is the (α, β) of the queries' difficulty, fitted to the profile by default.
    """
    alpha, beta = population or fit_population(successes_Q, samples)
    a_Q, b_Q = posterior(successes_Q, samples, alpha, beta)
    return allocate(gain_table(a_Q, b_Q, sizes_G), sizes_G, budget, drop=drop)


@dataclass(frozen=True, eq=False)
class Frontier:
    """The greatest gain per query for each number of rollouts per query: a concave polyline (N + 1 corners)."""

    rollouts_N: Array
    gain_N: Array

    def gain(self, rollouts: ArrayLike) -> Array:
        """Gain at this many rollouts per query; constant beyond the last corner."""
        return np.interp(rollouts, self.rollouts_N, self.gain_N)

    def rollouts(self, gain: ArrayLike) -> Array:
        """Fewest rollouts per query for this gain; infinite if no number suffices."""
        return np.interp(gain, self.gain_N, self.rollouts_N, right=np.inf)

    def price(self, rollouts: float) -> float:
        """λ, the gain of one more rollout at this number of rollouts per query: the polyline's slope there."""
        place = int(np.searchsorted(self.rollouts_N, rollouts, side="right"))
        place = min(max(place, 1), len(self.rollouts_N) - 1)
        (before, after), (low, high) = (array[place - 1 : place + 1] for array in (self.rollouts_N, self.gain_N))
        return float((high - low) / (after - before))


def frontier(gains_Q_G: ArrayLike, sizes_G: Sequence[int], weights_Q: ArrayLike) -> Frontier:
    """The exact optimum for a large population: class Q is a fraction weights_Q of the queries, and may be split.

    Since every lump fits, the greedy order is optimal at every budget.
    """
    steps = _steps(gains_Q_G, sizes_G)
    weights_Q = np.asarray(weights_Q, dtype=np.float64)
    query_N, place_N = np.divmod(steps.order, len(sizes_G))
    cost_N = steps.cost_G[place_N] * weights_Q[query_N]
    gain_N = steps.density_Q_G[query_N, place_N] * cost_N
    return Frontier(np.concatenate([[0.0], np.cumsum(cost_N)]), np.concatenate([[0.0], np.cumsum(gain_N)]))


def sizes_at_price(gains_Q_G: ArrayLike, sizes_G: Sequence[int], price: float) -> NDArray[np.int64]:
    """sizes_Q: each query's size that maximises gain − price · rollouts, 0 if none pays; needs no shared budget."""
    taken_Q = (_steps(gains_Q_G, sizes_G).density_Q_G > price).sum(axis=1)
    return np.where(taken_Q > 0, np.asarray(sizes_G)[np.maximum(taken_Q, 1) - 1], 0)


@dataclass(frozen=True, eq=False)
class _Steps:
    cost_G: Array  # rollouts of each step
    density_Q_G: Array  # gain per rollout of each step
    order: NDArray[np.int64]  # flat indices into density_Q_G, best first; the steps of one query in order


def _steps(gains_Q_G: ArrayLike, sizes_G: Sequence[int]) -> _Steps:
    gains_Q_G, sizes_G = np.asarray(gains_Q_G, dtype=np.float64), np.asarray(sizes_G)
    if gains_Q_G.ndim != 2 or gains_Q_G.shape[1] != len(sizes_G) or gains_Q_G.size == 0:
        raise ValueError(
            f"gains have shape {gains_Q_G.shape} for {len(sizes_G)} sizes: give a row per query, a column per size"
        )
    cost_G = np.diff(sizes_G, prepend=0)
    if cost_G[0] < 1 or (cost_G[1:] != 1).any():
        raise ValueError("group sizes must be consecutive whole numbers, from 1 or more")
    if not np.isfinite(gains_Q_G).all():
        raise ValueError("every gain must be finite")
    density_Q_G = np.diff(gains_Q_G, axis=1, prepend=0.0) / cost_G
    if (rise := np.diff(density_Q_G, axis=1).max(initial=0.0)) > 1e-9 * np.abs(density_Q_G).max() + 1e-10:
        raise ValueError(f"gains per rollout rise by {rise:.3g} along a query: being greedy on them is not optimal")
    density_Q_G = np.minimum.accumulate(density_Q_G, axis=1)  # already decreasing, up to rounding
    return _Steps(cost_G, density_Q_G, np.argsort(-density_Q_G, axis=None, kind="stable"))
