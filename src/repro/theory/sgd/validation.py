"""The synthetic validation of Cost-Aware SGD (section 4.4, Fig. 2): do the closed forms say what SGD then costs?

Protocol. Equation 3 compares, for each error ε, runs whose horizon T and step η = D/√(T V(p)) are set for that ε. So
each sampling is run afresh at each of several horizons, with its own step, and its error is read at the end: a curve's
points are separate runs. (Along one run of fixed step, the early part has a step meant for a later ε.)

Array names: S samplings in the order of SAMPLINGS, M horizons, K trials, B = 1 + resamples, where row 0 is the whole
sample and every further row a bootstrap resample of the trials, the same trials for all samplings.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from repro.theory import verdict
from repro.theory.sgd.closed_forms import (
    SAMPLINGS,
    Array,
    convex_cost,
    convex_error_bound,
    convex_step,
    cost_product,
    expected_cost,
    second_moment,
    uniform_cost_ratio,
    variance_cost_ratio,
    variance_margin,
)
from repro.theory.sgd.least_squares import LeastSquares, limit_constant, moment_at_minimiser, run_sgd

DOUBLINGS = 5
# How far the whole interval of a measured ratio may lie from the predicted one. Eq. 8 compares upper bounds, so its own
# is wide (near 1 it does not exclude equality; the least-cost claim does). The limit is exact up to O(1/√T).
BOUND_TOLERANCE = 0.20
LIMIT_TOLERANCE = 0.08


def compare_samplings(problem: LeastSquares, n_iterations: int, n_trials: int, seed: int) -> pd.DataFrame:
    """Final error of every (sampling, horizon, trial), at horizons n_iterations/32, /16, ... n_iterations.

    Columns: sampling, iteration (the horizon T), trial, cost (total over T iterations), error (average iterate),
    error_last (last iterate). Trial k of a horizon draws from the same uniforms in every sampling.
    """
    if n_iterations < 2**DOUBLINGS or n_trials < 2:
        raise ValueError(f"n_iterations = {n_iterations}, n_trials = {n_trials}: need at least {2**DOUBLINGS} and 2")
    frames = []
    for sampling, probabilities_n in _distributions(problem).items():
        moment = second_moment(problem.norms_n, probabilities_n)
        for horizon in (n_iterations // 2**k for k in range(DOUBLINGS, -1, -1)):
            rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1, horizon)))
            steps_T = np.full(horizon, convex_step(moment, problem.diameter, horizon))
            runs = run_sgd(problem, probabilities_n, steps_T, n_trials, rng)
            columns = {"sampling": sampling, "iteration": horizon, "trial": np.arange(n_trials), "cost": runs.cost_K}
            errors = {"error": problem.error_K(runs.average_K_d), "error_last": problem.error_K(runs.last_K_d)}
            frames.append(pd.DataFrame(columns | errors))
    return pd.concat(frames, ignore_index=True)


def summarise(problem: LeastSquares, trials: pd.DataFrame) -> pd.DataFrame:
    """Mean and SD over trials: sampling, iteration, cost, cost_sd, error, error_sd, error_last, error_last_sd, bound.

    `bound` is the theorem's D √(V(p)/T) for that sampling and horizon.
    """
    grouped = trials.groupby(["sampling", "iteration"], sort=False)[["cost", "error", "error_last"]]
    curves = grouped.mean().join(grouped.std().add_suffix("_sd")).reset_index()
    moments = {name: second_moment(problem.norms_n, p_n) for name, p_n in _distributions(problem).items()}
    curves["bound"] = convex_error_bound(
        curves["sampling"].map(moments).to_numpy(float), problem.diameter, curves["iteration"].to_numpy()
    )
    return curves


@dataclass(frozen=True, eq=False)
class Measured:
    """Bootstrapped means of one comparison: error and cost (B, S, M), at the horizons (M,)."""

    error_B_S_M: Array
    cost_B_S_M: Array
    iterations_M: Array

    @cached_property
    def epsilon(self) -> float:
        """The target: the least error that every sampling's mean reaches within the longest horizon."""
        return float(self.error_B_S_M[0, :, -1].max())

    def cost_to_reach(self, epsilon: float) -> Array:
        """Mean total cost at which the mean error falls to ε (B, S); interpolated between horizons, log to log."""
        return np.exp(_crossing(np.log(self.error_B_S_M), np.log(self.cost_B_S_M), np.log(epsilon)))

    def iterations_to_reach(self, epsilon: float) -> Array:
        """Iterations at which the mean error falls to ε (B, S)."""
        log_B_S_M = np.broadcast_to(np.log(self.iterations_M), self.error_B_S_M.shape)
        return np.exp(_crossing(np.log(self.error_B_S_M), log_B_S_M, np.log(epsilon)))

    def cost_exponent(self) -> Array:
        """k of cost ∝ ε^−k, least squares over the horizons on log axes (B, S); the k of eq. 3's bound is 2."""
        error_B_S_M, cost_B_S_M = np.log(self.error_B_S_M), np.log(self.cost_B_S_M)
        error_B_S_M = error_B_S_M - error_B_S_M.mean(axis=-1, keepdims=True)
        return -(error_B_S_M * cost_B_S_M).sum(axis=-1) / (error_B_S_M**2).sum(axis=-1)


def measure(trials: pd.DataFrame, seed: int, n_resamples: int = 2000) -> Measured:
    """Bootstrap over trials, jointly for all samplings and horizons; row 0 is the whole sample."""
    iterations_M = np.sort(trials["iteration"].unique())
    shape = (len(SAMPLINGS), len(iterations_M), -1)
    order = trials.set_index(["sampling", "iteration", "trial"]).sort_index()
    by_sampling = pd.concat([order.loc[[name]] for name in SAMPLINGS])
    error_S_M_K = by_sampling["error"].to_numpy().reshape(shape)
    cost_S_M_K = by_sampling["cost"].to_numpy().reshape(shape)
    n_trials = error_S_M_K.shape[-1]
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
    weights_B_K = rng.multinomial(n_trials, np.full(n_trials, 1 / n_trials), size=n_resamples) / n_trials
    weights_B_K = np.vstack([np.full(n_trials, 1 / n_trials), weights_B_K])
    means = [np.tensordot(weights_B_K, array, axes=(1, 2)) for array in (error_S_M_K, cost_S_M_K)]
    return Measured(*means, iterations_M)


def predict(problem: LeastSquares) -> pd.DataFrame:
    """Closed forms by sampling (index): C, V, J and the moment at x*, and three predictions of relative cost.

    Relative to optimal: `ratio_bound` is eq. 8, `ratio_minimiser` puts the moment at x* in
    V's place, `ratio_limit` is what T → ∞ gives.
    """
    rows = {}
    for name, p_n in _distributions(problem).items():
        cost = expected_cost(problem.costs_n, p_n)
        rows[name] = {
            "C": cost,
            "V": second_moment(problem.norms_n, p_n),
            "J": cost_product(problem.norms_n, problem.costs_n, p_n),
            "moment_minimiser": moment_at_minimiser(problem, p_n),
            "limit": limit_constant(problem, p_n),
        }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("sampling")
    eq_8 = {"uniform": uniform_cost_ratio, "variance": variance_cost_ratio, "optimal": lambda G_n, c_n: 1.0}
    table["ratio_bound"] = [float(eq_8[name](problem.norms_n, problem.costs_n)) for name in table.index]
    for column, factor in (("ratio_minimiser", "moment_minimiser"), ("ratio_limit", "limit")):
        product = table["C"] * table[factor]
        table[column] = product / product["optimal"]
    return table


def compare_ratios(problem: LeastSquares, measured: Measured) -> pd.DataFrame:
    """`predict`'s ratios beside the measured ones at ε, by sampling: measured, measured_low, measured_high (95%).

    Also what it took: iterations and cost to reach ε, and the exponent of cost in 1/ε over the tested horizons.
    """
    table = predict(problem)[["ratio_bound", "ratio_minimiser", "ratio_limit"]]
    cost_B_S = measured.cost_to_reach(measured.epsilon)
    ratio_B_S = _relative(cost_B_S, "optimal")
    table["measured"] = ratio_B_S[0]
    table["measured_low"], table["measured_high"] = np.quantile(ratio_B_S[1:], [0.025, 0.975], axis=0)
    table["iterations"], table["cost"] = measured.iterations_to_reach(measured.epsilon)[0], cost_B_S[0]
    table["cost_exponent"] = measured.cost_exponent()[0]
    return table


def judge(problem: LeastSquares, measured: Measured) -> list[dict]:
    """The verdicts, each with its rule (see repro.theory.verdict). Rivals of a sampling are the other two.

    The bound and eq. 3 are theorems about these runs. Eq. 8 compares bounds, so its claims carry a tolerance.
    """
    predicted = predict(problem)
    bound_S_M = convex_error_bound(
        predicted["V"].to_numpy()[:, None], problem.diameter, np.asarray(measured.iterations_M)[None]
    )
    cost_B_S = measured.cost_to_reach(measured.epsilon)
    iterations_B_S = measured.iterations_to_reach(measured.epsilon)
    ratio_B_S = _relative(cost_B_S, "optimal")
    against_eq_3_B = (cost_B_S / convex_cost(predicted["J"].to_numpy(), problem.diameter, measured.epsilon)).max(axis=1)
    tightness_B = (measured.error_B_S_M / bound_S_M).max(axis=(1, 2))
    found = [
        verdict.at_most("bound D√(V/T) holds: largest mean error / bound", 1.0, *_interval(tightness_B)),
        verdict.at_most("eq. 3 holds: largest cost to reach ε / (D²CV/ε²)", 1.0, *_interval(against_eq_3_B)),
        verdict.at_least(
            "optimal reaches ε at least cost: cheapest rival / optimal", 1.0, *_rival(cost_B_S, "optimal")
        ),
        verdict.at_least(
            "variance reaches ε in fewest iterations: fastest rival / variance",
            1.0,
            *_rival(iterations_B_S, "variance"),
        ),
    ]
    for tolerance, column, name in (
        (BOUND_TOLERANCE, "ratio_bound", "eq. 8"),
        (LIMIT_TOLERANCE, "ratio_limit", "limit T → ∞"),
    ):
        for rival in ("uniform", "variance"):
            measured_ratio = _interval(ratio_B_S[:, _index(rival)])
            claim = f"cost to reach ε, {rival} / optimal, is that of {name}"
            found.append(verdict.within(claim, predicted.loc[rival, column], *measured_ratio, tolerance))
    against_uniform = _interval(_relative(cost_B_S, "uniform")[:, _index("variance")])
    cheaper = variance_margin(problem.norms_n, problem.costs_n) >= 0
    claim = f"variance costs {'no more' if cheaper else 'more'} than uniform, as Theorem D.1 says of this problem"
    found.append((verdict.at_most if cheaper else verdict.at_least)(claim, 1.0, *against_uniform))
    return found


def conclude(measured: Measured, ratios: pd.DataFrame, verdicts: list[dict]) -> str:
    """What the figure and the tables show, in three sentences of Markdown made from them."""
    uniform, variance, exponent = ratios.loc["uniform"], ratios.loc["variance"], ratios["cost_exponent"]
    return (
        f"To reach ε = {measured.epsilon:.2g}, uniform sampling costs **{uniform.measured:.2f}×** and variance-optimal "
        f"sampling **{variance.measured:.2f}×** what cost-optimal sampling does (equation 8: {uniform.ratio_bound:.2f} "
        f"and {variance.ratio_bound:.2f}; limit: {uniform.ratio_limit:.2f} and {variance.ratio_limit:.2f}). "
        f"Where the bound on the error comes closest it is {1 / verdicts[0]['measured']:.0f} times the mean error, and "
        f"cost grows as ε^−{exponent.min():.1f} to ε^−{exponent.max():.1f} over these horizons, its bound as ε^−2. "
        f"{verdict.tally(verdicts)}"
    )


def save(folder: str | Path, trials: pd.DataFrame, curves: pd.DataFrame, ratios: pd.DataFrame, verdicts: list) -> None:
    """Write trials, curves and ratios as parquet and verdict.json into `folder`, each file whole or not at all."""
    verdict.save(folder, {"trials": trials, "curves": curves, "ratios": ratios.reset_index()}, verdicts)


def _distributions(problem: LeastSquares) -> dict[str, Array]:
    return {name: sampling(problem.norms_n, problem.costs_n) for name, sampling in SAMPLINGS.items()}


def _index(sampling: str) -> int:
    return list(SAMPLINGS).index(sampling)


def _relative(values_B_S: Array, sampling: str) -> Array:
    return values_B_S / values_B_S[:, [_index(sampling)]]


def _rival(values_B_S: Array, sampling: str) -> tuple[float, tuple[float, float]]:
    """The best of the others over `sampling`, with its interval."""
    return _interval(np.delete(_relative(values_B_S, sampling), _index(sampling), axis=1).min(axis=1))


def _interval(values_B: Array) -> tuple[float, tuple[float, float]]:
    """(estimate, 95% percentile interval) of a statistic whose row 0 is the whole sample."""
    low, high = np.quantile(values_B[1:], [0.025, 0.975])
    return float(values_B[0]), (float(low), float(high))


def _crossing(heights_B_S_M: Array, places_B_S_M: Array, level: float) -> Array:
    """Where a falling polyline first meets `level`; beyond its end the last segment is drawn on (B, S)."""
    below_B_S_M = heights_B_S_M <= level
    right_B_S = np.where(below_B_S_M.any(axis=-1), below_B_S_M.argmax(axis=-1), heights_B_S_M.shape[-1] - 1)
    right_B_S_1 = np.maximum(right_B_S, 1)[..., None]
    ends = [
        np.take_along_axis(a, right_B_S_1 - k, axis=-1)[..., 0] for a in (heights_B_S_M, places_B_S_M) for k in (1, 0)
    ]
    height_left, height_right, place_left, place_right = ends
    return place_left + (level - height_left) / (height_right - height_left) * (place_right - place_left)
