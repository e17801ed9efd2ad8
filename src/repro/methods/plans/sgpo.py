"""sGPO: one profile decides which queries are trained on, with which group size, in which order.

Sudalairaj, Xu, Srivastava and Giannone (2026), "sGPO: Trading Inference FLOPs for Training Efficiency in RLVR". Only
the abstract was available to us: "removing trivial queries and sub-sampling unsolvable ones", a group size "the inverse
of this success rate", "scheduling queries from easy to hard". Everything else is an ASSUMPTION, listed here.

p̂ = s/K, with s successes in K samples of the base policy. The headline arm, `sgpo` in params.yaml, has the allocation
"shrunken" below, by 4, and the loss of 7.

1. Trivial means p̂ = 1, unsolvable p̂ = 0: "already solves" and "never solves", taken literally.

2. Sub-sampling keeps `unsolvable_share` of the unsolvable queries, rounded to the nearest whole number but at least one
   if the share is not 0. They are redrawn each epoch, without replacement, so that a query that the policy has since
   learnt to solve is seen. The share refers to queries; measured in rollouts it is larger, because of 4.

3. G = clip(⌈1/p̂⌉, `smallest`, `largest`), allocation "inverse", rounded up so that one success is expected. A single
   rollout has no advantage within its group, so `smallest` is at least 2, the size for all p̂ ≥ ½.

4. p̂ = 0 has no inverse. Under "inverse" G is then `largest`, the rule's limit; no other p̂ asks for more than K, so with
   K ≤ `largest` the unsolvable queries have by far the largest groups. Allocation "shrunken" puts the posterior mean of
   p in place of p̂, for queries with p ~ Beta(α, β), fitted to the profile: no group is larger than the samples
   support. `unsolvable` sets their size apart from either rule; panel surface varies it.

5. Curriculum: every epoch runs from the highest p̂ to the lowest, ties in an order redrawn each epoch, by the one
   profile; an epoch's last steps hold only unsolvable queries. Without it the order is random, as in `uniform`.

6. An epoch visits each kept query once, and the next follows immediately. Steps are filled in order
   (`PlanStream.fill_step`): the first group that does not fit starts the next step, so a step falls short of its
   budget by less than one group, and may span two epochs.

7. The loss gives every group the same weight, GRPO's mean over queries of 1/G Σ over the group: aggregation
   `group-mean`. This is the arm's choice, not the plan's; arm `sgpo-per-rollout` weighs each rollout alike
   (`sequence-mean`).

Each part can be switched off separately: the filter by `drop_trivial` false and `unsolvable_share` 1, the group sizes
by `allocation` equal, the order by `curriculum` false. With all off, this is `uniform`, group by group. Orders are
drawn first and for all queries, and sub-sampling uses a separate generator: at a given seed, an epoch without the
curriculum is that of `uniform` without the dropped queries.

Other allocations, for comparison; filter and curriculum use p̂ in all of them:

"informative"  the most groups with differing rewards in expectation, for the number of rollouts that "shrunken" would
               spend on the same epoch. Rollouts per epoch and filter are equal; only the allocation differs. A query
               that gets none is left out of that epoch; ties are broken by the order drawn.

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
    unsolvable: Size | None = None,
) -> "Epochs":
    """Epochs of groups, easy before hard, ⌈1/p̂⌉ rollouts each; the module explains every choice.

    `group_size` applies to allocation "equal" only, `smallest` and `largest` to the others, `unsolvable` to "inverse"
    and "shrunken": the group size of a query with p̂ = 0, in place of the allocation's. ValueError without a profile, if
    the largest group exceeds a step's rollouts or is below the smallest, or if the filter drops everything.

    >>> profile = Queries(np.array([8, 8, 8]), successes_Q=np.array([8, 4, 1]), samples_Q=np.array([8, 8, 8]))
    >>> sgpo(profile, 32, np.random.default_rng(0)).draw()
    [PlannedGroup(query=1, size=2), PlannedGroup(query=2, size=8)]
    """
    rate_Q = queries.rate_Q
    if unsolvable is not None and allocation not in ("inverse", "shrunken"):
        raise ValueError(f"sgpo: unsolvable {unsolvable} has no meaning with allocation {allocation}; leave it out")
    own = {"group_size": group_size} if allocation == "equal" else {"largest": largest, "unsolvable": unsolvable or 0}
    name, most = max(own.items(), key=lambda entry: entry[1])
    if most > rollouts_per_step:
        raise ValueError(
            f"sgpo: {name} {most} does not fit the {rollouts_per_step} rollouts of a step; "
            f"lower it or raise engine.rollouts_per_step"
        )
    if allocation != "equal" and not 2 <= smallest <= largest:
        raise ValueError(f"sgpo: smallest {smallest} and largest {largest}: sizes need 2 ≤ smallest ≤ largest")
    trivial_Q, unsolvable_Q = rate_Q == 1, rate_Q == 0
    lots = whole(unsolvable_share, int(unsolvable_Q.sum()))
    always_Q = ~unsolvable_Q & ~(trivial_Q & drop_trivial)
    if lots == 0 and not always_Q.any():
        raise ValueError(
            f"sgpo: the filter leaves none of {len(queries)} queries ({trivial_Q.sum()} trivial, {unsolvable_Q.sum()} "
            "unsolvable); set drop_trivial to false, raise unsolvable_share, or train on other queries"
        )
    sizes = group_sizes(queries, allocation, Bounds(smallest, largest, group_size, unsolvable))
    return Epochs(rate_Q, always_Q, lots, sizes, curriculum, rng, rng.spawn(1)[0])


@dataclass(eq=False)
class Epochs(Iterator[PlannedGroup]):
    """An infinite stream of groups; `draw` returns one epoch at a time.

    rate_Q determines the order, always_Q (bool) the queries of every epoch; `lots` of those with rate 0 join each one.
    """

    rate_Q: np.ndarray
    always_Q: np.ndarray
    lots: int
    sizes: Callable[[np.ndarray], np.ndarray]
    curriculum: bool
    rng: np.random.Generator  # orders: one permutation of all queries per epoch, as in `uniform`
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


def whole(share: float, count: int) -> int:
    """`share` of `count`, rounded; at least 1 unless one of them is 0."""
    return max(int(share * count + 0.5), 1) if share > 0 and count > 0 else 0
