"""Algorithms on the hard instances of Theorem 4.3: what does each spend until its mean error is ε?

Array names: n components, K trials (an instance each), M budgets, T iterations, B = 1 + bootstrap resamples, row 0 the
whole sample.
"""

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from repro.theory.lower_bound.closed_forms import (
    COIN,
    GAUSSIAN,
    LowerBound,
    Slopes,
    capped_bound,
    certified_cost,
    prefix_bound,
)
from repro.theory.lower_bound.gap import FAMILIES, cost_quantiles
from repro.theory.sgd import SAMPLINGS, Array, convex_iterations, convex_step, second_moment

# Which instance: its bound and its slopes, the paper's and ours.
INSTANCES = {"paper": (prefix_bound, GAUSSIAN), "capped coins": (capped_bound, COIN)}
SGD = {"SGD, uniform": "uniform", "SGD, cost-optimal": "optimal"}
ALGORITHMS = (*SGD, "one pass, random order", "one pass, cheapest first", "informed")
HORIZONS = np.array([1 / 8, 1 / 4, 1 / 2, 1, np.sqrt(2)])  # in units of the T(ε) that the upper bound asks for
PASSES = 40  # budgets at which a one-pass algorithm is read


def draw_slopes(bound: LowerBound, slopes: Slopes, lipschitz: float, n_trials: int, rng: np.random.Generator) -> Array:
    """g (K, n): one instance a trial, all its means ±μ_i with a fair sign."""
    signs_K_1 = rng.choice([-1.0, 1.0], (n_trials, 1))
    if slopes is COIN:
        heads_K_n = rng.random((n_trials, len(bound.means_n))) < (1 + signs_K_1 * bound.means_n / lipschitz) / 2
        return lipschitz * np.where(heads_K_n, 1.0, -1.0)
    noise_K_n = rng.standard_normal((n_trials, len(bound.means_n)))
    return np.clip(signs_K_1 * bound.means_n + lipschitz / 2 * noise_K_n, -lipschitz, lipschitz)


def error_K(slopes_K_n: Array, x_K: Array) -> Array:
    """f(x) − f* = ḡ x + |ḡ| on [−1, 1]."""
    mean_K = slopes_K_n.mean(axis=1)
    return mean_K * x_K + np.abs(mean_K)


def run_sgd(
    slopes_K_n: Array, costs_n: Array, p_n: Array, step: float, n_iterations: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Cost-Aware SGD from 0, projected on [−1, 1]: average of the queried iterates (K,), and total cost (K,)."""
    n_trials, n = slopes_K_n.shape
    cumulative_n = np.cumsum(p_n) / np.sum(p_n)
    scale_n, rows_K = step / (n * p_n), np.arange(n_trials)
    x_K, sum_K, cost_K = np.zeros(n_trials), np.zeros(n_trials), np.zeros(n_trials)
    for _ in range(n_iterations):
        drawn_K = np.minimum(np.searchsorted(cumulative_n, rng.random(n_trials), side="right"), n - 1)
        sum_K += x_K
        cost_K += costs_n[drawn_K]
        x_K = np.clip(x_K - scale_n[drawn_K] * slopes_K_n[rows_K, drawn_K], -1.0, 1.0)
    return sum_K / n_iterations, cost_K


def run_passes(slopes_K_n: Array, costs_n: Array, order_n: Array, weights_n: Array) -> tuple[Array, Array]:
    """Query in `order_n`, each once, then x = −sign(Σ weight g) over what was queried: error and cost (K, M)."""
    counts_M = np.unique(np.geomspace(1, len(costs_n), PASSES).astype(int))
    sums_K_M = np.cumsum((slopes_K_n * weights_n)[:, order_n], axis=1)[:, counts_M - 1]
    cost_M = np.cumsum(costs_n[order_n])[counts_M - 1]
    errors = [error_K(slopes_K_n, -np.sign(sums_K)) for sums_K in sums_K_M.T]
    return np.stack(errors, axis=1), np.broadcast_to(cost_M, sums_K_M.shape)


def simulate(
    costs_n: Array, bound: LowerBound, slopes: Slopes, lipschitz: float, epsilon: float, n_trials: int, seed: int
) -> pd.DataFrame:
    """Every algorithm at several budgets on the same instances: algorithm, budget (its place), trial, cost, error.

    `informed` knows the μ_i, hence the most that can be known: it queries in the order of information per cost and
    weighs by the log-likelihood ratio. SGD is run afresh at every horizon, with the step of its upper bound.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    slopes_K_n = draw_slopes(bound, slopes, lipschitz, n_trials, rng)
    norms_n, found = np.full(len(costs_n), lipschitz), {}
    for name, sampling in SGD.items():
        p_n = SAMPLINGS[sampling](norms_n, costs_n)
        moment = second_moment(norms_n, p_n)
        horizons_M = np.ceil(convex_iterations(moment, 1.0, epsilon) * HORIZONS).astype(int)
        runs = [run_sgd(slopes_K_n, costs_n, p_n, float(convex_step(moment, 1.0, T)), T, rng) for T in horizons_M]
        found[name] = (np.stack([error_K(slopes_K_n, x_K) for x_K, _ in runs], 1), np.stack([c for _, c in runs], 1))
    divergence_n = slopes.divergence(bound.means_n / lipschitz)
    even_n, cheapest_n = np.ones(len(costs_n)), np.argsort(costs_n, kind="stable")
    found["one pass, random order"] = run_passes(slopes_K_n, costs_n, rng.permutation(len(costs_n)), even_n)
    found["one pass, cheapest first"] = run_passes(slopes_K_n, costs_n, cheapest_n, even_n)
    likelihood_n = np.arctanh(bound.means_n / lipschitz) if slopes is COIN else bound.means_n
    best_first_n = np.argsort(-divergence_n / costs_n, kind="stable")
    found["informed"] = run_passes(slopes_K_n, costs_n, best_first_n, likelihood_n)
    return pd.concat([_frame(name, *found[name]) for name in ALGORITHMS], ignore_index=True)


def simulate_all(
    n_components: int, lipschitz: float, epsilon: float, spread: float, n_trials: int, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Each family of costs on each instance: the runs, and the frontiers (instance, family, error, cost; the bound).

    A frontier is what no algorithm on that instance gets below: `certified_cost` of its μ at every error. The paper's
    instance of a family is left out where its S is empty, and there is nothing to run on.
    """
    runs, frontiers = [], []
    for instance, (certify, slopes) in INSTANCES.items():
        for family in FAMILIES:
            costs_n = cost_quantiles(family, n_components, spread)
            bound = certify(costs_n, lipschitz, epsilon)
            if bound.cost == 0:
                continue
            keys = {"instance": instance, "family": family}
            runs.append(simulate(costs_n, bound, slopes, lipschitz, epsilon, n_trials, seed).assign(**keys))
            errors = epsilon * np.linspace(0.1, 3.0, 59)
            costs = [certified_cost(bound.means_n, costs_n, lipschitz, error, slopes)[0] for error in errors]
            frontiers.append(pd.DataFrame({"error": errors, "cost": costs, "bound": bound.cost}).assign(**keys))
    return pd.concat(runs, ignore_index=True), pd.concat(frontiers, ignore_index=True)


def cost_to_reach(runs: pd.DataFrame, epsilon: float, seed: int, n_resamples: int = 300) -> dict[tuple, Array]:
    """(instance, family, algorithm) → cost at which the mean error falls to ε (B,), bootstrapped over trials.

    The mean error is made to fall with the budget (isotonic regression), or noise would cross ε too early; between two
    budgets the cost is interpolated on log axes. Infinite where no budget is enough.
    """
    found = {}
    for keys, rows in runs.groupby(["instance", "family", "algorithm"], sort=False):
        errors, costs = (rows.pivot(index="trial", columns="budget", values=v).to_numpy() for v in ("error", "cost"))
        n_trials = len(errors)
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
        weights_B_K = rng.multinomial(n_trials, np.full(n_trials, 1 / n_trials), n_resamples) / n_trials
        weights_B_K = np.vstack([np.full(n_trials, 1 / n_trials), weights_B_K])
        means = zip(weights_B_K @ errors, weights_B_K @ costs, strict=True)
        found[keys] = np.array([_crossing(error_M, cost_M, epsilon) for error_M, cost_M in means])
    return found


def _crossing(error_M: Array, cost_M: Array, epsilon: float) -> float:
    falling_M = np.maximum(isotonic_regression(error_M, increasing=False).x, 1e-12)
    met = np.flatnonzero(falling_M <= epsilon)
    if not len(met) or met[0] == 0:
        return float(cost_M[0]) if len(met) else np.inf
    pair = slice(met[0] - 1, met[0] + 1)
    # np.interp wants rising places: minus the log of an error that falls.
    return float(np.exp(np.interp(-np.log(epsilon), -np.log(falling_M[pair]), np.log(cost_M[pair]))))


def _frame(name: str, error_K_M: Array, cost_K_M: Array) -> pd.DataFrame:
    trials, budgets = np.indices(error_K_M.shape)
    columns = {"budget": budgets.ravel(), "trial": trials.ravel(), "cost": cost_K_M.ravel(), "error": error_K_M.ravel()}
    return pd.DataFrame({"algorithm": name, **columns})
