"""The saturating curve: what was put in comes out, and what the data cannot tell is said."""

import numpy as np
import pytest
from scipy.optimize import minimize

from repro.stats.saturation import curve, fit, scaled, together


def test_a_curve_is_its_own_fit():
    cost_E = np.linspace(0, 4, 41)
    found = fit(cost_E, curve(cost_E, 0.3, 0.55, 0.8, 1.4))
    assert (found.start, found.asymptote, found.half, found.steepness) == pytest.approx((0.3, 0.55, 0.8, 1.4), rel=1e-4)
    assert found(np.array([0.0, 0.8])) == pytest.approx([0.3, 0.425])


def test_noise_of_an_evaluation_leaves_the_asymptote_within_its_scatter():
    rng, cost_E = np.random.default_rng(0), np.linspace(0, 4, 41)
    true_E = curve(cost_E, 0.3, 0.55, 0.8, 1.4)
    found = [fit(cost_E, true_E + np.r_[0, rng.normal(0, 0.02, 40)]).asymptote for _ in range(40)]
    assert np.median(found) == pytest.approx(0.55, abs=0.01) and np.std(found) < 0.04


def test_the_cost_of_a_level_is_where_the_curve_is_at_it():
    found = fit(np.linspace(0, 4, 41), curve(np.linspace(0, 4, 41), 0.3, 0.55, 0.8, 1.4))
    for level in (0.31, 0.425, 0.5):
        assert found(found.cost_of(level)) == pytest.approx(level)
    assert (
        found.cost_of(0.425) == pytest.approx(0.8) and found.cost_of(0.55 + 1e-6) == np.inf and found.cost_of(0.3) == 0
    )


def test_what_was_paid_before_training_is_no_part_of_the_curve_and_of_every_cost():
    cost_E = np.linspace(0, 4, 41)
    seen_E = curve(cost_E, 0.3, 0.55, 0.8, 1.4) + np.r_[0, np.random.default_rng(0).normal(0, 0.02, 40)]
    own, later = fit(cost_E, seen_E), fit(7 + cost_E, seen_E)
    assert later(7 + cost_E) == pytest.approx(own(cost_E)) and later(np.array([0.0, 7.0])) == pytest.approx([0.3, 0.3])
    assert later.cost_of(0.45) == pytest.approx(7 + own.cost_of(0.45))


def test_a_run_that_has_ended_counts_its_end_once():
    cost_E, seen_E = np.array([0, 1, 2, 3, 4.0]), np.array([0.3, 0.4, 0.42, 0.47, 0.5])
    assert fit(np.r_[cost_E, 4, 4, 4], np.r_[seen_E, 0.5, 0.5, 0.5]) == fit(cost_E, seen_E)
    never = fit([5, 5], [0.3, 0.3])  # diverged at once
    assert never(np.array([5.0, 9.0])).tolist() == [0.3, 0.3] and never.cost_of(0.31) == np.inf


def test_the_least_squares_are_those_of_a_search_without_a_gradient():
    cost_E = np.linspace(0, 4, 11)
    seen_E = curve(cost_E, 0.3, 0.55, 0.8, 1.4) + np.r_[0, np.random.default_rng(1).normal(0, 0.01, 10)]

    def squares(asymptote, half, steepness):
        return np.square(curve(cost_E, 0.3, asymptote, half, steepness) - seen_E).sum()

    options = {"xatol": 1e-9, "fatol": 1e-14, "maxiter": 5000}
    free = minimize(lambda v: squares(v[0], np.exp(v[1]), v[2]), [0.5, 0, 1.2], method="Nelder-Mead", options=options)
    found = fit(cost_E, seen_E)
    assert squares(found.asymptote, found.half, found.steepness) == pytest.approx(free.fun, rel=1e-6)
    assert fit(cost_E, seen_E, near=found)(cost_E) == pytest.approx(found(cost_E), abs=1e-5)


def test_an_arm_that_falls_reaches_no_level_above_its_start():
    found = fit(np.linspace(0, 1, 11), np.linspace(0.3, 0.2, 11))
    assert found.cost_of(0.31) == np.inf and found(1.0) == pytest.approx(0.2, abs=0.01)


def test_curves_of_arms_share_a_steepness_and_one_factor_tells_which_is_faster():
    """The second arm ends higher, the third needs half of the cost."""
    cost_E, arm_N = np.tile(np.linspace(0.1, 8, 30), 3), np.repeat([0, 1, 2], 30)
    accuracy_N = curve(cost_E, 0.3, np.array([0.6, 0.7, 0.6])[arm_N], np.array([1.0, 1.0, 0.5])[arm_N], 1.2)
    fits = together(cost_E, accuracy_N, arm_N, 0.3)
    assert fits.asymptote_A == pytest.approx([0.6, 0.7, 0.6], abs=1e-4)
    assert fits.half_A == pytest.approx([1.0, 1.0, 0.5], rel=1e-3) and fits.steepness == pytest.approx(1.2, rel=1e-3)
    assert fits(1, [0.0, 1.0]) == pytest.approx([0.3, 0.5], abs=1e-4)
    alike_N = arm_N != 1
    factor_A = scaled(cost_E[alike_N], accuracy_N[alike_N], arm_N[alike_N] // 2, 0.3)
    assert factor_A == pytest.approx([1.0, 0.5], rel=1e-3)
    for fitted in (scaled, together):
        with pytest.raises(ValueError, match="cost above 0; one has 0"):
            fitted(cost_E - 0.1, accuracy_N, arm_N, 0.3)
