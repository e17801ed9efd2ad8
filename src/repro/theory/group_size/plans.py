"""What sGPO's rule, its parts and other rules would gain on a population of queries: exact, before any training.

A plan gives the queries whose profile has s successes in K samples a group size and the share of them that is kept. All
numbers are expectations over p ~ Beta(α, β), the profile and the groups. They are those of one pass over the queries
with the policy that was profiled; that the policy changes as it trains is no part of this.

Array names: S successes 0 ... K, G group sizes smallest ... largest, P success probabilities.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import betaincinv

from repro.methods.group_sizes.allocation import Frontier, frontier, sizes_at_price
from repro.methods.group_sizes.posterior import (
    beta_binomial,
    expected_best_advantage,
    expected_informative,
    expected_mean_advantage,
    gain_table,
    misfiled,
    posterior,
)
from repro.methods.group_sizes.rule import Array, rule_size
from repro.theory.group_size.closed_forms import informative, over_sizes

SAVINGS = ["saving_pass", "saving_rate", "saving_advantage", "saving_greatest", "saving_coverage"]
KNOWN = 400  # equally likely success probabilities that stand for the population where p is known


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
    """Group size and share kept, by successes in the profile; `profiled` where it needs the profile at all."""

    title: str
    sizes_S: NDArray[np.int64]
    kept_S: Array
    profiled: bool = True


def plans(population: Population) -> dict[str, Plan]:
    """Uniform, sGPO and its parts, the same filter with other sizes, and the best plan at sGPO's rollouts.

    sGPO: p̂ = 1 dropped, `unsolvable_share` of p̂ = 0 kept at the largest size, else clip(⌈K/s⌉). "equal" gives the
    filtered queries one size, the whole number that comes nearest to sGPO's rollouts.
    """
    K, bounds = population.samples, (population.smallest, population.largest)
    success_S = np.arange(K + 1)
    every_S = np.ones(K + 1)
    filtered_S = np.where(success_S == K, 0.0, np.where(success_S == 0, population.unsolvable_share, 1.0))
    uniform_S = np.full(K + 1, population.uniform)
    mean_S = population.posterior_S[0] / sum(population.posterior_S)
    inverse_S = rule_size(success_S / K, *bounds)
    found = {
        "uniform": Plan(f"uniform, {population.uniform} each", uniform_S, every_S, profiled=False),
        "filter": Plan("filter alone", uniform_S, filtered_S),
        "allocation": Plan("allocation alone", inverse_S, every_S),
        "sgpo": Plan("sGPO, ⌈1/p̂⌉", inverse_S, filtered_S),
        "strict": Plan("sGPO, p̂ = 0 dropped", inverse_S, np.where(success_S == 0, 0.0, filtered_S)),
        "shrunken": Plan("⌈(K+1)/(s+1)⌉", rule_size((success_S + 1) / (K + 1), *bounds), filtered_S),
        "bayes": Plan("⌈1/E[p | s]⌉", rule_size(mean_S, *bounds), filtered_S),
    }
    spent = _rollouts(found["sgpo"], population)
    equal = int(np.clip(round(spent / (population.weights_S @ filtered_S)), *bounds))
    found["equal"] = Plan(f"filter, {equal} each", np.full(K + 1, equal), filtered_S)
    price = population.best.price(spent)
    best_S = sizes_at_price(population.gains_S_G, population.sizes_G, price)
    return found | {"best": Plan("best for the posterior", best_S, every_S)}


def sizes_by_successes(population: Population) -> pd.DataFrame:
    """Group size by plan (index: its title) and successes in the profile (columns 0 ... K); 0 where none is kept."""
    found = plans(population).values()
    rows = np.stack([np.where(plan.kept_S > 0, plan.sizes_S, 0) for plan in found])
    return pd.DataFrame(rows, index=pd.Index([plan.title for plan in found], name="successes"))


def compare(population: Population) -> pd.DataFrame:
    """One row per plan (index): title and, per query and pass, what it spends and gains.

    Spent: rollouts, and the profile's cost in rollouts. Gained: informative groups; advantage, the mean |A| per
    rollout; greatest, the greatest advantage of a group per rollout; of_best, informative groups over the most that
    these rollouts can bring. Savings are the factor by which uniform groups cost more, the profile charged: saving_pass
    per pass over the queries, whatever they teach; saving_rate per informative group, saving_advantage per |A| and
    saving_greatest per greatest advantage, as if queries never ran out; saving_coverage for the same informative groups
    from the same queries, at the uniform size that takes.
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


def by_samples(population: Population, samples: Sequence[int], margin: float) -> pd.DataFrame:
    """How the profile's size K (index) matters: wrong classes (see `misfiled`), sGPO's savings, and what it forgoes.

    known: informative groups of the best plan for the posterior over those of one that knows every p, at the rollouts
    of sGPO.
    """
    rows = {}
    for K in samples:
        other = replace(population, samples=K)
        sgpo = compare(other).loc["sgpo"]
        kept = ["rollouts", "of_best", *SAVINGS]
        known = other.best.gain(sgpo["rollouts"]) / other.known.gain(sgpo["rollouts"])
        rows[K] = misfiled(K, other.alpha, other.beta, margin) | dict(sgpo[kept]) | {"known": float(known)}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("samples")


def by_baseline(population: Population, uniform: Sequence[int]) -> pd.DataFrame:
    """sGPO's savings (columns SAVINGS) against uniform groups of other sizes (index)."""
    rows = {size: dict(compare(replace(population, uniform=size)).loc["sgpo", SAVINGS]) for size in uniform}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("uniform")


def by_difficulty(population: Population, means: Sequence[float], strengths: Sequence[float]) -> pd.DataFrame:
    """sGPO, its filter and equal sizes over Beta populations of other mean α/(α+β) and strength α+β.

    Columns mean, strength, plan, of_best and SAVINGS. The smaller the strength, the more queries have p near 0 or 1.
    """
    frames = []
    for strength, mean in product(strengths, means):
        other = replace(population, alpha=float(mean * strength), beta=float((1 - mean) * strength))
        rows = compare(other).loc[["filter", "sgpo", "strict", "equal"], ["of_best", *SAVINGS]].reset_index()
        frames.append(rows.assign(mean=mean, strength=strength))
    return pd.concat(frames, ignore_index=True)


def over_difficulty(difficulty: pd.DataFrame) -> pd.DataFrame:
    """`by_difficulty` for reading: least, median and largest of_best and savings over the populations, by plan."""
    names = {"sgpo": "sGPO", "strict": "sGPO, p̂ = 0 dropped", "equal": "same queries, equal sizes"}
    told = ["of_best", "saving_rate", "saving_advantage", "saving_greatest"]
    grouped = difficulty[difficulty["plan"].isin(names)].groupby("plan", sort=False)[told]
    return grouped.agg(["min", "median", "max"]).rename(index=names)


def _rollouts(plan: Plan, population: Population) -> float:
    return float(population.weights_S @ (plan.kept_S * plan.sizes_S))


def _score(plan: Plan, population: Population) -> dict:
    a_S, b_S = population.posterior_S
    rollouts = _rollouts(plan, population)
    gain_3_S = np.zeros((3, len(a_S)))
    for size in np.unique(plan.sizes_S).tolist():
        of = plan.sizes_S == size
        gain_3_S[0, of] = expected_informative(a_S[of], b_S[of], size)
        gain_3_S[1, of] = size * expected_mean_advantage(a_S[of], b_S[of], size)
        gain_3_S[2, of] = expected_best_advantage(a_S[of], b_S[of], size)
    found, advantage, greatest = (float(gain) for gain in gain_3_S @ (population.weights_S * plan.kept_S))
    return {
        "title": plan.title,
        "rollouts": rollouts,
        "profile": plan.profiled * population.samples * population.profile_price / population.passes,
        "informative": found,
        "advantage": advantage / rollouts,
        "greatest": greatest / rollouts,
        "of_best": found / float(population.best.gain(rollouts)),
    }
