"""Regimes and rates of Cost-Aware SGD: closed forms by hand, by quadrature and by brute force; runs against limits;
tables and verdicts by hand and from the notebook's runs at their smallest."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_cells import run_cells

from repro.theory import sgd as eq
from repro.theory import sgd_regimes as theory
from repro.theory.sgd import LeastSquares, Measured
from repro.theory.sgd_regimes import (
    CURVATURE,
    READINGS,
    SLOPE,
    Brier,
    brier_with_norms,
    descend,
    evenly,
    large_but_noiseless,
    least_squares_with_norms,
)

SMALL = dict(n_points=60, dimension=3, norm_spread=0.5, cost_spread=1.0, correlation=0.8, radius=1.0, seed=1)
RUN = dict(drift=0.1, n_iterations=512, n_trials=20, dramatic_points=[10, 30])
magnitudes = st.floats(1e-2, 1e2)


@st.composite
def instances(draw):
    n = draw(st.integers(2, 8))
    return tuple(np.array(draw(st.lists(magnitudes, min_size=n, max_size=n))) for _ in range(2))


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """What the cells of notebooks/theory/sgd_regimes.ipynb leave behind, and the folder `output` with its files."""
    return run_cells("sgd_regimes", tmp_path_factory.mktemp("sgd_regimes"), **SMALL, **RUN)


@pytest.fixture(scope="module")
def norms_and_costs(notebook):
    return notebook["norms_n"], notebook["regimes"]["none"][1]


@pytest.mark.parametrize("correlation", [-0.8, 0.0, 0.9])
def test_lognormal_ratios_are_eq_8_by_quadrature(notebook, correlation):
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    z, w = np.meshgrid(nodes, nodes)
    weight = np.outer(weights, weights) / weights.sum() ** 2
    norms, costs = np.exp(0.7 * z), notebook["lognormal_costs"](z, w, 1.2, correlation)

    def mean(values):
        return (weight * values).sum()

    best = mean(norms * np.sqrt(costs)) ** 2
    uniform, variance = mean(costs) * mean(norms**2) / best, mean(norms) * mean(norms * costs) / best
    assert notebook["lognormal_uniform"](0.7, 1.2, correlation) == pytest.approx(uniform, rel=1e-6)
    assert notebook["lognormal_variance"](1.2) == pytest.approx(variance, rel=1e-6)
    assert (variance <= uniform) == (correlation <= 0.7 / 1.2)  # Theorem D.1 turns at γ/κ


@given(instance=instances())
@settings(deadline=None)
def test_the_threshold_is_theorem_d1_and_no_instance_exceeds_the_ceilings(notebook, instance):
    norms_n, costs_n = instance
    ceiling = notebook["ceiling"]
    uniform, variance = eq.uniform_cost_ratio(norms_n, costs_n), eq.variance_cost_ratio(norms_n, costs_n)
    s = np.sqrt(costs_n.max() / costs_n.min())
    assert variance <= ceiling(s) * (1 + 1e-9)
    assert uniform <= ceiling(s * norms_n.max() / norms_n.min()) * (1 + 1e-9)
    if norms_n.std() > 1e-6 * norms_n.mean() and costs_n.std() > 1e-6 * costs_n.mean():
        cv_norm, cv_cost = norms_n.std() / norms_n.mean(), costs_n.std() / costs_n.mean()
        pearson = np.mean((norms_n - norms_n.mean()) * (costs_n - costs_n.mean())) / norms_n.std() / costs_n.std()
        assert variance / uniform == pytest.approx((1 + pearson * cv_norm * cv_cost) / (1 + cv_norm**2), rel=1e-6)
        distance = notebook["pearson_threshold"](norms_n, costs_n) - pearson
        if abs(distance) > 1e-6:
            assert (distance > 0) == (eq.variance_margin(norms_n, costs_n) > 0)


def test_two_components_reach_the_ceilings(notebook):
    # c = (1, 4), G = (2, 1): √c·G = (2, 2). Variance 3·6/16, s = 2: 9/8. Uniform 5·5/16, r = 4: 25/16.
    ceiling = notebook["ceiling"]
    assert ceiling(2.0) == pytest.approx(eq.variance_cost_ratio([2, 1], [1, 4])) == 9 / 8
    assert ceiling(4.0) == pytest.approx(eq.uniform_cost_ratio([2, 1], [1, 4])) == 25 / 16
    assert ceiling(1.0) == 1.0
    first = notebook["dramatic"].iloc[0]  # n = 10, uniform: max G/min G = 10, max c/min c = 100
    assert first["ceiling"] == ceiling(100.0)


def test_the_dramatic_instance_has_its_closed_form(notebook):
    for n in range(1, 30):
        place_n = np.arange(1.0, n + 1)
        uniform, variance = notebook["dramatic_ratios"](n)
        assert eq.uniform_cost_ratio(1 / place_n, place_n**2) == pytest.approx(uniform)
        assert eq.variance_cost_ratio(1 / place_n, place_n**2) == pytest.approx(variance)
    uniform, variance = notebook["dramatic_ratios"](10**6)
    assert uniform / 10**6 == pytest.approx(np.pi**2 / 18, rel=1e-3)
    assert variance == pytest.approx(0.5 * (np.log(10**6) + np.euler_gamma), rel=1e-3)


def test_regimes_share_their_norms_and_turn_where_d1_says(notebook):
    draw_regimes = notebook["draw_regimes"]
    z_n, w_n = notebook["draw_scores"](101, seed=4)
    for scores_n in (z_n, w_n):
        assert scores_n.mean() == pytest.approx(0, abs=1e-12) and scores_n.std() == pytest.approx(1)
    assert z_n @ w_n == pytest.approx(0, abs=1e-9)
    norms_n, regimes = draw_regimes(101, 0.5, 1.0, 0.8, seed=4)
    rho, costs_n = regimes["threshold"]
    assert eq.variance_margin(norms_n, costs_n) == pytest.approx(0, abs=1e-9)
    assert 0 < rho < 0.8 and list(regimes) == ["negative", "none", "threshold", "positive"]
    assert eq.variance_margin(norms_n, regimes["none"][1]) > 0 > eq.variance_margin(norms_n, regimes["positive"][1])
    assert np.corrcoef(norms_n, regimes["negative"][1])[0, 1] < -0.2
    with pytest.raises(ValueError, match="give costs more spread"):
        draw_regimes(101, 1.0, 0.3, 0.8, seed=4)
    with pytest.raises(ValueError, match="must lie above"):
        draw_regimes(101, 0.7, 1.0, 0.1, seed=4)


def two_rows() -> LeastSquares:
    """Rows of 1, targets ±1: μ = 1, G = 1·(1·2 + 1) = 3, V = 9 and D = 4 under uniform sampling."""
    return LeastSquares(np.ones((2, 1)), np.array([1.0, -1.0]), np.array([1.0, 2.0]), radius=2.0)


def test_bounds_by_hand(notebook):
    # D = 4, V = 2: T = 16·2·4 = 128 reaches ε = 1/2, at C = 5 for 640.
    squares = notebook["least_squares"](two_rows())
    assert squares.bound(2.0, 128) == pytest.approx(0.5) and squares.cost(5 * 2.0, 0.5) == pytest.approx(640)
    assert notebook["linear"](np.ones(60), np.ones(60)).bound(9.0, 36) == pytest.approx(2 * 0.5)
    steep = notebook["strongly_convex"](two_rows())  # μ = 1
    assert steep.bound(3.0, 5) == pytest.approx(1) and steep.cost(5 * 2.0, 0.5) == pytest.approx(2 * 10 / 0.5)
    # Δ = f(x₁) = ½·(½)² = 1/8 and L = κ·1: bound √(2ΔLV/T), cost 2ΔL·J/ε².
    gentle = notebook["non_convex"](Brier(np.ones((2, 1)), np.array([0.0, 1.0]), np.ones(2), np.zeros(1)))
    assert gentle.bound(9.0, 4) == pytest.approx(np.sqrt(2 / 8 * CURVATURE * 9 / 4))
    assert gentle.cost(45.0, 3.0) == pytest.approx(2 / 8 * CURVATURE * 45 / 9)
    # H = 2, noise 3, descent 4, η = ½/√T: 4/½ + ½·½·2·3; at the end variance ½·3/(2·2), and H² times it.
    assert theory.stationarity_limits(4.0, np.eye(1) * 2, np.eye(1) * 3, 0.5) == pytest.approx((9.5, 4 * 0.375))


def test_steps_are_those_of_each_bound(notebook):
    """One component, so that nothing is random: the iterates by hand, from the steps in the table of the notebook."""
    one = LeastSquares(np.ones((1, 1)), np.array([0.5]), np.ones(1), radius=1.0)  # G = 1.5 = √V, D = 2, μ = 1
    rng = np.random.default_rng(0)
    step = 2 / np.sqrt(3 * 1.5**2)
    x = [0.0]
    for _ in range(3):
        x.append(min(x[-1] - step * (x[-1] - 0.5), 1.0))
    runs = notebook["least_squares"](one).run(np.ones(1), 3, 2, rng)
    assert runs["average"] == pytest.approx(np.full(2, 0.5 * (np.mean(x[:3]) - 0.5) ** 2))
    assert runs["last"] == pytest.approx(np.full(2, 0.5 * (x[3] - 0.5) ** 2))
    x = [0.0]
    for t in (1, 2, 3):
        x.append(max(-1.0, min(x[-1] - 2 / (t + 1) * (x[-1] - 0.5), 1.0)))
    runs = notebook["strongly_convex"](one).run(np.ones(1), 3, 2, rng)
    assert runs["average"] == pytest.approx(np.full(2, 0.5 * (np.dot([1, 2, 3], x[:3]) / 6 - 0.5) ** 2), abs=1e-15)
    descent = Brier(np.array([[2.0]]), np.array([1.0]), np.array([3.0]), np.array([-1.0]))
    step = np.sqrt(2 * descent.gap / (descent.smoothness * READINGS)) / descent.norms_n[0]  # √(2Δ/(L V T)), V = G²
    expected = descend(descent, np.ones(1), READINGS, 2, rng, evenly(READINGS), scale=step)
    runs = notebook["non_convex"](descent).run(np.ones(1), READINGS, 2, rng)
    assert runs["average"] == pytest.approx(expected.stationarity_R_K.mean(axis=0)) and runs["last"] == pytest.approx(
        expected.last_K
    )


def test_least_squares_limits_are_those_of_the_exact_recursion():
    """Two rows of 1, targets ±1: the noise does not depend on x, so errors follow e ← (1−η) e − η ξ with Var ξ = 1."""
    problem = two_rows()
    half_n, horizon, mu = np.full(2, 0.5), 20_000, 0.6
    weights_T = np.arange(1.0, horizon + 1)
    steps_T = 2 / (mu * (weights_T + 1))
    carried, summed, last, average = 1.0, 0.0, 0.0, 0.0
    for step, weight in zip(steps_T[::-1], weights_T[::-1], strict=True):
        last, average = last + (step * carried) ** 2, average + (step * summed) ** 2
        carried, summed = carried * (1 - step), weight + (1 - step) * summed
    expected = theory.strongly_convex_limits(problem, half_n, mu)
    assert horizon * 0.5 * average / weights_T.sum() ** 2 == pytest.approx(expected[0], rel=0.01)
    assert horizon * 0.5 * last == pytest.approx(expected[1], rel=0.01)
    # G = 3, V = 9, D = 4, T = 10⁶: η = 4/3000, stationary variance η/(2−η), error half of it.
    step = 4 / 3000
    assert 1000 * 0.5 * step / (2 - step) == pytest.approx(theory.last_iterate_limit(problem, half_n), rel=0.01)
    with pytest.raises(ValueError, match="no limit"):
        theory.strongly_convex_limits(problem, half_n, 4.0)


def test_no_sampling_beats_the_noise_aware_one_in_the_limit(notebook):
    problem = notebook["cases"][2].problem
    mu = np.linalg.eigvalsh(problem.hessian_d_d)[0]

    def cost(p_n):
        return eq.expected_cost(problem.costs_n, p_n) * theory.strongly_convex_limits(problem, p_n, mu)[0]

    least = cost(theory.noise_aware_sampling(problem, mu))
    rng = np.random.default_rng(0)
    assert all(least <= cost(rng.dirichlet(np.full(60, 5.0)) * 0.99 + 0.01 / 60) for _ in range(50))
    assert least < cost(eq.optimal_sampling(problem.norms_n, problem.costs_n))


def test_large_gradients_without_noise_mislead_the_theorem():
    problem = large_but_noiseless(60, 3, 1.0, seed=0)
    sizes_n = np.linalg.norm(problem.gradients_n_d(problem.minimiser_d), axis=1)
    assert sizes_n[:30] == pytest.approx(np.zeros(30), abs=1e-12) and sizes_n[30:].min() > 0
    assert np.median(problem.norms_n[:30]) > 5 * np.median(problem.norms_n[30:])
    uniform_n, optimal_n = (eq.SAMPLINGS[name](problem.norms_n, problem.costs_n) for name in ("uniform", "optimal"))
    mu = np.linalg.eigvalsh(problem.hessian_d_d)[0]
    assert eq.uniform_cost_ratio(problem.norms_n, problem.costs_n) > 1.3
    limits = [theory.strongly_convex_limits(problem, p_n, mu)[0] for p_n in (optimal_n, uniform_n)]
    assert limits[0] > 2 * limits[1]


def test_problems_have_the_norms_that_were_asked_for(notebook, norms_and_costs):
    norms_n, costs_n = norms_and_costs
    balanced_slopes = notebook["balanced_slopes"]
    assert least_squares_with_norms(norms_n, costs_n, 3, 1.5, seed=0).norms_n == pytest.approx(norms_n)
    assert brier_with_norms(norms_n, costs_n, 3, seed=0).norms_n == pytest.approx(norms_n)
    slopes_n = balanced_slopes(norms_n, 0.2)
    assert np.abs(slopes_n) == pytest.approx(norms_n)
    assert slopes_n.mean() == pytest.approx(0.2 * norms_n.mean(), rel=0.1)
    with pytest.raises(ValueError, match="add points"):
        balanced_slopes(np.array([1.0]), 0.2)


def test_linear_sgd_follows_every_path(notebook):
    """Two components, four steps, a wall that binds: the mean over trials against all 16 paths."""
    slopes_n, costs_n = np.array([2.0, -1.0]), np.array([1.0, 10.0])
    p_n, steps_T = np.array([0.6, 0.4]), np.array([0.9, 0.5, 0.4, 0.2])
    expected = np.zeros(3)
    for path in itertools.product((0, 1), repeat=4):
        x, average = 1.0, 0.0
        for i, step in zip(path, steps_T, strict=True):
            average += x / 4
            x = max(0.0, x - step * slopes_n[i] / (2 * p_n[i]))
        # f(x) − f* = ḡ x, ḡ = ½
        expected += p_n[list(path)].prod() * np.array([average / 2, x / 2, costs_n[list(path)].sum()])
    runs = notebook["run_linear"](slopes_n, costs_n, 1.0, p_n, steps_T, 100_000, np.random.default_rng(1))
    for name, mean in zip(("average", "last", "cost"), expected, strict=True):
        assert abs(runs[name].mean() - mean) < 4 * runs[name].std() / np.sqrt(100_000)


def test_the_brier_score_has_its_derivatives_and_their_bounds():
    u = np.linspace(-12, 12, 200_001)
    one = Brier(np.ones((1, 1)), np.zeros(1), np.ones(1), np.zeros(1))
    share = 1 / (1 + np.exp(-u))
    assert (share**2 * (1 - share)).max() == pytest.approx(SLOPE, rel=1e-6) == one.norms_n[0]
    curvature = share**2 * (1 - share) * (2 - 3 * share)
    assert curvature.max() == pytest.approx(CURVATURE, rel=1e-6) and -CURVATURE < curvature.min() < -0.06
    problem = brier_with_norms(np.full(80, 0.3), np.ones(80), 3, seed=2)
    x_d, h = np.array([0.3, -0.7, 0.2]), 1e-5
    gradient_d = problem.gradients_n_d(x_d).mean(axis=0)
    slope_d = [(problem.value(x_d + h * e_d) - problem.value(x_d - h * e_d)) / (2 * h) for e_d in np.eye(3)]
    assert gradient_d == pytest.approx(slope_d, abs=1e-9)
    assert problem.stationarity_K(x_d[None]) == pytest.approx([gradient_d @ gradient_d])
    ends = [problem.gradients_n_d(x_d + s * h * e_d).mean(axis=0) for e_d in np.eye(3) for s in (1, -1)]
    hessian = (np.array(ends[::2]) - np.array(ends[1::2])) / (2 * h)
    assert problem.hessian_d_d(x_d) == pytest.approx(hessian, abs=1e-8)
    assert np.linalg.eigvalsh(problem.hessian_d_d(problem.start_d))[0] < 0  # not convex, and started where it shows
    assert np.linalg.eigvalsh(problem.hessian_d_d(problem.minimiser_d))[0] > 0


def test_with_one_component_sgd_is_gradient_descent():
    problem = Brier(np.array([[2.0]]), np.array([1.0]), np.array([3.0]), np.array([-1.0]))
    some = evenly(2 * READINGS)
    runs = descend(problem, np.ones(1), 2 * READINGS, 2, np.random.default_rng(0), some, lambda move: 0.25 * move, 2.0)
    x_d, read = problem.start_d, []
    for _ in range(2 * READINGS):
        read.append(problem.stationarity_K(x_d[None])[0])
        x_d = x_d - 0.5 * problem.gradients_n_d(x_d)[0]
    assert runs.stationarity_R_K == pytest.approx(np.tile(read[1::2], (2, 1)).T)
    assert runs.last_K == pytest.approx(np.full(2, problem.stationarity_K(x_d[None])[0]))
    assert runs.cost_K == pytest.approx(np.full(2, 6.0 * READINGS))


@pytest.mark.parametrize("place", range(4))
def test_long_runs_reach_their_limits_under_any_sampling(notebook, place):
    case = notebook["cases"][place]
    p_n = np.random.default_rng(3).dirichlet(np.full(60, 4.0)) * 0.5 + 0.5 / 60
    runs = case.run(p_n, 8192, 200, np.random.default_rng(4))
    moment = eq.second_moment(case.norms, p_n)
    for iterate, limit in case.limits(p_n).items():
        if (case.name, iterate) == ("non-convex", "last"):
            continue  # not there yet: its transient outlasts this horizon
        error_K = runs[iterate]
        noise = 4 * error_K.std() / np.sqrt(len(error_K)) / error_K.mean()
        assert error_K.mean() == pytest.approx(limit * 8192 ** (-1 / case.powers[iterate]), rel=noise + 0.1)
    assert runs["average"].mean() < case.bound(moment, 8192) * 1.02
    assert case.cost(2.0 * moment, case.bound(moment, 8192)) == pytest.approx(2.0 * 8192, rel=1e-3)


def test_tables_hold_closed_forms_and_every_claim_is_judged(notebook, norms_and_costs):
    regimes = notebook["regime_table"].set_index(["regime", "pair"])
    assert regimes.loc[("threshold", "variance / uniform"), "eq_8"] == pytest.approx(1.0)
    assert regimes.loc[("none", "uniform / optimal"), "eq_8"] == eq.uniform_cost_ratio(*norms_and_costs)
    assert regimes["eq_8"].to_numpy() == pytest.approx(regimes["lognormal"].to_numpy(), rel=0.25)
    product = regimes["eq_8"].unstack()
    quotient = product["variance / optimal"] / product["uniform / optimal"]
    assert quotient.to_numpy() == pytest.approx(product["variance / uniform"].to_numpy())
    examples, verdicts = notebook["examples"], pd.read_parquet(notebook["output"] / "verdicts.parquet")
    assert list(examples["cheaper"]) == ["variance", "uniform"]
    assert examples["pearson"][0] == pytest.approx(1.0) and examples["pearson"][1] < 0.45
    assert len(verdicts) == 62 and verdicts["id"].is_unique
    assert np.isfinite(verdicts[["expected", "value", "low", "high"]]).all(axis=None)
    assert ((verdicts["low"] <= verdicts["value"]) & (verdicts["value"] <= verdicts["high"])).all()


def test_a_wrong_exponent_does_not_pass(notebook):
    def outcome(rates):
        return {verdict.id: verdict.outcome for verdict in notebook["judge_rates"](rates)}[
            "exponent-non-convex-average"
        ]

    sharp = notebook["rate_table"].assign(exponent_low=1.95, exponent_high=2.05, exponent=2.0)
    assert outcome(sharp) == "holds" and outcome(sharp.assign(exponent_high=2.25)) == "not shown"


def test_measured_ratios_by_hand(notebook, norms_and_costs):
    # Two horizons; errors 0.2 and 0.1 (last: 0.4 and 0.3), cost 10 and 20, uniform twice: 20·0.1² per ε^−2.
    shape, one = (2, 3, 2), np.array([0.2, 0.1])
    cost_B_S_M = np.array([2.0, 1.0, 1.0])[:, None] * np.array([10.0, 20.0]) * np.ones(shape)
    means = {
        "average": Measured(one * np.ones(shape), cost_B_S_M, np.array([50, 100])),
        "last": Measured(np.array([0.4, 0.3]) * np.ones(shape), cost_B_S_M, np.array([50, 100])),
    }
    assert notebook["cost_at_end"](means["average"], 2.0)[0] == pytest.approx([0.4, 0.2, 0.2])
    case = notebook["cases"][0]
    growth = notebook["last_over_average"](case, means)
    assert growth["ratio"].to_numpy() == pytest.approx([2, 3])
    assert growth["growth"].to_numpy() == pytest.approx([1, 1.5])
    uniform = notebook["rates"](case, means).set_index(["iterate", "sampling"]).loc[("average", "uniform")]
    assert uniform["exponent"] == pytest.approx(1.0) and uniform["ratio"] == pytest.approx(2.0)
    limit = case.limits(eq.uniform_sampling(*norms_and_costs))["average"]
    assert uniform["level"] == pytest.approx(0.1 / (limit / 10))
    assert uniform["tightness"] == pytest.approx(max(0.2 * 50**0.5, 0.1 * 10) / limit)


def test_iterations_to_an_error_by_hand(notebook):
    # 8, 2, ½ at T = 1, 4, 16: a slope of −1 on log axes, so 4 at T = 2; the second is never at 1.
    error_M_B, times = np.array([[8.0, 8.0], [2.0, 2.0], [0.5, 8.0]]), [1, 4, 16]
    for epsilon, expected in ((4.0, [2, 2]), (1.0, [8, 16]), (0.1, [16, 16]), (9.0, [1, 1])):
        assert notebook["iterations_to"](error_M_B, times, epsilon) == pytest.approx(expected)
    rows = notebook["cost_rows"]("any", np.ones((5, 3)), np.ones(5), 1.0)
    ratio = {row["sampling"]: (row["ratio"], row["limit"]) for row in rows}  # the same T: cost is that of a step
    assert ratio["uniform"] == pytest.approx((notebook["product"]["cost of a step C"]["uniform"],) * 2)


def test_the_cost_of_one_sampling_over_another(notebook):
    class Constant:
        def run(self, p_n, horizon, n_trials, rng):
            return {"average": np.full(n_trials, p_n[0]), "last": np.ones(n_trials), "cost": np.full(n_trials, p_n[1])}

    pair = np.array([0.3, 0.7]), np.array([0.6, 0.4])
    ratio_B = notebook["relative_cost"](Constant(), *pair, 10, 4, seed=0)
    assert ratio_B == pytest.approx(np.full(2001, 0.3 * 0.7 / (0.6 * 0.4)))


def test_regimes_that_do_what_the_theory_says_are_judged_so_and_others_are_not(notebook):
    exact, judge = notebook["regime_table"].copy(), notebook["judge_regimes"]
    for end in ("", "_low", "_high"):
        exact["linear" + end], exact["squares" + end] = exact["eq_8"], exact["limit"]
    assert {verdict.outcome for verdict in judge(exact)} == {"holds"}
    turned = exact["pair"] == "variance / uniform"
    for end in ("", "_low", "_high"):
        exact.loc[turned, "linear" + end] = 1 / exact["eq_8"]
    missed = [verdict.id for verdict in judge(exact) if verdict.outcome != "holds"]
    assert missed == ["d1-negative", "d1-none", "d1-positive"]
