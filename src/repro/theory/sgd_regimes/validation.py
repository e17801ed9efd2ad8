"""Measured rates of Cost-Aware SGD: the cost to reach an error over a range of errors, average and last iterate.

Protocol as in repro.theory.sgd: a run is made for each horizon T, with the steps that belong to it. Tables
are DataFrames; columns `_low` and `_high` are 95% bootstrap intervals over trials, paired between samplings. Array
names: S samplings in the order of SAMPLINGS, M horizons, K trials, B = 1 + resamples, row 0 the whole sample.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from repro.theory.sgd import (
    SAMPLINGS,
    Array,
    Measured,
    cost_product,
    expected_cost,
    measure,
    second_moment,
    uniform_cost_ratio,
    variance_cost_ratio,
)
from repro.theory.sgd_regimes.studies import ITERATES, Study

NAMES = list(SAMPLINGS)


def horizons(n_iterations: int, doublings: int) -> list[int]:
    """n_iterations/2^doublings, ..., n_iterations/2, n_iterations."""
    if n_iterations < 32 * 2**doublings:
        raise ValueError(f"n_iterations = {n_iterations}: need at least {32 * 2**doublings}")
    return [n_iterations // 2**k for k in range(doublings, -1, -1)]


def run_study(study: Study, at_iterations: Sequence[int], n_trials: int, seed: int) -> pd.DataFrame:
    """Every (sampling, iteration, trial): cost, average, last, with the study's name. `iteration` is the horizon T.

    n_trials times the study's `repeats`. Trial k of a horizon draws from the same uniforms in every sampling.
    """
    frames, n_trials = [], n_trials * study.repeats
    for name, p_n in distributions(study).items():
        for horizon in at_iterations:
            rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(13, horizon)))
            columns = study.run(p_n, horizon, n_trials, rng)
            keys = {"study": study.name, "sampling": name, "iteration": horizon, "trial": np.arange(n_trials)}
            frames.append(pd.DataFrame(keys | columns))
    return pd.concat(frames, ignore_index=True)


def measure_iterates(trials: pd.DataFrame, seed: int) -> dict[str, Measured]:
    """By iterate, bootstrapped means of its error and of cost; the same resamples for both, and for equal seeds."""
    return {iterate: measure(trials.rename(columns={iterate: "error"}), seed) for iterate in ITERATES}


def cost_curves(study: Study, measured: dict[str, Measured]) -> pd.DataFrame:
    """By iterate, sampling and iteration (the horizon T): the mean error that T reaches (`epsilon`, with its interval)
    and the mean `cost` of it; beside them what the `bound` (average only) and the `limit` say that this ε costs.
    """
    rows = []
    for iterate, found in measured.items():
        for s, (name, p_n) in enumerate(distributions(study).items()):
            product = cost_product(study.problem.norms_n, study.problem.costs_n, p_n)
            for m, horizon in enumerate(found.iterations_M):
                row = {"study": study.name, "iterate": iterate, "sampling": name, "iteration": horizon}
                row |= estimate(found.error_B_S_M[:, s, m], "epsilon")
                row |= {"cost": found.cost_B_S_M[0, s, m], "bound": np.nan}
                if iterate == "average":
                    row["bound"] = float(study.bound_cost(product, row["epsilon"]))
                rows.append(row | {"limit": limit_cost(study, p_n, iterate, row["epsilon"])})
    return pd.DataFrame(rows)


def rates(study: Study, measured: dict[str, Measured]) -> pd.DataFrame:
    """By iterate and sampling: what grows how, how near the limit and the bound, and the cost relative to optimal.

    `exponent`: fitted k of cost ∝ ε^−k over the horizons. `level`: mean error at the longest horizon over the limit's.
    `tightness`: largest mean error over bound (average). `ratio`: cost to reach one error over optimal sampling's,
    beside that of the limit and of eq. 8; see `cost_at_end`.
    """
    tables = []
    for iterate, found in measured.items():
        exponent_B_S, power = found.cost_exponent(), study.powers[iterate]
        cost_B_S = cost_at_end(found, power)
        for s, (name, p_n) in enumerate(distributions(study).items()):
            limit = study.limits(p_n)[iterate] * found.iterations_M ** (-1 / power)
            row = {"study": study.name, "iterate": iterate, "sampling": name}
            row |= estimate(exponent_B_S[:, s], "exponent")
            row |= {"exponent_bound": study.exponent, "exponent_limit": power}
            row |= estimate(found.error_B_S_M[:, s, -1] / limit[-1], "level")
            if iterate == "average":
                bound_M = study.bound(second_moment(study.problem.norms_n, p_n), found.iterations_M)
                row |= estimate((found.error_B_S_M[:, s] / bound_M).max(axis=1), "tightness")
            row |= estimate(cost_B_S[:, s] / cost_B_S[:, NAMES.index("optimal")], "ratio")
            tables.append(row | {"limit_cost": limit_cost(study, p_n, iterate, 1.0)})
    table = pd.DataFrame(tables)
    optimal = table[table["sampling"] == "optimal"].set_index("iterate")["limit_cost"]
    table["ratio_limit"] = table.pop("limit_cost") / table["iterate"].map(optimal)
    return table.assign(ratio_eq_8=table["sampling"].map(eq_8(study)))


def last_over_average(study: Study, measured: dict[str, Measured]) -> pd.DataFrame:
    """Optimal sampling, by `iteration`: mean error of the last iterate over that of the average, and `growth` of this
    ratio since the first horizon, each with its interval.
    """
    ends = [measured[iterate].error_B_S_M[:, NAMES.index("optimal")] for iterate in ITERATES]
    ratio_B_M = ends[1] / ends[0]
    growth_B_M = ratio_B_M / ratio_B_M[:, [0]]
    rows = []
    for m, horizon in enumerate(measured["average"].iterations_M):
        row = {"study": study.name, "iteration": horizon}
        rows.append(row | estimate(ratio_B_M[:, m], "ratio") | estimate(growth_B_M[:, m], "growth"))
    return pd.DataFrame(rows)


def distributions(study: Study) -> dict[str, Array]:
    """The three samplings of a study's problem, (n,) each."""
    return {name: sampling(study.problem.norms_n, study.problem.costs_n) for name, sampling in SAMPLINGS.items()}


def eq_8(study: Study) -> dict[str, float]:
    """J(p)/J(p*) of the three samplings."""
    norms_n, costs_n = study.problem.norms_n, study.problem.costs_n
    found = {"uniform": uniform_cost_ratio(norms_n, costs_n), "variance": variance_cost_ratio(norms_n, costs_n)}
    return {name: float(ratio) for name, ratio in found.items()} | {"optimal": 1.0}


def limit_cost(study: Study, p_n: Array, iterate: str, epsilon: float) -> float:
    """C(p)·T with c·T^(−1/k) = ε."""
    iterations = (study.limits(p_n)[iterate] / epsilon) ** study.powers[iterate]
    return float(expected_cost(study.problem.costs_n, p_n) * iterations)


def cost_at_end(found: Measured, power: float) -> Array:
    """What an error of 1 would cost (B, S): the longest horizon's cost, carried along cost ∝ error^−k, k = `power`.

    Only ratios of these are used. Samplings end within a factor of two in error, so that carrying them to one level by
    the limit's k does little; crossing a level between horizons would bring in the noise of two.
    """
    return found.cost_B_S_M[:, :, -1] * found.error_B_S_M[:, :, -1] ** power


def estimate(values_B: Array, name: str) -> dict[str, float]:
    """A statistic with its 95% percentile interval, as the columns `name`, `name`_low and `name`_high."""
    low, high = np.quantile(values_B[1:], [0.025, 0.975])
    return {name: float(values_B[0]), f"{name}_low": float(low), f"{name}_high": float(high)}
