"""Cost-Aware SGD: the closed forms by hand and by brute force, and a simulation whose expectation is known exactly."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_cells import run_cells

from repro.stats.verdicts import at_least, at_most, within
from repro.theory import sgd as theory
from repro.theory.sgd import LeastSquares, Measured, draw_problem, limit_constant, measure, moment_at_minimiser, run_sgd

NORMS_n, COSTS_n = np.array([1.0, 2.0]), np.array([1.0, 4.0])
SMALL = dict(n_points=60, dimension=3, norm_low=0.2, norm_high=1.0, cost_low=1.0, cost_high=50.0, radius=1.0)

magnitudes = st.floats(1e-3, 1e3)


@st.composite
def instances(draw):
    """Norms, costs and a distribution over two to eight components."""
    n = draw(st.integers(2, 8))
    norms_n, costs_n, scores_n = (np.array(draw(st.lists(magnitudes, min_size=n, max_size=n))) for _ in range(3))
    return norms_n, costs_n, scores_n / scores_n.sum()


RUN = dict(**SMALL, n_iterations=1024, n_trials=200, seed=3)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """What the cells of notebooks/theory/sgd.ipynb leave behind, and the folder `output` with its files."""
    return run_cells("sgd", tmp_path_factory.mktemp("sgd"), **RUN)


def test_two_components_by_hand():
    # G = (1, 2), c = (1, 4): G/√c = (1, 1), so optimal is uniform; p ∝ G is (1/3, 2/3).
    assert theory.optimal_sampling(NORMS_n, COSTS_n) == pytest.approx([1 / 2, 1 / 2])
    assert theory.variance_sampling(NORMS_n, COSTS_n) == pytest.approx([1 / 3, 2 / 3])
    assert theory.uniform_sampling(NORMS_n, COSTS_n) == pytest.approx([1 / 2, 1 / 2])
    assert theory.expected_cost(COSTS_n, [1 / 3, 2 / 3]) == pytest.approx(3.0)
    assert theory.second_moment(NORMS_n, [1 / 3, 2 / 3]) == pytest.approx((3 + 6) / 4)
    assert theory.cost_product(NORMS_n, COSTS_n, [1 / 3, 2 / 3]) == pytest.approx(6.75)
    assert theory.optimal_cost_product(NORMS_n, COSTS_n) == pytest.approx(((1 + 4) / 2) ** 2)
    assert theory.uniform_cost_ratio(NORMS_n, COSTS_n) == pytest.approx(1.0)
    assert theory.variance_cost_ratio(NORMS_n, COSTS_n) == pytest.approx(6.75 / 6.25)
    # J(uniform) − J(variance) = 2.5·2.5 − 6.75
    assert theory.variance_margin(NORMS_n, COSTS_n) == pytest.approx(-0.5)


def test_step_and_bound_by_hand():
    # V = 2, D = 3, T = 72: η = 3/√144, and the bound 3·√(2/72) is 1/2.
    assert theory.convex_error_bound(2.0, 3.0, 72) == pytest.approx(0.5)
    assert theory.convex_step(2.0, 3.0, 72) == pytest.approx(3 / 12)


@given(instances())
@settings(deadline=None)
def test_no_distribution_beats_the_optimal_one(instance):
    norms_n, costs_n, probabilities_n = instance
    best = theory.optimal_cost_product(norms_n, costs_n)
    assert theory.cost_product(norms_n, costs_n, theory.optimal_sampling(norms_n, costs_n)) == pytest.approx(best)
    assert theory.cost_product(norms_n, costs_n, probabilities_n) >= best * (1 - 1e-9)
    least = theory.second_moment(norms_n, theory.variance_sampling(norms_n, costs_n))
    assert least == pytest.approx(norms_n.mean() ** 2)
    assert theory.second_moment(norms_n, probabilities_n) >= least * (1 - 1e-9)


@given(instances(), magnitudes, magnitudes)
@settings(deadline=None)
def test_ratios_are_those_of_j_at_least_one_and_free_of_units(instance, a, b):
    norms_n, costs_n, _ = instance
    best = theory.optimal_cost_product(norms_n, costs_n)
    for name, ratio in (("uniform", theory.uniform_cost_ratio), ("variance", theory.variance_cost_ratio)):
        product = theory.cost_product(norms_n, costs_n, theory.SAMPLINGS[name](norms_n, costs_n))
        assert ratio(norms_n, costs_n) == pytest.approx(product / best)
        assert ratio(norms_n, costs_n) >= 1 - 1e-9
        assert ratio(a * norms_n, b * costs_n) == pytest.approx(ratio(norms_n, costs_n))
    assert theory.optimal_cost_product(a * norms_n, b * costs_n) == pytest.approx(a**2 * b * best)
    assert theory.variance_cost_ratio(norms_n, np.full_like(costs_n, b)) == pytest.approx(1.0)


def test_theorem_d1_agrees_with_brute_force_and_both_sides_occur():
    rng = np.random.default_rng(0)
    norms_B_n, costs_B_n = np.exp(rng.standard_normal((2, 5000, 6)))
    costs_B_n[::2] *= norms_B_n[::2] ** 3  # strongly positive correlation, where uniform can win
    variance, uniform = (
        theory.cost_product(norms_B_n, costs_B_n, sampling(norms_B_n, costs_B_n))
        for sampling in (theory.variance_sampling, theory.uniform_sampling)
    )
    margin = theory.variance_margin(norms_B_n, costs_B_n)
    np.testing.assert_array_equal(variance <= uniform, margin >= 0)
    assert 0.1 < (margin >= 0).mean() < 0.9
    np.testing.assert_allclose(uniform - variance, margin, rtol=1e-9, atol=1e-9 * uniform.max())


@pytest.mark.parametrize(
    ("norms_n", "costs_n", "message"),
    [
        ([0.0, 1.0], [1.0, 1.0], "norms are 0"),
        ([1.0, 1.0], [1.0], r"norms have shape \(2,\), costs \(1,\)"),
    ],
)
def test_impossible_norms_and_costs_are_refused_by_name(norms_n, costs_n, message):
    for function in (*theory.SAMPLINGS.values(), theory.uniform_cost_ratio, theory.variance_margin):
        with pytest.raises(ValueError, match=message):
            function(norms_n, costs_n)


def test_what_is_no_distribution_or_no_positive_number_is_refused():
    with pytest.raises(ValueError, match=r"probabilities sum to 0\.9"):
        theory.second_moment(NORMS_n, [0.4, 0.5])
    with pytest.raises(ValueError, match="give a larger radius"):
        LeastSquares(np.eye(2), np.array([2.0, 0.0]), np.ones(2), radius=1.0)


def test_norms_are_the_largest_gradients_over_the_ball():
    problem = draw_problem(**SMALL, seed=1)
    rng = np.random.default_rng(2)
    inside_d = rng.standard_normal((400, 3))
    inside_d *= problem.radius / np.linalg.norm(inside_d, axis=1, keepdims=True)
    for x_d in inside_d:
        assert (np.linalg.norm(problem.gradients_n_d(x_d), axis=1) <= problem.norms_n * (1 + 1e-12)).all()
    away_n_d = problem.rows_n_d / np.linalg.norm(problem.rows_n_d, axis=1, keepdims=True)
    away_n_d *= -np.sign(problem.targets_n)[:, None] * problem.radius
    reached_n = [np.linalg.norm(problem.gradients_n_d(x_d)[i]) for i, x_d in enumerate(away_n_d)]
    assert reached_n == pytest.approx(problem.norms_n)


@pytest.mark.parametrize("sampling", list(theory.SAMPLINGS))
def test_the_weighted_gradient_is_unbiased_and_its_second_moment_bounded(sampling):
    problem = draw_problem(**SMALL, seed=1)
    p_n = theory.SAMPLINGS[sampling](problem.norms_n, problem.costs_n)
    x_d = np.array([0.3, -0.2, 0.1])
    gradients_n_d = problem.gradients_n_d(x_d)
    # Exactly, and as run_sgd draws it: one step of size one from the centre moves by minus the estimate.
    weighted_n_d = gradients_n_d / (len(p_n) * p_n[:, None])
    assert p_n @ weighted_n_d == pytest.approx(problem.hessian_d_d @ (x_d - problem.minimiser_d))
    assert p_n @ (weighted_n_d**2).sum(axis=1) <= theory.second_moment(problem.norms_n, p_n)
    tiny = 1e-3  # small enough never to leave the ball
    moved = -run_sgd(problem, p_n, np.array([tiny]), 200_000, np.random.default_rng(0)).last_K_d / tiny
    full_d = -problem.hessian_d_d @ problem.minimiser_d
    standard_error_d = moved.std(axis=0) / np.sqrt(len(moved))
    assert (np.abs(moved.mean(axis=0) - full_d) < 4 * standard_error_d).all()


def test_sgd_follows_every_path_of_a_tiny_problem():
    """Two components, four steps, a ball that binds: the mean over trials against all 16 paths, walked one by one."""
    problem = LeastSquares(np.array([[1.0], [2.0]]), np.array([2.0, 0.5]), np.array([1.0, 10.0]), radius=0.7)
    p_n, steps_T, averaging_T = np.array([0.25, 0.75]), np.array([0.9, 0.5, 0.4, 0.2]), np.array([1.0, 2.0, 3.0, 4.0])
    expected = np.zeros(3)
    bound_paths = 0
    for path in itertools.product((0, 1), repeat=4):
        x, average = 0.0, 0.0
        for i, step, weight in zip(path, steps_T, averaging_T, strict=True):
            average += weight * x / averaging_T.sum()
            a, b = problem.rows_n_d[i, 0], problem.targets_n[i]
            x -= step * a * (a * x - b) / (2 * p_n[i])
            bound_paths += abs(x) > 0.7
            x = min(max(x, -0.7), 0.7)
        probability = p_n[list(path)].prod()
        expected += probability * np.array([average, x, problem.costs_n[list(path)].sum()])
    assert bound_paths > 0
    runs = run_sgd(problem, p_n, steps_T, 100_000, np.random.default_rng(1), averaging_T)
    for values_K, mean in zip((runs.average_K_d[:, 0], runs.last_K_d[:, 0], runs.cost_K), expected, strict=True):
        assert abs(values_K.mean() - mean) < 4 * values_K.std() / np.sqrt(len(values_K))


def test_error_is_the_difference_of_objectives():
    problem = draw_problem(**SMALL, seed=1)

    def objective(x_d):
        return 0.5 * np.mean((problem.rows_n_d @ x_d - problem.targets_n) ** 2)

    x_d = np.array([0.3, -0.2, 0.1])
    expected = objective(x_d) - objective(problem.minimiser_d)
    assert problem.error_K(x_d[None]) == pytest.approx([expected])
    assert problem.error_K(problem.minimiser_d[None]) == pytest.approx([0.0], abs=1e-15)


def test_long_runs_reach_the_limit_constant():
    problem = draw_problem(**SMALL, seed=1)
    horizon = 20_000
    p_n = theory.optimal_sampling(problem.norms_n, problem.costs_n)
    step = theory.convex_step(theory.second_moment(problem.norms_n, p_n), problem.diameter, horizon)
    runs = run_sgd(problem, p_n, np.full(horizon, step), 200, np.random.default_rng(4))
    error_K = problem.error_K(runs.average_K_d)
    noise = 4 * error_K.std() / np.sqrt(len(error_K)) / error_K.mean()
    assert horizon * error_K.mean() == pytest.approx(limit_constant(problem, p_n), rel=noise + 0.05)


def test_the_notebooks_loop_and_closed_forms_are_those_of_the_package(notebook):
    problem = notebook["problem"]
    for name, p_n in notebook["p_n"].items():
        np.testing.assert_array_equal(p_n, theory.SAMPLINGS[name](problem.norms_n, problem.costs_n))
        step = theory.convex_step(theory.second_moment(problem.norms_n, p_n), problem.diameter, 300)
        runs = run_sgd(problem, p_n, np.full(300, step), 20, np.random.default_rng(1))
        average, last, cost = notebook["sgd"](problem, p_n, 300, 20, np.random.default_rng(1))
        np.testing.assert_allclose(average, runs.average_K_d, rtol=1e-12)
        np.testing.assert_allclose(last, runs.last_K_d, rtol=1e-12)
        np.testing.assert_allclose(cost, runs.cost_K, rtol=1e-12)


def test_the_bound_holds_and_optimal_sampling_is_cheaper_than_uniform(notebook):
    problem, curves = notebook["problem"], notebook["curves"]
    assert (curves["error"] + 4 * curves["error_sd"] / np.sqrt(200) <= curves["bound"]).all()
    one = curves[(curves["sampling"] == "variance") & (curves["iteration"] == 256)].iloc[0]
    assert one["bound"] == pytest.approx(2.0 * problem.norms_n.mean() / 16)  # D √V/√T, V = (mean G)²
    outcomes = {verdict.id: verdict.outcome for verdict in notebook["verdicts"]}
    assert outcomes["bound-on-error"] == outcomes["eq-3-bound-on-cost"] == "holds"
    assert notebook["ratios"].loc["uniform", "measured_low"] > 1


def test_predictions_are_the_closed_forms(notebook):
    problem, predicted, ratios = (notebook[name] for name in ("problem", "predicted", "ratios"))
    norms_n, costs_n, uniform_n = problem.norms_n, problem.costs_n, np.full(60, 1 / 60)
    squared_n = (problem.gradients_n_d(problem.minimiser_d) ** 2).sum(axis=1)
    assert moment_at_minimiser(problem, uniform_n) == pytest.approx(squared_n.mean())
    best = predicted.loc["optimal"]
    assert best["J"] == pytest.approx(theory.optimal_cost_product(norms_n, costs_n))
    assert ratios["ratio_bound"].to_numpy() == pytest.approx((predicted["J"] / best["J"]).to_numpy())
    assert ratios["ratio_bound"]["uniform"] == theory.uniform_cost_ratio(norms_n, costs_n)
    assert ratios["ratio_bound"]["variance"] == theory.variance_cost_ratio(norms_n, costs_n)
    assert notebook["margin"] == pytest.approx(theory.variance_margin(norms_n, costs_n))
    for name, p_n in notebook["p_n"].items():
        assert moment_at_minimiser(problem, p_n) < predicted["V"][name]


def test_crossing_and_exponent_of_an_exact_power_law(notebook):
    # error = 8/T for all three samplings, costs 1, 2 and 4 per step: ε = 0.01 takes 800 steps, and cost ∝ 1/ε.
    horizons_M = np.array([100.0, 400.0, 1600.0])
    error_B_S_M = np.broadcast_to(8 / horizons_M, (2, 3, 3))
    measured = Measured(error_B_S_M, np.array([1.0, 2.0, 4.0])[:, None] * horizons_M * np.ones((2, 1, 1)), horizons_M)
    reach = notebook["reach"]
    assert reach(measured, 0.01, measured.iterations_M) == pytest.approx(np.full((2, 3), 800.0))
    assert reach(measured, 0.01, measured.cost_B_S_M)[0] == pytest.approx([800, 1600, 3200])
    assert reach(measured, 0.001, measured.iterations_M)[0] == pytest.approx([8000] * 3)  # beyond the last horizon
    assert measured.cost_exponent() == pytest.approx(np.ones((2, 3)))


def test_the_bootstrap_keeps_samplings_apart_and_in_order(notebook):
    trials = notebook["trials"]
    measured = measure(trials.sample(frac=1.0, random_state=0), seed=7)
    for place, name in enumerate(theory.SAMPLINGS):
        rows = trials[(trials["sampling"] == name) & (trials["iteration"] == 1024)]
        assert measured.error_B_S_M[0, place, -1] == pytest.approx(rows["error"].mean())
        assert measured.cost_B_S_M[0, place, -1] == pytest.approx(rows["cost"].mean())
        spread = measured.error_B_S_M[1:, place, -1].std()
        assert spread == pytest.approx(rows["error"].std() / np.sqrt(200), rel=0.1)


def test_a_claim_holds_on_its_whole_interval_only():
    assert at_most("a", 1.0, 0.9, (0.8, 1.0)).outcome == "holds"
    assert at_most("a", 1.0, 0.9, (0.8, 1.01)).outcome == "not shown"
    assert at_most("a", 1.0, 1.2, (1.01, 1.4)).outcome == "refuted"
    assert at_least("a", 1.0, 1.2, (1.0, 1.4)).outcome == "holds"
    assert at_least("a", 1.0, 1.2, (0.99, 1.4)).outcome == "not shown"
    assert at_least("a", 1.0, 0.9, (0.8, 0.99)).outcome == "refuted"
    assert within("a", 2.0, 2.0, (1.6, 2.4), 0.2).outcome == "holds"
    assert within("a", 2.0, 2.0, (1.5, 2.4), 0.2).outcome == "not shown"
    assert within("a", 2.0, 2.6, (2.5, 2.7), 0.2).outcome == "refuted"
