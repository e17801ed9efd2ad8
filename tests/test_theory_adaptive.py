"""Adam and clipped steps: moves against torch and by enumeration, limits against closed forms and against runs."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from repro.theory import adaptive, sgd
from repro.theory.adaptive import PLAIN, Adam, Clipped, limit, mean_error_K, phase_retrieval_with_norms, time_to
from repro.theory.sgd_regimes import Brier, brier_with_norms, stationarity_limits


@pytest.fixture(scope="module")
def scores():
    rng = np.random.default_rng(3)
    return np.exp(0.5 * rng.standard_normal(60)), np.exp(rng.standard_normal(60))


@pytest.fixture(scope="module")
def brier(scores):
    return brier_with_norms(0.3 * scores[0], scores[1], 3, seed=1)


@pytest.fixture(scope="module")
def retrieval(scores):
    return phase_retrieval_with_norms(*scores, 3, 1.5, seed=1)


def test_adam_moves_as_torch_does():
    estimates_T_K_d = np.random.default_rng(0).standard_normal((40, 2, 3))
    place = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    torch_adam, move = torch.optim.Adam([place], lr=0.1, betas=(0.9, 0.95)), Adam(0.95).mover(2, 3)
    ours_K_d = np.zeros((2, 3))
    for estimate_K_d in estimates_T_K_d:
        place.grad = torch.from_numpy(estimate_K_d.copy())
        torch_adam.step()
        ours_K_d -= 0.1 * move(estimate_K_d)
    assert_allclose(ours_K_d, place.detach().numpy(), rtol=1e-9)


def test_a_clipped_move_has_the_moments_of_its_outcomes(brier, scores):
    gradients_n_d, p_n = brier.gradients_n_d(brier.start_d), sgd.optimal_sampling(*scores)
    estimates_n_d = gradients_n_d / (60 * p_n)[:, None]
    lengths_n = np.linalg.norm(estimates_n_d, axis=1)
    rule = Clipped(float(np.median(lengths_n)))
    moves_n_d = np.array(
        [g * min(1, rule.threshold / length) for g, length in zip(estimates_n_d, lengths_n, strict=True)]
    )
    assert_allclose(rule.mover(60, 3)(estimates_n_d), moves_n_d)
    drift_d, noise_d_d = rule.mean(gradients_n_d, p_n)
    assert_allclose(drift_d, p_n @ moves_n_d)
    assert_allclose(noise_d_d, (moves_n_d * p_n[:, None]).T @ moves_n_d)
    for like, gradient_n_d in ((Clipped(1e9), gradients_n_d), (Clipped(1.0), np.zeros((60, 3)))):
        assert_allclose(like.mean(gradient_n_d, p_n)[0], PLAIN.mean(gradient_n_d, p_n)[0])


def test_short_clipped_moves_follow_the_gradient_only_if_p_follows_its_length(brier):
    gradients_n_d = brier.gradients_n_d(brier.start_d)
    lengths_n = np.linalg.norm(gradients_n_d, axis=1)
    gradient_d = gradients_n_d.mean(axis=0)

    def cosine(p_n):
        drift_d = Clipped(1e-9).mean(gradients_n_d, p_n)[0]
        return drift_d @ gradient_d / np.linalg.norm(drift_d) / np.linalg.norm(gradient_d)

    assert cosine(lengths_n / lengths_n.sum()) == pytest.approx(1, abs=1e-12)
    assert cosine(np.full(60, 1 / 60)) < 0.999


def test_adams_moves_have_ones_on_the_diagonal_whatever_p_is(brier):
    gradients_n_d = brier.gradients_n_d(brier.start_d)
    p_n = np.random.default_rng(0).dirichlet(np.full(60, 2.0))
    drift_d, noise_d_d = Adam(0.999).mean(gradients_n_d, p_n)
    assert np.diag(noise_d_d) == pytest.approx(np.ones(3))
    assert_allclose(drift_d * np.sqrt(np.diag(brier.noise_d_d(brier.start_d, p_n))), gradients_n_d.mean(axis=0))


def test_the_limit_of_sgd_is_its_closed_form(brier, scores):
    p_n, x_d = sgd.optimal_sampling(*scores), brier.minimiser_d
    found = limit(brier, p_n, PLAIN)
    descent = brier.value(brier.start_d) - brier.value(x_d)
    average, last = stationarity_limits(descent, brier.hessian_d_d(x_d), brier.noise_d_d(x_d, p_n), 0.7)
    assert_allclose(found.end_d, x_d, atol=1e-8)
    assert found.transient == pytest.approx(descent, rel=1e-3) and found.floor < 1e-15
    assert found.noise * 0.7 == pytest.approx(last, rel=1e-5)
    assert found.error(0.7, 100) == pytest.approx(average / 10, rel=1e-3)


def test_iterations_by_hand():
    # a = √(4/1) = 2: error 1 + (2 + 2)/√T, so 64 iterations for 1.5; none for 1.
    by_hand = adaptive.Limit(4.0, 1.0, 1.0, np.zeros(1))
    assert by_hand.best == 2.0 and by_hand.error(2.0, 64) == 1.5
    assert by_hand.iterations(2.0, 1.5) == 64 and by_hand.iterations(2.0, 1.0) == np.inf


def test_time_grows_with_the_root_of_v_for_adam_and_not_at_all_for_sgd():
    """Equal components: Σ_p = g² Σ 1/(n² p_i), so that Adam's mean move is 1/√(Σ 1/(n² p_i)) everywhere."""
    problem = Brier(np.full((4, 1), 2.0), np.ones(4), np.ones(4), np.array([-0.5]))
    uniform_n, p_n = np.full(4, 0.25), np.array([0.1, 0.2, 0.3, 0.4])
    times = [time_to(problem, p, Adam(0.999), 0.01) for p in (uniform_n, p_n)]
    assert times[1] / times[0] == pytest.approx(np.sqrt((1 / p_n).sum() / 16), rel=1e-5)
    distance = times[0]  # moves of 1
    assert problem.stationarity_K(problem.start_d[None] + distance) == pytest.approx([0.01], rel=1e-4)
    assert time_to(problem, p_n, PLAIN, 0.01) == pytest.approx(time_to(problem, uniform_n, PLAIN, 0.01))
    with pytest.raises(ValueError, match="does not settle"):
        time_to(problem, p_n, PLAIN, 1.0)  # above all that it meets


def test_no_power_of_the_cost_is_cheaper_than_one_over_twice_the_share_of_v():
    """C·V^s of p ∝ G/c^a, log-normal, by quadrature: least at a = 1/(2s), e^(κ²/8) below p* at s = ½."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights, costs, kappa = weights / weights.sum(), np.exp(1.2 * nodes), 1.2

    def product(a, s):
        mean = [weights @ costs**power for power in (1 - a, -a, a)]
        return mean[0] / mean[1] * (mean[1] * mean[2]) ** s

    for s in (0.5, 0.75, 1.0):
        a = 1 / (2 * s)
        assert product(a, s) < min(product(a - 0.05, s), product(a + 0.05, s))
    assert product(0.5, 0.5) / product(1.0, 0.5) == pytest.approx(np.exp(kappa**2 / 8), rel=1e-6)


def test_phase_retrieval_has_its_derivatives_and_its_norms(retrieval, scores):
    x_d, h = np.array([0.3, -0.7, 1.2]), 1e-5

    def value(x_d):
        along_n = retrieval.rows_n_d @ x_d
        return (retrieval.weights_n * (along_n**2 - retrieval.intensities_n) ** 2).mean() / 4

    gradient_d = retrieval.gradients_n_d(x_d).mean(axis=0)
    assert gradient_d == pytest.approx(
        [(value(x_d + h * e) - value(x_d - h * e)) / (2 * h) for e in np.eye(3)], abs=1e-8
    )
    ends = [retrieval.gradients_n_d(x_d + s * h * e).mean(axis=0) for e in np.eye(3) for s in (1, -1)]
    assert_allclose(retrieval.hessian_d_d(x_d), (np.array(ends[::2]) - np.array(ends[1::2])) / (2 * h), atol=1e-8)
    assert retrieval.stationarity_K(x_d[None]) == pytest.approx([gradient_d @ gradient_d])
    some = np.arange(60)
    slopes_n = retrieval.slopes_K(some, retrieval.rows_n_d, np.tile(x_d, (60, 1)))
    assert_allclose(slopes_n[:, None] * retrieval.rows_n_d, retrieval.gradients_n_d(x_d))
    along_T = np.linspace(0, 1.5 * 3**0.5, 20_001)[:, None]
    largest_n = np.abs(retrieval.weights_n * along_T * (along_T**2 - retrieval.intensities_n)).max(axis=0)
    assert_allclose(largest_n, scores[0], rtol=1e-6)


def test_its_curvature_grows_without_limit_but_slower_than_its_gradient(retrieval):
    far = [scale * retrieval.start_d for scale in (1e2, 1e3)]
    curvatures = [np.linalg.norm(retrieval.hessian_d_d(x_d), 2) for x_d in far]
    gradients = [np.linalg.norm(retrieval.gradients_n_d(x_d).mean(axis=0)) for x_d in far]
    assert curvatures[1] / curvatures[0] == pytest.approx(1e2, rel=1e-3)
    assert gradients[1] / gradients[0] == pytest.approx(1e3, rel=1e-3)
    assert np.linalg.eigvalsh(retrieval.hessian_d_d(np.zeros(3)))[-1] < 0  # and not convex


def test_an_average_over_iterates_weighs_them_all(brier):
    """Steps of next to nothing leave ‖∇f‖² where it was, at any horizon."""
    start = brier.stationarity_K(brier.start_d[None])[0]
    for horizon in (5, 100):
        means_K = mean_error_K(brier, np.full(60, 1 / 60), PLAIN, 1e-12, horizon, 2, np.random.default_rng(0))
        assert means_K == pytest.approx(np.full(2, start))


@pytest.mark.parametrize("clipped", [True, False])
def test_long_runs_reach_their_limits(brier, retrieval, scores, clipped):
    p_n, horizon = sgd.optimal_sampling(*scores), 8192
    problem, rule = (retrieval, Clipped(0.05)) if clipped else (brier, Adam(0.999))
    found = limit(problem, p_n, rule)
    error_K = mean_error_K(problem, p_n, rule, found.best / np.sqrt(horizon), horizon, 60, np.random.default_rng(4))
    assert (found.floor > 0.1 * error_K.mean()) == clipped
    assert error_K.mean() == pytest.approx(found.error(found.best, horizon), rel=0.12)
