"""What sGPO's rule, its parts and other rules gain on a population of queries: exact expectations, before any training.

A plan gives the queries whose profile has s successes in K samples a group size and the share of them that is kept.
Expectations are over p ~ Beta(α, β), the profile and the groups, for one pass over the queries with the policy that was
profiled; how the policy changes as it trains is left out. The readings of "the most advantage per rollout", and the
simulations, stand in notebooks/theory/group_size.ipynb.

Array names: S successes 0 ... K, G group sizes smallest ... largest, P success probabilities.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from repro.methods.group_sizes.allocation import Frontier, frontier, sizes_at_price
from repro.methods.group_sizes.posterior import (
    beta_binomial,
    expected_best_advantage,
    expected_informative,
    expected_mean_advantage,
    gain_table,
    posterior,
)
from repro.methods.group_sizes.rule import SMALLEST, Array, probabilities, rollouts, rule_size

KNOWN = 400  # equally likely success probabilities that represent the population where p is known


def informative(p: ArrayLike, size: int) -> Array:
    """I(p, G) = 1 − p^G − (1−p)^G, the probability that the group's rewards differ: without that, no gradient.

    p is a scalar or an array of any shape, G one whole number; ValueError where they are not. Rises with G by
    p^G (1−p) + (1−p)^G p, which is p(1−p) both from 2 to 3 and, per rollout, from nothing to 2, and falls from there
    on: I is concave over G = 0, 2, 3, ...
    """
    p, size = probabilities(p), rollouts(size)
    if size < SMALLEST:
        return np.zeros_like(p)
    with np.errstate(divide="ignore"):  # p = 1: log(0), and no reward differs
        return -np.expm1(size * np.log1p(-p)) - p**size


def over_sizes(value: Callable[[ArrayLike, int], Array], p_P: ArrayLike, sizes_G: Sequence[int]) -> Array:
    """values_P_G: value(p, G) for each p and each group size."""
    return np.stack([value(p_P, int(size)) for size in sizes_G], axis=-1)


@dataclass(frozen=True)
class Population:
    """Queries with p ~ Beta(alpha, beta), each profiled with K = `samples`; the group sizes that a plan may use.

    `uniform` is the fixed size that a plan is compared with, `unsolvable_share` what sGPO keeps of p̂ = 0, `passes` the
    times that a query is trained on per profile, `profile_price` a profiling rollout in units of a training rollout.
    """

    alpha: float
    beta: float
    samples: int
    uniform: int
    smallest: int
    largest: int
    unsolvable_share: float
    passes: float
    profile_price: float

    def __post_init__(self):
        if not 2 <= self.smallest <= min(self.uniform, self.largest):
            raise ValueError(
                f"smallest {self.smallest}, uniform {self.uniform}, largest {self.largest}: need 2 ≤ smallest, and no "
                "other size below it"
            )

    @property
    def sizes_G(self) -> range:
        return range(self.smallest, self.largest + 1)

    @cached_property
    def weights_S(self) -> Array:
        """Share of queries by successes in the profile."""
        return beta_binomial(self.alpha, self.beta, self.samples)

    @cached_property
    def posterior_S(self) -> tuple[Array, Array]:
        return posterior(np.arange(self.samples + 1), self.samples, self.alpha, self.beta)

    @cached_property
    def gains_S_G(self) -> Array:
        """Informative groups that a query of each class brings at each size."""
        return gain_table(*self.posterior_S, self.sizes_G)

    @cached_property
    def best(self) -> Frontier:
        """The most that any plan can bring that knows the profile and the population."""
        return frontier(self.gains_S_G, self.sizes_G, self.weights_S)

    @cached_property
    def known(self) -> Frontier:
        """The most that a plan could bring that knew every p."""
        p_P = betaincinv(self.alpha, self.beta, (np.arange(KNOWN) + 0.5) / KNOWN)
        return frontier(over_sizes(informative, p_P, self.sizes_G), self.sizes_G, np.full(KNOWN, 1 / KNOWN))

    @cached_property
    def unprofiled(self) -> Frontier:
        """The most with one size for all queries: a mix of two neighbouring sizes between whole ones."""
        return frontier(gain_table([self.alpha], [self.beta], self.sizes_G), self.sizes_G, [1.0])


@dataclass(frozen=True, eq=False)
class Plan:
    """Group size and share kept, by successes in the profile; `profiled`: whether it needs the profile at all."""

    title: str
    sizes_S: NDArray[np.int64]
    kept_S: Array
    profiled: bool = True


def plans(population: Population) -> dict[str, Plan]:
    """Uniform, sGPO and its parts, the same filter with other sizes, and the best plan at the rollouts of "sgpo".

    "bayes", the study's sGPO: p̂ = 1 dropped, `unsolvable_share` of p̂ = 0 kept, clip(⌈1/E[p | s]⌉) rollouts. "sgpo", its
    sensitivity, as the formula stands: clip(⌈K/s⌉), the largest size for p̂ = 0. "equal" gives the filtered queries one
    size, the whole number nearest to the rollouts of "sgpo".
    """
    K, bounds = population.samples, (population.smallest, population.largest)
    success_S = np.arange(K + 1)
    every_S = np.ones(K + 1)
    filtered_S = np.where(success_S == K, 0.0, np.where(success_S == 0, population.unsolvable_share, 1.0))
    uniform_S = np.full(K + 1, population.uniform)
    mean_S = population.posterior_S[0] / sum(population.posterior_S)
    inverse_S = rule_size(success_S / K, *bounds)
    table = {
        "uniform": Plan(f"uniform, {population.uniform} each", uniform_S, every_S, profiled=False),
        "filter": Plan("filter alone", uniform_S, filtered_S),
        "allocation": Plan("allocation alone", inverse_S, every_S),
        "sgpo": Plan("sGPO, ⌈1/p̂⌉", inverse_S, filtered_S),
        "strict": Plan("sGPO, p̂ = 0 dropped", inverse_S, np.where(success_S == 0, 0.0, filtered_S)),
        "shrunken": Plan("⌈(K+1)/(s+1)⌉", rule_size((success_S + 1) / (K + 1), *bounds), filtered_S),
        "bayes": Plan("sGPO, ⌈1/E[p | s]⌉", rule_size(mean_S, *bounds), filtered_S),
    }
    spent = _rollouts(table["sgpo"], population)
    equal = int(np.clip(round(spent / (population.weights_S @ filtered_S)), *bounds))
    table["equal"] = Plan(f"filter, {equal} each", np.full(K + 1, equal), filtered_S)
    price = population.best.price(spent)
    best_S = sizes_at_price(population.gains_S_G, population.sizes_G, price)
    return table | {"best": Plan("best for the posterior", best_S, every_S)}


def compare(population: Population) -> pd.DataFrame:
    """One row per plan (index): title and, per query and pass, what it spends and gains.

    Spent: rollouts, and the profile's cost in rollouts. Gained: informative groups; advantage, the mean |A| per
    rollout; greatest, the greatest advantage of a group per rollout; of_best, informative groups over the most that
    these rollouts can bring. Savings are the factor by which uniform groups cost more, the profile charged: saving_pass
    per pass over the queries, whatever they teach; saving_rate per informative group, saving_advantage per |A| and
    saving_greatest per greatest advantage, as if queries never ran out; saving_coverage for the same informative groups
    from the same queries, at the uniform size that this needs.
    """
    rows = {name: _score(plan, population) for name, plan in plans(population).items()}
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("plan")
    base, charged = table.loc["uniform"], table["rollouts"] + table["profile"]
    table["saving_pass"] = base["rollouts"] / charged
    table["saving_rate"] = (base["rollouts"] / base["informative"]) / (charged / table["informative"])
    for gain in ("advantage", "greatest"):
        table[f"saving_{gain}"] = table[gain] * table["rollouts"] / charged / base[gain]
    table["saving_coverage"] = population.unprofiled.rollouts(table["informative"]) / charged
    return table


def _rollouts(plan: Plan, population: Population) -> float:
    return float(population.weights_S @ (plan.kept_S * plan.sizes_S))


def _score(plan: Plan, population: Population) -> dict:
    a_S, b_S = population.posterior_S
    spent = _rollouts(plan, population)
    gain_3_S = np.zeros((3, len(a_S)))
    for size in np.unique(plan.sizes_S).tolist():
        chosen = plan.sizes_S == size
        gain_3_S[0, chosen] = expected_informative(a_S[chosen], b_S[chosen], size)
        gain_3_S[1, chosen] = size * expected_mean_advantage(a_S[chosen], b_S[chosen], size)
        gain_3_S[2, chosen] = expected_best_advantage(a_S[chosen], b_S[chosen], size)
    informative_groups, advantage, greatest = (float(gain) for gain in gain_3_S @ (population.weights_S * plan.kept_S))
    return {
        "title": plan.title,
        "rollouts": spent,
        "profile": plan.profiled * population.samples * population.profile_price / population.passes,
        "informative": informative_groups,
        "advantage": advantage / spent,
        "greatest": greatest / spent,
        "of_best": informative_groups / float(population.best.gain(spent)),
    }
