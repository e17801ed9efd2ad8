"""How good the ways to choose a subset are: their weight over the least, at random and at their worst; and what is left
of the problem once the target, not the bias, is fixed.

Tables: one row per instance and method. Names as in `closed_forms`; B instances, M all 2ⁿ sets, P prefixes.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pandas as pd

from repro.theory.sgd import Array
from repro.theory.subset.closed_forms import (
    Chosen,
    best_prefix,
    cheapest_first,
    convex_subset_cost,
    csirik,
    fractional_weight,
    mean_weight,
    prune,
    strongly_convex_subset_cost,
    weights,
)
from repro.theory.subset.exact import all_sets, enumerated_weight, frontier, least_over_sets
from repro.theory.subset.instances import FAMILIES, draw, draw_coverage, three_components, tight_for_two, two_components

RULE, PRUNED, CSIRIK = "cheapest first (paper)", "cheapest first, pruned", "Csirik et al."


def _pruned_rule(norms_n: Array, costs_n: Array, coverage: Array) -> Chosen:
    return prune(norms_n, costs_n, coverage, cheapest_first(norms_n, costs_n, coverage))


METHODS: dict[str, Callable] = {RULE: cheapest_first, PRUNED: _pruned_rule, CSIRIK: csirik}


def compare_methods(n_components: int, n_instances: int, tail: float, seed: int) -> pd.DataFrame:
    """Every method on random instances of every family, against the optimum by enumeration.

    Columns: family, instance, method, ratio (weight over the least), excess ((weight − least)/heaviest component).
    """
    frames = []
    for place, family in enumerate(FAMILIES):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, place)))
        norms_B_n, costs_B_n = draw(family, (n_instances, n_components), tail, rng)
        coverage_B = draw_coverage(norms_B_n, rng)
        weights_B_n = weights(norms_B_n, costs_B_n)
        least_B = enumerated_weight(norms_B_n, costs_B_n, coverage_B)
        for name, method in METHODS.items():
            weight_B = np.where(method(norms_B_n, costs_B_n, coverage_B), weights_B_n, 0.0).sum(axis=-1)
            columns = {"family": family, "instance": np.arange(n_instances), "method": name}
            columns |= {"ratio": weight_B / least_B, "excess": (weight_B - least_B) / weights_B_n.max(axis=-1)}
            frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


def compare_sizes(sizes: Sequence[int], n_instances: int, tail: float, seed: int) -> pd.DataFrame:
    """Weight of every method over the LP's optimum, which no set undercuts, so that `at_most` bounds the true ratio.

    Columns: family, n, instance, method, at_most.
    """
    frames = []
    for place, family in enumerate(FAMILIES):
        for n_components in sizes:
            rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1, place, n_components)))
            norms_B_n, costs_B_n = draw(family, (n_instances, n_components), tail, rng)
            coverage_B = draw_coverage(norms_B_n, rng)
            least_B = fractional_weight(norms_B_n, costs_B_n, coverage_B)
            for name in (RULE, CSIRIK):
                chosen_B_n = METHODS[name](norms_B_n, costs_B_n, coverage_B)
                weight_B = np.where(chosen_B_n, weights(norms_B_n, costs_B_n), 0.0).sum(axis=-1)
                columns = {"family": family, "n": n_components, "instance": np.arange(n_instances), "method": name}
                frames.append(pd.DataFrame(columns | {"at_most": weight_B / least_B}))
    return pd.concat(frames, ignore_index=True)


def worst_cases(sizes: Sequence[float], delta: float) -> pd.DataFrame:
    """Every method on the adversarial instances: instance, size (M, or δ), method, ratio, cost_ratio (its square)."""
    cases = [("two components", size, two_components(size)) for size in sizes]
    cases += [("three components", size, three_components(size)) for size in sizes]
    cases += [("tight for 2", delta, tight_for_two(delta))]
    rows = []
    for name, size, (norms_n, costs_n, coverage) in cases:
        weights_n = weights(norms_n, costs_n)
        least, _ = frontier(norms_n, costs_n).lightest(coverage)
        for method in METHODS:
            ratio = weights_n[METHODS[method](norms_n, costs_n, coverage)].sum() / least
            row = {"instance": name, "size": size, "method": method, "ratio": ratio, "cost_ratio": ratio**2}
            rows.append(row)
    return pd.DataFrame(rows)


def exact_disagreement(n_components: int, n_instances: int, tail: float, seed: int) -> float:
    """Largest relative difference of the least weight between enumeration and dynamic programming, all families."""
    worst = 0.0
    for place, family in enumerate(FAMILIES):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2, place)))
        norms_B_n, costs_B_n = draw(family, (n_instances, n_components), tail, rng)
        coverage_B = draw_coverage(norms_B_n, rng)
        least_B = enumerated_weight(norms_B_n, costs_B_n, coverage_B)
        for norms_n, costs_n, coverage, least in zip(norms_B_n, costs_B_n, coverage_B, least_B, strict=True):
            worst = max(worst, abs(frontier(norms_n, costs_n).lightest(coverage)[0] / least - 1))
    return worst


# Cost to reach ε from (mean weight, bias, ε). D = 1 and μ = 1 without loss: they only scale G and ε.
TARGETS: dict[str, Callable] = {
    "convex": lambda weight, bias, epsilon: convex_subset_cost(weight, bias, 1.0, epsilon),
    "strongly convex": lambda weight, bias, epsilon: strongly_convex_subset_cost(weight, bias, 1.0, epsilon),
}


def target_limit(kind: str, norms_n: Array) -> Array:
    """The ε from which on the empty set will do: D·mean(G), or mean(G)²/(2μ); D = μ = 1."""
    mean = norms_n.mean(axis=-1)
    return mean if kind == "convex" else mean**2 / 2


def fixed_target(n_components: int, n_instances: int, tail: float, seed: int) -> pd.DataFrame:
    """For a given ε, not a given bias: the best prefix in cost order against the best of all sets.

    Columns: kind (of TARGETS), family, instance, ratio (cost of the best prefix over the least of all sets), left_out
    (components it omits), misfits (components for which "in if and only if c_i < the run's cost" fails, which is
    `best_prefix`'s theorem for the convex kind and no claim for the other).
    """
    sets_n_M = all_sets(n_components).T.astype(np.float64)
    frames = []
    for place, family in enumerate(FAMILIES):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3, place)))
        norms_B_n, costs_B_n = draw(family, (n_instances, n_components), tail, rng)
        share_B = np.exp(rng.uniform(np.log(0.05), np.log(0.99), n_instances))
        for kind, cost in TARGETS.items():
            epsilon_B = share_B * target_limit(kind, norms_B_n)

            def over_sets(norms_b_n: Array, weights_b_n: Array, epsilon_b: Array, cost: Callable = cost) -> Array:
                bias_b_M = norms_b_n @ (1 - sets_n_M) / n_components
                return cost(weights_b_n @ sets_n_M / n_components, bias_b_M, epsilon_b[:, None])

            least_B = least_over_sets(over_sets, norms_B_n, weights(norms_B_n, costs_B_n), epsilon_B)
            chosen_B_n, cost_B = best_prefix(norms_B_n, costs_B_n, partial(cost, epsilon=epsilon_B[:, None]))
            misfits_B = (chosen_B_n != (costs_B_n < cost_B[:, None])).sum(axis=-1)
            columns = {"kind": kind, "family": family, "instance": np.arange(n_instances), "ratio": cost_B / least_B}
            columns |= {"left_out": (~chosen_B_n).sum(axis=-1), "misfits": misfits_B}
            frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


def gain_curves(n_components: int, tails: Sequence[float], seed: int, points: int = 80) -> pd.DataFrame:
    """What the best prefix saves as the target tightens, norms uniform, costs Pareto(tail), one draw for each tail.

    Columns: kind, tail, run (cost of the run on all components over the dearest single query), gain (that cost over
    the best prefix's).
    """
    frames = []
    for place, tail in enumerate(tails):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(4, place)))
        norms_n, costs_n = (array[0] for array in draw("heavy-tailed costs", (1, n_components), tail, rng))
        everything = mean_weight(norms_n, costs_n, np.ones(n_components, dtype=bool))
        for kind, cost in TARGETS.items():
            # Between the run that costs a hundred of the dearest queries and the ε that needs no query at all.
            loosest = target_limit(kind, norms_n) * 0.999
            exponent = 2 if kind == "convex" else 1  # of 1/ε in the cost of a run
            run = cost(everything, 0.0, loosest) / costs_n.max()
            epsilon_B = np.geomspace(loosest * min(1.0, (run / 100) ** (1 / exponent)), loosest, points)
            cost_B = cost(everything, 0.0, epsilon_B)
            gain_B = cost_B / best_prefix(norms_n, costs_n, partial(cost, epsilon=epsilon_B[:, None]))[1]
            frames.append(pd.DataFrame({"kind": kind, "tail": tail, "run": cost_B / costs_n.max(), "gain": gain_B}))
    return pd.concat(frames, ignore_index=True)
