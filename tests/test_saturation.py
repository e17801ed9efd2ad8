"""The saturating curve: what was put in comes out, and what the data cannot tell is said."""

import numpy as np
import pytest

from repro.stats.saturation import curve, fit


def test_a_curve_is_its_own_fit():
    cost_E = np.linspace(0, 4, 41)
    found = fit(cost_E, curve(cost_E, 0.3, 0.55, 0.8, 1.4))
    assert (found.start, found.asymptote, found.half, found.steepness) == pytest.approx((0.3, 0.55, 0.8, 1.4), rel=1e-4)
    assert not found.bounded and found(np.array([0.0, 0.8])) == pytest.approx([0.3, 0.425])


def test_noise_of_an_evaluation_leaves_the_asymptote_within_its_scatter():
    rng, cost_E = np.random.default_rng(0), np.linspace(0, 4, 41)
    true_E = curve(cost_E, 0.3, 0.55, 0.8, 1.4)
    found = [fit(cost_E, true_E + np.r_[0, rng.normal(0, 0.02, 40)]).asymptote for _ in range(40)]
    assert np.median(found) == pytest.approx(0.55, abs=0.01) and np.std(found) < 0.04


def test_weights_are_those_of_repeated_points():
    cost_E, seen_E = np.array([0, 1, 2, 3, 4.0]), np.array([0.3, 0.4, 0.42, 0.47, 0.5])
    twice = fit(np.repeat(cost_E, [1, 1, 3, 1, 1]), np.repeat(seen_E, [1, 1, 3, 1, 1]))
    weighed = fit(cost_E, seen_E, np.array([1, 1, 3, 1, 1]))
    assert weighed(cost_E) == pytest.approx(twice(cost_E), abs=1e-4)


def test_a_straight_line_has_no_asymptote():
    cost_E = np.linspace(0, 1, 11)
    assert fit(cost_E, 0.3 + 0.1 * cost_E).bounded
    with pytest.raises(ValueError, match="cost 0 and four more"):
        fit([0.1, 1, 2, 3, 4], [0.1] * 5)
