"""Regimes and rates of Cost-Aware SGD: closed forms by hand, by quadrature and by brute force; runs against limits."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.theory import sgd as eq
from repro.theory.sgd import LeastSquares
from repro.theory.sgd_regimes import closed_forms as theory
from repro.theory.sgd_regimes import comparisons as comparisons
from repro.theory.sgd_regimes import rates as bounds
from repro.theory.sgd_regimes.nonconvex import CURVATURE, READINGS, SLOPE, Brier, brier_with_norms, run_brier
from repro.theory.sgd_regimes.problems import (
    Linear,
    balanced_slopes,
    large_but_noiseless,
    least_squares_with_norms,
    run_linear,
)

SMALL = dict(dimension=3, radius=1.0, drift=0.2, seed=0)
magnitudes = st.floats(1e-2, 1e2)


@st.composite
def instances(draw):
    n = draw(st.integers(2, 8))
    return tuple(np.array(draw(st.lists(magnitudes, min_size=n, max_size=n))) for _ in range(2))


@pytest.fixture(scope="module")
def norms_and_costs():
    norms_n, regimes = theory.draw_regimes(60, 0.5, 1.0, 0.8, seed=1)
    return norms_n, regimes["none"][1]


@pytest.mark.parametrize("correlation", [-0.8, 0.0, 0.9])
def test_lognormal_ratios_are_eq_8_by_quadrature(correlation):
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    z, w = np.meshgrid(nodes, nodes)
    weight = np.outer(weights, weights) / weights.sum() ** 2
    norms, costs = np.exp(0.7 * z), theory.lognormal_costs(z, w, 1.2, correlation)

    def mean(values):
        return (weight * values).sum()

    best = mean(norms * np.sqrt(costs)) ** 2
    uniform, variance = mean(costs) * mean(norms**2) / best, mean(norms) * mean(norms * costs) / best
    assert theory.lognormal_uniform_ratio(0.7, 1.2, correlation) == pytest.approx(uniform, rel=1e-6)
    assert theory.lognormal_variance_ratio(1.2) == pytest.approx(variance, rel=1e-6)
    assert (variance <= uniform) == (correlation <= theory.lognormal_threshold(0.7, 1.2))


def test_uniform_is_optimal_where_costs_are_the_squares_of_norms():
    assert theory.lognormal_uniform_ratio(0.5, 1.0, 1.0) == pytest.approx(1.0)


@given(instances())
@settings(deadline=None)
def test_the_threshold_is_theorem_d1_and_no_instance_exceeds_the_ceilings(instance):
    norms_n, costs_n = instance
    uniform, variance = eq.uniform_cost_ratio(norms_n, costs_n), eq.variance_cost_ratio(norms_n, costs_n)
    assert variance <= theory.largest_variance_ratio(costs_n.max() / costs_n.min()) * (1 + 1e-9)
    spread = norms_n.max() / norms_n.min(), costs_n.max() / costs_n.min()
    assert uniform <= theory.largest_uniform_ratio(*spread) * (1 + 1e-9)
    if norms_n.std() > 1e-6 * norms_n.mean() and costs_n.std() > 1e-6 * costs_n.mean():
        cv_norm, cv_cost = norms_n.std() / norms_n.mean(), costs_n.std() / costs_n.mean()
        pearson = np.mean((norms_n - norms_n.mean()) * (costs_n - costs_n.mean())) / norms_n.std() / costs_n.std()
        assert variance / uniform == pytest.approx((1 + pearson * cv_norm * cv_cost) / (1 + cv_norm**2), rel=1e-6)
        distance = theory.threshold_correlation(norms_n, costs_n) - pearson
        if abs(distance) > 1e-6:
            assert (distance > 0) == (eq.variance_margin(norms_n, costs_n) > 0)


def test_two_components_reach_the_ceilings():
    # c = (1, 4), G = (2, 1): √c·G = (2, 2). Variance 3·6/16, s = 2: 9/8. Uniform 5·5/16, r = 4: 25/16.
    assert theory.largest_variance_ratio(4.0) == pytest.approx(eq.variance_cost_ratio([2, 1], [1, 4])) == 9 / 8
    assert theory.largest_uniform_ratio(2.0, 4.0) == pytest.approx(eq.uniform_cost_ratio([2, 1], [1, 4])) == 25 / 16
    assert theory.largest_variance_ratio(1.0) == 1.0


def test_the_dramatic_instance_has_its_closed_form():
    for n in range(1, 30):
        uniform, variance = theory.dramatic_ratios(n)
        assert eq.uniform_cost_ratio(*theory.dramatic_instance(n)) == pytest.approx(uniform)
        assert eq.variance_cost_ratio(*theory.dramatic_instance(n)) == pytest.approx(variance)
    uniform, variance = theory.dramatic_ratios(10**6)
    assert uniform / 10**6 == pytest.approx(np.pi**2 / 18, rel=1e-3)
    assert variance == pytest.approx(0.5 * (np.log(10**6) + np.euler_gamma), rel=1e-3)


def test_regimes_share_their_norms_and_turn_where_d1_says():
    z_n, w_n = theory.draw_scores(101, seed=4)
    for scores_n in (z_n, w_n):
        assert scores_n.mean() == pytest.approx(0, abs=1e-12) and scores_n.std() == pytest.approx(1)
    assert z_n @ w_n == pytest.approx(0, abs=1e-9)
    norms_n, regimes = theory.draw_regimes(101, 0.5, 1.0, 0.8, seed=4)
    rho, costs_n = regimes["threshold"]
    assert eq.variance_margin(norms_n, costs_n) == pytest.approx(0, abs=1e-9)
    assert 0 < rho < 0.8 and list(regimes) == ["negative", "none", "threshold", "positive"]
    assert eq.variance_margin(norms_n, regimes["none"][1]) > 0 > eq.variance_margin(norms_n, regimes["positive"][1])
    assert np.corrcoef(norms_n, regimes["negative"][1])[0, 1] < -0.2
    with pytest.raises(ValueError, match="give costs more spread"):
        theory.draw_regimes(101, 1.0, 0.3, 0.8, seed=4)
    with pytest.raises(ValueError, match="must lie above"):
        theory.draw_regimes(101, 0.7, 1.0, 0.1, seed=4)
    with pytest.raises(ValueError, match=r"correlation is 1\.5"):
        theory.lognormal_uniform_ratio(1.0, 1.0, 1.5)
    with pytest.raises(ValueError, match=r"cost_range is 0\.5"):
        theory.largest_variance_ratio(0.5)


def test_bounds_by_hand():
    assert bounds.strongly_convex_steps(0.5, 3) == pytest.approx([2, 4 / 3, 1])
    assert bounds.strongly_convex_weights(3) == pytest.approx([1, 2, 3])
    assert bounds.strongly_convex_error_bound(3.0, 0.5, 5) == pytest.approx(2)
    # Δ = 2, L = 1, V = 9, T = 4: η = √(4/36) = 1/3, bound √(36/4) = 3 = Δ/(ηT) + ηLV/2; at C = 5 ε = 3 costs 4·5.
    assert bounds.stationarity_step(9.0, 2.0, 1.0, 4) == pytest.approx(1 / 3)
    assert bounds.stationarity_bound(9.0, 2.0, 1.0, 4) == pytest.approx(3.0) == 2 / (4 / 3) + 9 / 6
    assert bounds.stationarity_cost(5 * 9.0, 2.0, 1.0, 3.0) == pytest.approx(20.0)
    # H = 2, noise 3, descent 4, η = ½/√T: 4/½ + ½·½·2·3; at the end variance ½·3/(2·2), and H² times it.
    assert bounds.stationarity_limits(4.0, np.eye(1) * 2, np.eye(1) * 3, 0.5) == pytest.approx((9.5, 4 * 0.375))


def test_least_squares_limits_are_those_of_the_exact_recursion():
    """Two rows of 1, targets ±1: the noise does not depend on x, so errors follow e ← (1−η) e − η ξ with Var ξ = 1."""
    problem = LeastSquares(np.ones((2, 1)), np.array([1.0, -1.0]), np.array([1.0, 2.0]), radius=2.0)
    half_n, horizon, mu = np.full(2, 0.5), 20_000, 0.6
    steps_T, weights_T = bounds.strongly_convex_steps(mu, horizon), bounds.strongly_convex_weights(horizon)
    carried, summed, last, average = 1.0, 0.0, 0.0, 0.0
    for step, weight in zip(steps_T[::-1], weights_T[::-1], strict=True):
        last, average = last + (step * carried) ** 2, average + (step * summed) ** 2
        carried, summed = carried * (1 - step), weight + (1 - step) * summed
    expected = bounds.strongly_convex_limits(problem, half_n, mu)
    assert horizon * 0.5 * average / weights_T.sum() ** 2 == pytest.approx(expected[0], rel=0.01)
    assert horizon * 0.5 * last == pytest.approx(expected[1], rel=0.01)
    # G = 3, V = 9, D = 4, T = 10⁶: η = 4/3000, stationary variance η/(2−η), error half of it.
    step = 4 / 3000
    assert 1000 * 0.5 * step / (2 - step) == pytest.approx(bounds.last_iterate_limit(problem, half_n), rel=0.01)
    with pytest.raises(ValueError, match="no limit"):
        bounds.strongly_convex_limits(problem, half_n, 4.0)


def test_no_sampling_beats_the_noise_aware_one_in_the_limit(norms_and_costs):
    study = comparisons.four_cases(*norms_and_costs, SMALL)[2]
    problem, mu = study.problem, study.strong_convexity

    def cost(p_n):
        return eq.expected_cost(problem.costs_n, p_n) * bounds.strongly_convex_limits(problem, p_n, mu)[0]

    least = cost(bounds.noise_aware_sampling(problem, mu))
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
    limits = [bounds.strongly_convex_limits(problem, p_n, mu)[0] for p_n in (optimal_n, uniform_n)]
    assert limits[0] > 2 * limits[1]


def test_problems_have_the_norms_that_were_asked_for(norms_and_costs):
    norms_n, costs_n = norms_and_costs
    assert least_squares_with_norms(norms_n, costs_n, 3, 1.5, seed=0).norms_n == pytest.approx(norms_n)
    assert brier_with_norms(norms_n, costs_n, 3, seed=0).norms_n == pytest.approx(norms_n)
    slopes_n = balanced_slopes(norms_n, 0.2)
    assert np.abs(slopes_n) == pytest.approx(norms_n)
    assert slopes_n.mean() == pytest.approx(0.2 * norms_n.mean(), rel=0.1)
    with pytest.raises(ValueError, match="add points"):
        balanced_slopes([1.0], 0.2)
    with pytest.raises(ValueError, match="drift is 1"):
        balanced_slopes(norms_n, 1.0)


def test_linear_sgd_follows_every_path():
    """Two components, four steps, a wall that binds: the mean over trials against all 16 paths."""
    problem = Linear(np.array([2.0, -1.0]), np.array([1.0, 10.0]), distance=1.0)
    p_n, steps_T = np.array([0.6, 0.4]), np.array([0.9, 0.5, 0.4, 0.2])
    expected = np.zeros(3)
    for path in itertools.product((0, 1), repeat=4):
        x, average = 1.0, 0.0
        for i, step in zip(path, steps_T, strict=True):
            average += x / 4
            x = max(0.0, x - step * problem.slopes_n[i] / (2 * p_n[i]))
        expected += p_n[list(path)].prod() * np.array([average, x, problem.costs_n[list(path)].sum()])
    runs = run_linear(problem, p_n, steps_T, 100_000, np.random.default_rng(1))
    for values_K, mean in zip((runs.average_K_d[:, 0], runs.last_K_d[:, 0], runs.cost_K), expected, strict=True):
        assert abs(values_K.mean() - mean) < 4 * values_K.std() / np.sqrt(len(values_K))
    assert problem.error_K(np.array([[3.0]])) == pytest.approx([1.5])
    with pytest.raises(ValueError, match="mean slope"):
        Linear(np.array([1.0, -2.0]), np.ones(2), 1.0)


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
    with pytest.raises(ValueError, match="neither 0 nor 1"):
        Brier(np.ones((1, 1)), np.array([0.5]), np.ones(1), np.zeros(1))


def test_with_one_component_sgd_is_gradient_descent():
    problem = Brier(np.array([[2.0]]), np.array([1.0]), np.array([3.0]), np.array([-1.0]))
    runs = run_brier(problem, np.ones(1), 0.5, 2 * READINGS, 2, np.random.default_rng(0))
    x_d, read = problem.start_d, []
    for _ in range(2 * READINGS):
        read.append(problem.stationarity_K(x_d[None])[0])
        x_d = x_d - 0.5 * problem.gradients_n_d(x_d)[0]
    assert runs.mean_K == pytest.approx(np.full(2, np.mean(read[1::2])))
    assert runs.last_K == pytest.approx(np.full(2, problem.stationarity_K(x_d[None])[0]))
    assert runs.cost_K == pytest.approx(np.full(2, 6.0 * READINGS))


@pytest.mark.parametrize("place", range(4))
def test_long_runs_reach_their_limits_under_a_sampling_of_no_kind(norms_and_costs, place):
    study = comparisons.four_cases(*norms_and_costs, SMALL | {"drift": 0.1})[place]
    p_n = np.random.default_rng(3).dirichlet(np.full(60, 4.0)) * 0.5 + 0.5 / 60
    runs = study.run(p_n, 8192, 200, np.random.default_rng(4))
    moment = eq.second_moment(study.problem.norms_n, p_n)
    for iterate, limit in study.limits(p_n).items():
        if (study.name, iterate) == ("non-convex", "last"):
            continue  # not there yet: its transient outlasts this horizon
        error_K = runs[iterate]
        noise = 4 * error_K.std() / np.sqrt(len(error_K)) / error_K.mean()
        assert error_K.mean() == pytest.approx(limit * 8192 ** (-1 / study.powers[iterate]), rel=noise + 0.1)
    assert runs["average"].mean() < study.bound(moment, 8192) * 1.02
    assert study.bound_cost(2.0 * moment, study.bound(moment, 8192)) == pytest.approx(2.0 * 8192, rel=1e-3)
