"""sGPO: one profile decides which queries are trained on, with what group size, in which order.

Sudalairaj, Xu, Srivastava and Giannone (2026), "sGPO: Trading Inference FLOPs for Training Efficiency in RLVR". Only
the abstract is known here: "removing trivial queries and sub-sampling unsolvable ones", a group size "the inverse of
this success rate", "scheduling queries from easy to hard". All else is an ASSUMPTION; this is the list.

p̂ = s/K, with s successes in K samples of the base policy.

1. Trivial is p̂ = 1, unsolvable p̂ = 0: "already solves" and "never solves" to the letter. A threshold in between
   would be a further parameter that the abstract does not name.

2. Sub-sampling keeps `unsolvable_share` of the unsolvable queries, rounded to the nearest whole number but at least one
   where the share is not 0. They are drawn anew each epoch, without replacement: it costs what a fixed subset costs,
   but K failures prove little, and with a fixed subset a query that the policy has learnt to solve meanwhile would
   never be seen. The share is a number of queries; of rollouts it is larger, by 4.

3. G = clip(⌈1/p̂⌉, `smallest`, `largest`): whole, rounded up, so that one success is expected. One rollout has no
   advantage within its group, so `smallest` is 2 or more; 2 is what all of p̂ ≥ ½ get. Such a group is not degenerate,
   but coarse: where its rewards differ, with probability 2p(1−p), its advantages are +1 and −1 whatever p is; else 0.

4. p̂ = 0 has no inverse: G is `largest`, the rule's limit. No other p̂ asks for more than K, so with K ≤ `largest` the
   unsolvable queries have the largest groups by far, and what is left of them by 2 can still take most rollouts.

5. Curriculum: every epoch runs from the highest p̂ to the lowest, ties in an order drawn anew each epoch. Later epochs
   start from the easiest again, by the same p̂, since there is one profile; hence an epoch's last steps hold
   unsolvable queries alone. Without the curriculum the order is random, as in `uniform`.

6. An epoch has each kept query once, and the next follows at once. Steps are filled in order (`PlanStream.fill_step`):
   groups are taken while they fit the rollouts of a step, and the first that does not opens the next step. So a step
   never exceeds its budget, falls short of it by less than one group, and may hold the end of one epoch and the start
   of the next (a query twice, then, where few are left). Packing steps to the brim would break the curriculum.

Each part can be switched off by itself: the filter by `drop_trivial` false and `unsolvable_share` 1, the group sizes by
`allocation` equal, the order by `curriculum` false. All off is `uniform`, group by group. Orders are drawn first and
for all queries, and what is sub-sampled comes from a generator of its own: at one seed an epoch without the curriculum
is `uniform`'s less the queries left out.

Other allocations, for comparison; filter and curriculum go by p̂ in all of them:

"shrunken"     3. with the posterior mean of p in place of p̂, for queries of p ~ Beta(α, β), fitted to the profile.

"informative"  the most groups with differing rewards that can be expected of the rollouts which "inverse" would spend
               on the same epoch. Equal rollouts per epoch and equal filter: only their division differs. A query that
               gets none is left out of that epoch; where equals compete, the order drawn decides.

"equal"        `group_size` rollouts for each.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.plans import PlannedGroup, Queries
from repro.methods.plans._group_sizes import Allocation, Bounds, group_sizes

Size = Annotated[int, Field(ge=2)]


def sgpo(
    queries: Queries,
    rollouts_per_step: int,
    rng: np.random.Generator,
    *,
    drop_trivial: bool = True,
    unsolvable_share: Annotated[float, Field(ge=0, le=1)] = 0.25,
    allocation: Allocation = "inverse",
    curriculum: bool = True,
    group_size: Size = 8,
    smallest: Size = 2,
    largest: Size = 32,
) -> "Epochs":
    """Epochs of groups, easy before hard, ⌈1/p̂⌉ rollouts each; see the module for every choice.

    `group_size` is for allocation "equal" alone, `smallest` and `largest` for the others. ValueError where there is no
    profile, a largest group exceeds a step's rollouts or is below the smallest, or the filter leaves no query.
    """
    rate_Q = queries.rate_Q
    name, most = ("group_size", group_size) if allocation == "equal" else ("largest", largest)
    if most > rollouts_per_step:
        raise ValueError(
            f"sgpo: {name} {most} does not fit the {rollouts_per_step} rollouts of a step; "
            f"lower it or raise engine.rollouts_per_step"
        )
    if allocation != "equal" and not 2 <= smallest <= largest:
        raise ValueError(f"sgpo: smallest {smallest} and largest {largest}: sizes need 2 ≤ smallest ≤ largest")
    trivial_Q, unsolvable_Q = rate_Q == 1, rate_Q == 0
    lots = _whole(unsolvable_share, int(unsolvable_Q.sum()))
    always_Q = ~unsolvable_Q & ~(trivial_Q & drop_trivial)
    if lots == 0 and not always_Q.any():
        raise ValueError(
            f"sgpo: the filter leaves none of {len(queries)} queries ({trivial_Q.sum()} trivial, {unsolvable_Q.sum()} "
            "unsolvable); set drop_trivial to false, raise unsolvable_share, or train on other queries"
        )
    sizes = group_sizes(queries, allocation, Bounds(smallest, largest, group_size))
    return Epochs(rate_Q, always_Q, lots, sizes, curriculum, rng, rng.spawn(1)[0])


@dataclass(eq=False)
class Epochs(Iterator[PlannedGroup]):
    """Groups without end, or by `draw` an epoch at a time.

    rate_Q decides the order, always_Q (bool) who is in every epoch; `lots` of those with rate 0 join each epoch.
    """

    rate_Q: np.ndarray
    always_Q: np.ndarray
    lots: int
    sizes: Callable[[np.ndarray], np.ndarray]
    curriculum: bool
    rng: np.random.Generator  # orders: one permutation of all queries an epoch, as `uniform` draws it
    lottery: np.random.Generator  # which unsolvable queries are kept
    _waiting: deque[PlannedGroup] = field(default_factory=deque)

    def __next__(self) -> PlannedGroup:
        if not self._waiting:
            self._waiting.extend(self.draw())
        return self._waiting.popleft()

    def draw(self) -> list[PlannedGroup]:
        """The next epoch: every kept query once."""
        kept_Q = self.always_Q.copy()
        kept_Q[self.lottery.choice(np.flatnonzero(self.rate_Q == 0), self.lots, replace=False)] = True
        order_E = self.rng.permutation(len(self.rate_Q))
        order_E = order_E[kept_Q[order_E]]
        if self.curriculum:
            order_E = order_E[np.argsort(-self.rate_Q[order_E], kind="stable")]
        pairs = zip(order_E.tolist(), self.sizes(order_E).tolist(), strict=True)
        return [PlannedGroup(query, size) for query, size in pairs if size > 0]


def _whole(share: float, count: int) -> int:
    """`share` of `count`, rounded; at least 1 where neither is 0."""
    return max(int(share * count + 0.5), 1) if share > 0 and count > 0 else 0
