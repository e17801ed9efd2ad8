"""Relative costs of samplings: by regime of correlation, at their extreme, and where the theorem's is not the cheapest.

Tables as in repro.theory.sgd_regimes.validation, predicted and measured. `settings` of the functions here: dimension,
radius, drift, n_iterations, n_trials and seed. Array names: n components, S samplings, K trials, B = 1 + resamples.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from repro.theory.sgd import (
    Array,
    cost_product,
    measure,
    optimal_cost_product,
    uniform_cost_ratio,
    variance_cost_ratio,
)
from repro.theory.sgd_regimes.closed_forms import (
    dramatic_instance,
    dramatic_ratios,
    largest_uniform_ratio,
    largest_variance_ratio,
    lognormal_costs,
    lognormal_uniform_ratio,
    lognormal_variance_ratio,
    threshold_correlation,
)
from repro.theory.sgd_regimes.nonconvex import SLOPE, Brier, brier_with_norms
from repro.theory.sgd_regimes.problems import (
    Linear,
    balanced_slopes,
    large_but_noiseless,
    least_squares_with_norms,
)
from repro.theory.sgd_regimes.rates import noise_aware_sampling
from repro.theory.sgd_regimes.studies import (
    ConvexLinear,
    ConvexSquares,
    NonConvexBrier,
    StronglyConvexSquares,
    Study,
)
from repro.theory.sgd_regimes.validation import (
    NAMES,
    cost_at_end,
    distributions,
    eq_8,
    estimate,
    limit_cost,
    run_study,
)

ROW_LENGTH = 2.0  # of the non-convex case, where G = 1: rows short enough to learn from, long enough to saturate
PAIRS = {
    "uniform / optimal": ("uniform", "optimal"),
    "variance / optimal": ("variance", "optimal"),
    "variance / uniform": ("variance", "uniform"),
}


def studies(norms_n: Array, costs_n: Array, settings: dict) -> tuple[ConvexLinear, ConvexSquares]:
    """The linear and the least-squares problem with these norms and costs, both with D = 2·radius; `settings` as in
    `compare_regimes`."""
    slopes_n = balanced_slopes(norms_n, settings["drift"])
    shape = settings["dimension"], settings["radius"], settings["seed"]
    squares = least_squares_with_norms(norms_n, costs_n, *shape)
    return ConvexLinear(Linear(slopes_n, costs_n, 2 * settings["radius"])), ConvexSquares(squares)


def four_cases(norms_n: Array, costs_n: Array, settings: dict) -> list[Study]:
    """`studies`, least squares with the steps of eq. 4, and the non-convex case with norms in the same proportions."""
    linear, squares = studies(norms_n, costs_n, settings)
    brier = brier_with_norms(SLOPE * ROW_LENGTH * norms_n, costs_n, settings["dimension"], settings["seed"])
    return [linear, squares, StronglyConvexSquares(squares.problem), NonConvexBrier(brier)]


def compare_regimes(norms_n: Array, regimes: dict, spreads: tuple[float, float], **settings) -> pd.DataFrame:
    """Relative costs by regime and pair of samplings, predicted and measured on both problems.

    `spreads` are those of norms and costs; `settings`: dimension, radius, drift, n_iterations, n_trials, seed.
    `eq_8` is of these components, `lognormal` its closed form for n → ∞, `limit` the least-squares problem's own.
    """
    rows = []
    for regime, (rho, costs_n) in regimes.items():
        keys = {"regime": regime, "correlation": rho, "pearson": float(np.corrcoef(norms_n, costs_n)[0, 1])}
        keys |= {"pearson_threshold": float(threshold_correlation(norms_n, costs_n))}
        linear, squares = studies(norms_n, costs_n, settings)
        costs = {study.name: _cost_to_reach(study, settings) for study in (linear, squares)}
        forms = {"uniform": lognormal_uniform_ratio(*spreads, rho), "variance": lognormal_variance_ratio(spreads[1])}
        limit = {name: limit_cost(squares, p_n, "average", 1.0) for name, p_n in distributions(squares).items()}
        for pair in PAIRS:
            row = keys | {"pair": pair, "lognormal": _quotient(forms | {"optimal": 1.0}, pair)}
            row |= {"eq_8": _quotient(eq_8(linear), pair), "limit": _quotient(limit, pair)}
            for column, study in (("linear", linear), ("squares", squares)):
                over, under = (costs[study.name][:, NAMES.index(name)] for name in PAIRS[pair])
                row |= estimate(over / under, column)
            rows.append(row)
    return pd.DataFrame(rows)


def compare_dramatic(points: Sequence[int], **settings) -> pd.DataFrame:
    """Relative costs on `dramatic_instance` by n and pair: closed form (eq_8), its ceiling, and measured (linear)."""
    rows = []
    for n in points:
        norms_n, costs_n = dramatic_instance(n)
        study = ConvexLinear(Linear(balanced_slopes(norms_n, settings["drift"]), costs_n, 2 * settings["radius"]))
        cost_B_S = _cost_to_reach(study, settings)
        ceilings = largest_uniform_ratio(n, n**2), largest_variance_ratio(n**2)
        for name, ratio, ceiling in zip(("uniform", "variance"), dramatic_ratios(n), ceilings, strict=True):
            found_B = cost_B_S[:, NAMES.index(name)] / cost_B_S[:, NAMES.index("optimal")]
            row = {"n": n, "pair": f"{name} / optimal", "eq_8": float(ratio), "ceiling": float(ceiling)}
            rows.append(row | estimate(found_B, "linear"))
    return pd.DataFrame(rows)


def beyond_the_bound(study: StronglyConvexSquares, **settings) -> pd.DataFrame:
    """Where p* is not the cheapest, for Theorem 4.1 minimises a bound: cost over another sampling's, by `case`.

    `limit` and `measured` with its interval, average iterate, strongly convex steps; `settings` as in
    `compare_regimes`, n_points besides. On `study`'s problem against noise-aware sampling; and against uniform
    sampling where components with large G_i have no noise.
    """
    shape = settings["n_points"], settings["dimension"], settings["radius"], settings["seed"]
    trap = StronglyConvexSquares(large_but_noiseless(*shape))
    rivals = {
        "optimal / noise-aware": (study, noise_aware_sampling(study.problem, study.strong_convexity)),
        "optimal / uniform, large but noiseless": (trap, distributions(trap)["uniform"]),
    }
    rows = []
    for case, (where, rival_n) in rivals.items():
        pair = distributions(where)["optimal"], rival_n
        over, under = (limit_cost(where, p_n, "average", 1.0) for p_n in pair)
        ratio_B = _relative_cost(where, pair, settings)
        product = cost_product(where.problem.norms_n, where.problem.costs_n, rival_n)
        bound = optimal_cost_product(where.problem.norms_n, where.problem.costs_n) / product
        rows.append({"case": case, "eq_8": float(bound), "limit": over / under} | estimate(ratio_B, "measured"))
    return pd.DataFrame(rows)


def correlation_examples(z_n: Array, w_n: Array) -> pd.DataFrame:
    """Correlation alone decides nothing: Pearson's r of G and c, Theorem D.1's threshold, and who is the cheaper.

    Perfectly correlated costs that vary less than the norms, and weakly correlated ones that vary far more.
    """
    cases = {
        "c = 5 + G, log G of spread 0.7": (np.exp(0.7 * z_n), 5 + np.exp(0.7 * z_n)),
        "log c of spread 2, log G of 0.3, ρ = 0.4": (np.exp(0.3 * z_n), lognormal_costs(z_n, w_n, 2.0, 0.4)),
    }
    rows = []
    for case, (norms_n, costs_n) in cases.items():
        quotient = variance_cost_ratio(norms_n, costs_n) / uniform_cost_ratio(norms_n, costs_n)
        row = {"case": case, "pearson": float(np.corrcoef(norms_n, costs_n)[0, 1])}
        row |= {"threshold": float(threshold_correlation(norms_n, costs_n)), "variance / uniform": float(quotient)}
        rows.append(row | {"cheaper": "variance" if quotient <= 1 else "uniform"})
    return pd.DataFrame(rows)


def curvatures(problem: Brier) -> pd.DataFrame:
    """Least and largest eigenvalue of ∇²f at the start and at the minimum that descent from there reaches."""
    places = {"start": problem.start_d, "minimum": problem.minimiser_d}
    ends = {place: np.linalg.eigvalsh(problem.hessian_d_d(x_d))[[0, -1]] for place, x_d in places.items()}
    rows = [{"place": place, "least": low, "largest": high} for place, (low, high) in ends.items()]
    return pd.DataFrame(rows).assign(objective=[problem.value(x_d) for x_d in places.values()])


def _relative_cost(study: StronglyConvexSquares, pair: tuple[Array, Array], settings: dict) -> Array:
    """(B,): cost × error at the longest horizon, first sampling over second, paired by trial."""
    n_trials, product_K_2 = settings["n_trials"], np.empty((settings["n_trials"], 2))
    for s, p_n in enumerate(pair):
        rng = np.random.default_rng(np.random.SeedSequence(settings["seed"], spawn_key=(13, settings["n_iterations"])))
        runs = study.run(p_n, settings["n_iterations"], n_trials, rng)
        product_K_2[:, s] = runs["average"] * runs["cost"].mean()
    rng = np.random.default_rng(np.random.SeedSequence(settings["seed"], spawn_key=(14,)))
    sums_B_2 = rng.multinomial(n_trials, np.full(n_trials, 1 / n_trials), size=2000) @ product_K_2
    sums_B_2 = np.vstack([product_K_2.sum(axis=0), sums_B_2])
    return sums_B_2[:, 0] / sums_B_2[:, 1]


def _quotient(values: dict[str, float], pair: str) -> float:
    over, under = PAIRS[pair]
    return float(values[over] / values[under])


def _cost_to_reach(study: Study, settings: dict) -> Array:
    """`cost_at_end` of the average iterate, after runs of the one horizon n_iterations."""
    trials = run_study(study, [settings["n_iterations"]], settings["n_trials"], settings["seed"])
    return cost_at_end(measure(trials.rename(columns={"average": "error"}), settings["seed"]), study.powers["average"])
