"""Partial pooling against the posterior by brute force, at its ends, and the level of its intervals."""

import numpy as np
import pytest

from repro.stats.nested import nested
from repro.stats.partial import _given, partially_pooled

FAMILIES = np.repeat(list("abcdef"), [8, 15, 3, 9, 15, 7])


def draw(rng, spread, families=FAMILIES, within=0.02):
    """(δ_A, differences_A_P_S) of two base policies with five seeds, all arms less the same baseline."""
    mean = {name: rng.normal(0, 0.015) for name in sorted(set(families))}
    effect_A = np.array([mean[name] for name in families]) + rng.normal(0, spread, len(families))
    base_P_S = rng.normal(0, within, (2, 5))
    return effect_A, effect_A[:, None, None] + rng.normal(0, within, (len(families), 2, 5)) - base_P_S


def test_for_one_spread_it_is_the_posterior_of_effects_under_a_flat_prior_of_family_means():
    rng, member_A_G = np.random.default_rng(0), np.eye(2)[[0, 0, 0, 1, 1]]
    d_A, root_A_A, spread, flat = rng.normal(size=5), rng.normal(size=(5, 5)), 0.7, 1e6
    noise_A_A = root_A_A @ root_A_A.T
    prior_A_A = spread**2 * np.eye(5) + flat * member_A_G @ member_A_G.T
    gain_A_A = prior_A_A @ np.linalg.inv(prior_A_A + noise_A_A)
    given = _given(spread, d_A, member_A_G, noise_A_A)
    assert given.estimate_A == pytest.approx(gain_A_A @ d_A, abs=1e-5)
    assert given.variance_A == pytest.approx(np.diag(prior_A_A - gain_A_A @ prior_A_A), abs=1e-4)
    assert given.weight_A == pytest.approx(np.diag(gain_A_A), abs=1e-5)
    to_mean_G_A = flat * member_A_G.T @ np.linalg.inv(prior_A_A + noise_A_A)
    assert given.mean_G == pytest.approx(to_mean_G_A @ d_A, abs=1e-5)
    assert given.mean_variance_G == pytest.approx(np.diag(flat * np.eye(2) - flat * to_mean_G_A @ member_A_G), abs=1e-4)


def test_arms_far_apart_stay_and_arms_that_differ_by_chance_meet():
    rng, effect_A = np.random.default_rng(1), np.linspace(-1, 1, 20)
    noise_A_P_S = rng.normal(0, 0.02, (20, 2, 5))
    apart = partially_pooled(effect_A[:, None, None] + noise_A_P_S, ["one"] * 20)
    assert apart.estimate_A == pytest.approx((effect_A[:, None, None] + noise_A_P_S).mean((1, 2)), abs=1e-3)
    assert (apart.weight_A > 0.99).all() and apart.spread == pytest.approx(effect_A.std(), rel=0.2)
    alike = partially_pooled(0.1 + noise_A_P_S, ["one"] * 20)
    raw_A = (0.1 + noise_A_P_S).mean((1, 2))
    assert alike.estimate_A.std() < 0.5 * raw_A.std() and alike.mean_G == pytest.approx([raw_A.mean()], abs=1e-3)


def test_an_error_that_all_arms_share_moves_them_alike_and_is_no_reason_to_draw_them_together():
    rng, ratios = np.random.default_rng(2), []
    for _ in range(20):
        _, d_A_P_S = draw(rng, 0.02)
        noisier_A_P_S = d_A_P_S - rng.normal(0, 0.05, (2, 5))  # a baseline that scatters much
        few, much = (partially_pooled(of, FAMILIES) for of in (d_A_P_S, noisier_A_P_S))
        apart_A, other_A = (of.estimate_A - of.estimate_A.mean() for of in (few, much))
        assert other_A == pytest.approx(apart_A, abs=1e-3)
        ratios.append(np.median(much.error_A / few.error_A))
    assert np.median(ratios) > 1.5


@pytest.mark.parametrize("spread", [0.0, 0.01])
def test_intervals_hold_their_level_for_the_highest_arm_too(spread):
    rng, hits, errors = np.random.default_rng(0), [], []
    for _ in range(150):
        effect_A, d_A_P_S = draw(rng, spread)
        fits = partially_pooled(d_A_P_S, FAMILIES), nested(d_A_P_S)
        for fit in fits:
            low_A, high_A = fit.interval(0.95)
            inside_A = (low_A < effect_A) & (effect_A < high_A)
            hits.append((inside_A.mean(), inside_A[fit.estimate_A.argmax()]))
            errors.append(np.mean((fit.estimate_A - effect_A) ** 2))
    pooled, raw = np.reshape(hits, (-1, 2, 2)).mean(0)
    assert pooled == pytest.approx([0.95, 0.95], abs=0.035)
    assert raw[1] < pooled[1]
    assert np.reshape(errors, (-1, 2)).mean(0)[0] < np.reshape(errors, (-1, 2)).mean(0)[1]


def test_families_of_one_arm_each_are_refused():
    with pytest.raises(ValueError, match="no family has two arms"):
        partially_pooled(np.zeros((3, 2, 5)), ["a", "b", "c"])
