"""Upper bounds beside the lower bound of Theorem 4.3, and their ratio as costs spread.

All for G_i = G on [−1, 1] from its centre, so that the distance to a minimiser is at most D = 1. Array names: n
components.
"""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from repro.theory.lower_bound.closed_forms import COIN, capped_bound, maximal_prefix, prefix_bound
from repro.theory.sgd import Array, convex_cost, optimal_cost_product, positive

SPREADS = np.geomspace(1.0, 1e8, 17)  # dearest over cheapest component


def cost_quantiles(family: str, n_components: int, spread: float) -> Array:
    """Costs (n,) from 1 to `spread`, evenly placed in the family: uniform, pareto or exponential (growing by a factor).

    Pareto: P(cost > c) = c^−α, with α such that the dearest of the n quantiles is `spread`. ValueError for others.
    """
    if not spread >= 1:
        raise ValueError(f"spread is {spread}: it is the dearest cost over the cheapest, so at least 1")
    share_n = np.linspace(0.0, 1.0, n_components)
    if family == "uniform":
        return 1.0 + (spread - 1.0) * share_n
    if family == "exponential":
        return spread**share_n
    if family == "pareto":
        left_n = 1.0 - share_n * (1.0 - 1.0 / n_components)  # from 1 down to 1/n
        return left_n ** (-np.log(spread) / np.log(n_components))
    raise ValueError(f"there is no family of costs {family!r}: uniform, pareto or exponential")


FAMILIES = ("uniform", "pareto", "exponential")


def sgd_cost(costs_n: ArrayLike, lipschitz: float, epsilon: float) -> float:
    """(G²/ε²) ((1/n) Σ √c_i)²: Cost-Aware SGD's upper bound (eq. 3 at p*, all G_i = G, D = 1)."""
    costs_n = positive("costs", costs_n)
    product = optimal_cost_product(np.full(costs_n.shape, positive("lipschitz", lipschitz)), costs_n)
    return float(convex_cost(product, 1.0, epsilon))


def subset_cost(costs_n: ArrayLike, lipschitz: float, epsilon: float) -> float:
    """min_k ((1/n) Σ_{i≤k} G √c_i)²/(ε − Δ_k)², Δ_k = (n − k) G/n < ε: the same on the k cheapest (appendix C)."""
    roots_n = np.sqrt(np.sort(positive("costs", costs_n)))
    n = len(roots_n)
    left_k = positive("epsilon", epsilon) - positive("lipschitz", lipschitz) * (n - np.arange(1, n + 1)) / n
    usable_k = left_k > 0
    return float(((lipschitz * np.cumsum(roots_n)[usable_k] / n / left_k[usable_k]) ** 2).min())


def bisection_cost(costs_n: ArrayLike, lipschitz: float, epsilon: float) -> float:
    """Σc ⌈log₂(G/ε)⌉: bisecting [−1, 1] by the sign of the whole gradient reaches error ε for any convex f_i on it.

    After k halvings the middle of what is left is within 2^−k of a minimiser, and f is G-Lipschitz.
    """
    steps = max(1.0, np.ceil(np.log2(positive("lipschitz", lipschitz) / positive("epsilon", epsilon))))
    return float(positive("costs", costs_n).sum() * steps)


def gap_by_spread(n_components: int, lipschitz: float, epsilon: float) -> pd.DataFrame:
    """Bounds for every family and spread: family, spread, total (Σc), sgd, subset, prefix, capped, and their gaps.

    prefix: the paper's instance, clipped Gaussians on S; prefix_share: |S|/n of it; capped: ours, coins capped at G/2;
    prefix_coin: S with our coins. gap_prefix, gap_capped: the least upper bound over each.
    """
    rows = []
    for family in FAMILIES:
        for spread in SPREADS:
            costs_n = cost_quantiles(family, n_components, spread)
            prefix, capped = (bound(costs_n, lipschitz, epsilon) for bound in (prefix_bound, capped_bound))
            row = {"family": family, "spread": float(spread), "total": float(costs_n.sum())}
            row |= {"sgd": sgd_cost(costs_n, lipschitz, epsilon), "subset": subset_cost(costs_n, lipschitz, epsilon)}
            row |= {"prefix": prefix.cost, "prefix_share": prefix.active, "capped": capped.cost}
            row |= {"prefix_coin": prefix_bound(costs_n, lipschitz, epsilon, COIN).cost}
            upper = min(row["sgd"], row["subset"])
            row |= {f"gap_{name}": upper / row[name] if row[name] > 0 else np.inf for name in ("prefix", "capped")}
            rows.append(row)
    return pd.DataFrame(rows)


def gap_by_accuracy(lipschitz: float, per_accuracy: float = 16.0) -> pd.DataFrame:
    """Equal costs and n = `per_accuracy`·(G/ε)²: epsilon, n_components, sgd, capped, gap. Is the gap a constant?"""
    rows = []
    for epsilon in lipschitz * np.array([0.1, 0.05, 0.025, 0.0125]):
        costs_n = np.ones(int(per_accuracy * (lipschitz / epsilon) ** 2))
        upper, lower = sgd_cost(costs_n, lipschitz, epsilon), capped_bound(costs_n, lipschitz, epsilon).cost
        rows.append({"epsilon": epsilon, "n_components": len(costs_n), "sgd": upper, "capped": lower})
    table = pd.DataFrame(rows)
    return table.assign(gap=table["sgd"] / table["capped"])


def small_sums(lipschitz: float) -> pd.DataFrame:
    """The theorem's formula without a condition on n, against what certainly suffices, for one to 10⁴ equal costs.

    n_components; formula: (1/16)(G²/ε²)((1/n) Σ √c)² at ε = G/1000; bisection: what bisecting costs; certified: the
    bound as we prove it; prefix_size: |S| at separation 2.
    """
    epsilon, rows = lipschitz / 1000, []
    for n in (1, 10, 100, 1000, 10_000):
        costs_n = np.ones(n)
        rows.append(
            {"n_components": n, "formula": sgd_cost(costs_n, lipschitz, epsilon) / 16}
            | {"bisection": bisection_cost(costs_n, lipschitz, epsilon)}
            | {"certified": capped_bound(costs_n, lipschitz, epsilon).cost}
            | {"prefix_size": maximal_prefix(costs_n, lipschitz, epsilon, 2.0)}
        )
    return pd.DataFrame(rows)
