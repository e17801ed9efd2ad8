"""The paper's Figure 6: least squares by SGD on the cheapest components alone, for several bias budgets.

Each point of a curve is a set of runs with a horizon of its own, with the step that belongs to it, as in
`repro.theory.sgd`. Axes: S budgets, M horizons, K trials, B = 1 + resamples (row 0 the whole sample).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from repro.theory.sgd import (
    Array,
    LeastSquares,
    Measured,
    convex_error_bound,
    convex_step,
    draw_problem,
    optimal_sampling,
    run_sgd,
    second_moment,
)
from repro.theory.subset.closed_forms import (
    Chosen,
    bias,
    cheapest_first,
    coverage_for,
    mean_weight,
    strongly_convex_error_bound,
)

DOUBLINGS = 4
# As in the validation of cost-aware SGD, whose constants the paper does not give either: OUR ASSUMPTION.
CONSTANTS = dict(norm_low=0.1, norm_high=1.0, cost_low=1.0, cost_high=100.0, radius=1.0)
TIED_LENGTH = 0.7  # of the two solutions; the radius is 1

UNRELATED, TIED = "costs unrelated to content", "dear components differ"


def draw_cases(n_points: int, dimension: int, seed: int) -> dict[str, LeastSquares]:
    """Two problems of the same rows, costs and residuals: costs independent of what the points say, as in the paper,
    and the dearer half saying something else, its targets from a solution at right angles to that of the others."""
    if dimension < 2:
        raise ValueError(f"dimension = {dimension}: two solutions at right angles need at least 2")
    problem = draw_problem(n_points=n_points, dimension=dimension, seed=seed, **CONSTANTS)
    residuals_n = problem.targets_n - problem.rows_n_d @ problem.minimiser_d
    solutions_2_d = TIED_LENGTH * np.eye(2, dimension)
    dear_n = problem.costs_n > np.median(problem.costs_n)
    targets_n = (problem.rows_n_d * solutions_2_d[dear_n.astype(int)]).sum(axis=1) + residuals_n
    return {UNRELATED: problem, TIED: LeastSquares(problem.rows_n_d, targets_n, problem.costs_n, problem.radius)}


def choose(problem: LeastSquares, budget: float) -> Chosen:
    """The paper's rule: the cheapest components of bias at most budget·mean(G); `budget` is a share, 0 takes all."""
    mean_norm = problem.norms_n.mean()
    return cheapest_first(problem.norms_n, problem.costs_n, coverage_for(problem.norms_n, budget * mean_norm))


def restrict(problem: LeastSquares, chosen_n: Chosen) -> LeastSquares:
    """The points of S alone. Its mean is over |S|, where f_S = (1/n) Σ_S f_i has n: the factor |S|/n falls out of every
    step that theory sets, so the iterates are those of SGD on f_S."""
    parts = (problem.rows_n_d[chosen_n], problem.targets_n[chosen_n], problem.costs_n[chosen_n])
    try:
        return LeastSquares(*parts, problem.radius)
    except ValueError as error:  # too few points to stay solvable within the ball
        raise ValueError(
            f"{chosen_n.sum()} of {len(chosen_n)} points: {error}, more points or a smaller budget"
        ) from error


def steps_and_averaging(kind: str, problem: LeastSquares, horizon: int) -> tuple[Array, Array]:
    """(steps, averaging weights), each (T,). Convex: D/√(TV), equal weights. Strongly convex: 2/(μ(t + 1)), weights t
    (Lacoste-Julien, Schmidt and Bach 2012), whose error is at most 2V/(μ(T + 1))."""
    if kind == "convex":
        step = convex_step(_moment(problem), problem.diameter, horizon)
        return np.full(horizon, step), np.ones(horizon)
    place_T = np.arange(1, horizon + 1)
    return 2 / (strong_convexity(problem) * (place_T + 1)), place_T.astype(np.float64)


def strong_convexity(problem: LeastSquares) -> float:
    """μ, the smallest eigenvalue of ∇²f."""
    return float(np.linalg.eigvalsh(problem.hessian_d_d)[0])


def simulate(
    cases: dict[str, LeastSquares], budgets: Sequence[float], n_iterations: int, n_trials: int, seed: int
) -> pd.DataFrame:
    """Final errors of f, not of f_S: columns case, kind, budget, iteration (horizon), trial, cost, error.

    Trial k of a horizon draws from the same uniforms for every budget, so that budgets can be paired.
    """
    if n_iterations < 2**DOUBLINGS or n_trials < 2:
        raise ValueError(f"n_iterations = {n_iterations}, n_trials = {n_trials}: need at least {2**DOUBLINGS} and 2")
    frames = []
    for case, problem in cases.items():
        for budget in budgets:
            part = restrict(problem, choose(problem, budget))
            probabilities_n = optimal_sampling(part.norms_n, part.costs_n)
            for kind in ("convex", "strongly convex"):
                for horizon in (n_iterations // 2**k for k in range(DOUBLINGS, -1, -1)):
                    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(5, horizon)))
                    steps_T, averaging_T = steps_and_averaging(kind, part, horizon)
                    runs = run_sgd(part, probabilities_n, steps_T, n_trials, rng, averaging_T)
                    columns = {"case": case, "kind": kind, "budget": budget, "iteration": horizon}
                    columns |= {"trial": np.arange(n_trials), "cost": runs.cost_K}
                    frames.append(pd.DataFrame(columns | {"error": problem.error_K(runs.average_K_d)}))
    return pd.concat(frames, ignore_index=True)


def predict(cases: dict[str, LeastSquares], budgets: Sequence[float]) -> pd.DataFrame:
    """What theory says of each case and budget, and where f_S's minimiser really is. Columns: case, budget, and

    kept (|S|/n), bias (Δ_S), saving ((w_all/w_S)², cost on all components over cost on S by eq. 3, bias apart),
    saving_alike (the same where the rest of f is like f_S, so that f is n/|S| times f_S and errs as much more), floor
    (f(x_S) − f*), bound (DΔ_S, appendix C), bound_strong (Δ_S²/(2μ), Theorem D.3), mu (f's), mu_subset (f_S's).
    """
    rows = []
    for case, problem in cases.items():
        everything = mean_weight(problem.norms_n, problem.costs_n, np.ones(len(problem.costs_n), dtype=bool))
        mu = strong_convexity(problem)
        for budget in budgets:
            chosen_n = choose(problem, budget)
            part, delta = restrict(problem, chosen_n), float(bias(problem.norms_n, chosen_n))
            weight = mean_weight(problem.norms_n, problem.costs_n, chosen_n)
            row = {"case": case, "budget": budget, "kept": chosen_n.mean(), "bias": delta}
            saving = (everything / weight) ** 2
            row |= {"saving": saving, "saving_alike": saving * chosen_n.mean() ** 2}
            row |= {"floor": float(problem.error_K(part.minimiser_d[None])[0])}
            row |= {"bound": problem.diameter * delta, "bound_strong": delta**2 / (2 * mu)}
            rows.append(row | {"mu": mu, "mu_subset": strong_convexity(part) * chosen_n.mean()})
    return pd.DataFrame(rows)


def error_bounds(cases: dict[str, LeastSquares], budgets: Sequence[float], iterations_M: Array) -> pd.DataFrame:
    """Bounds on E f − f* of every run: columns case, kind, budget, iteration, bound.

    Convex: D√(V_S/T) + DΔ_S (appendix C). Strongly convex: `strongly_convex_error_bound` of 2V_S/(μ_S(T + 1)).
    """
    rows = []
    for row in predict(cases, budgets).itertuples():
        problem = cases[row.case]
        part = restrict(problem, choose(problem, row.budget))
        moment = _moment(part) * row.kept**2  # of f_S, whose gradients are |S|/n times those of `part`
        convex = convex_error_bound(moment, problem.diameter, iterations_M) + row.bound
        on_subset_M = 2 * moment / (row.mu_subset * (np.asarray(iterations_M) + 1))
        strong = strongly_convex_error_bound(on_subset_M, row.bias, row.mu)
        for kind, bound_M in (("convex", convex), ("strongly convex", strong)):
            columns = {"case": row.case, "kind": kind, "budget": row.budget, "iteration": iterations_M}
            rows.append(pd.DataFrame(columns | {"bound": bound_M}))
    return pd.concat(rows, ignore_index=True)


def measure(trials: pd.DataFrame, seed: int, n_resamples: int = 1000) -> dict[tuple[str, str], Measured]:
    """{(case, kind): bootstrapped means, budgets on axis S in rising order}; trials resampled jointly for all."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(6,)))
    n_trials = trials["trial"].nunique()
    weights_B_K = rng.multinomial(n_trials, np.full(n_trials, 1 / n_trials), size=n_resamples) / n_trials
    weights_B_K = np.vstack([np.full(n_trials, 1 / n_trials), weights_B_K])
    found = {}
    for key, rows in trials.groupby(["case", "kind"], sort=False):
        rows = rows.sort_values(["budget", "iteration", "trial"])
        iterations_M = np.sort(rows["iteration"].unique())
        shape = (rows["budget"].nunique(), len(iterations_M), n_trials)
        means = [
            np.tensordot(weights_B_K, rows[name].to_numpy().reshape(shape), axes=(1, 2)) for name in ("error", "cost")
        ]
        found[key] = Measured(*means, iterations_M)
    return found


def savings(measured: Measured) -> Array:
    """What leaving components out saves (B, S, M): the cost at which all components reach the error that a budget has
    at a horizon, over that budget's cost there. Budget 0 comes first; below 1 leaving out costs more.

    All components' cost is interpolated between horizons, log to log. Beyond the longest it goes on as 1/error, the
    fastest fall of such a run, and before the shortest it stays, so that the saving is at most this.
    """
    error_B_S_M, cost_B_S_M = np.log(measured.error_B_S_M), np.log(measured.cost_B_S_M)
    # What a run has reached, it has reached: chance may make a longer one end worse.
    all_error_B_M = np.minimum.accumulate(error_B_S_M[:, 0], axis=-1)[:, ::-1]
    rows = zip(error_B_S_M, all_error_B_M, cost_B_S_M[:, 0, ::-1], strict=True)
    reached_B_S_M = np.array([np.interp(target_S_M, error_M, cost_M) for target_S_M, error_M, cost_M in rows])
    beyond_B_S_M = np.maximum(all_error_B_M[:, None, :1] - error_B_S_M, 0.0)
    return np.exp(reached_B_S_M + beyond_B_S_M - cost_B_S_M)


def _moment(problem: LeastSquares) -> Array:
    return second_moment(problem.norms_n, optimal_sampling(problem.norms_n, problem.costs_n))
