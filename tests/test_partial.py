"""Partial pooling against the posterior by brute force, at its ends, and the level of its intervals."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from repro.stats.nested import nested
from repro.stats.partial import _averaged, partially_pooled

FAMILIES = np.repeat(list("abcdef"), [8, 15, 3, 9, 15, 7])


def draw(rng, spread, between=0.0, within=0.02, families=FAMILIES):
    """(δ_A, differences_A_P_S) of two base policies with five seeds, all arms less the same baseline."""
    mean = {name: rng.normal(0, 0.015) for name in sorted(set(families))}
    effect_A = np.array([mean[name] for name in families]) + rng.normal(0, spread, len(families))
    base_P_S = rng.normal(0, within, (2, 5)) + rng.normal(0, between, (2, 1))
    own_A_P_S = rng.normal(0, within, (len(families), 2, 5)) + rng.normal(0, between, (len(families), 2, 1))
    return effect_A, effect_A[:, None, None] + own_A_P_S - base_P_S


def test_it_is_the_posterior_of_effects_under_flat_priors():
    """By conditioning dense Gaussians, family means ~ N(0, 10⁶): one ω, and two weighed by their likelihoods."""
    rng, member_A_G, flat = np.random.default_rng(0), np.eye(2)[[0, 0, 0, 1, 1, 1]], 1e6
    d_A, own_A, spread_W = rng.normal(size=6), rng.uniform(0.5, 2, 6), np.array([0.3, 1.5])
    given = []
    for spread in spread_W:
        prior_A_A = spread**2 * np.eye(6) + flat * member_A_G @ member_A_G.T
        cover_A_A = prior_A_A + np.diag(own_A)
        gain_A_A = prior_A_A @ np.linalg.inv(cover_A_A)
        to_mean_G_A = flat * member_A_G.T @ np.linalg.inv(cover_A_A)
        given.append(
            (
                gain_A_A @ d_A,
                np.diag(prior_A_A - gain_A_A @ prior_A_A),
                np.diag(gain_A_A),
                to_mean_G_A @ d_A,
                np.diag(flat * np.eye(2) - flat * to_mean_G_A @ member_A_G),
            )
        )
        alone = _averaged(np.array([spread]), d_A, own_A, member_A_G)
        for ours, dense in zip(alone, given[-1], strict=False):
            assert ours == pytest.approx(dense, abs=1e-4)
    covers = [s**2 * np.eye(6) + flat * member_A_G @ member_A_G.T + np.diag(own_A) for s in spread_W]
    chance_W = np.array([multivariate_normal(np.zeros(6), cover).pdf(d_A) for cover in covers])
    chance_W /= chance_W.sum()
    estimate_A, variance_A, *_, spread = _averaged(spread_W, d_A, own_A, member_A_G)
    estimate_W_A, variance_W_A = (np.array([of[place] for of in given]) for place in (0, 1))
    assert spread == pytest.approx(chance_W @ spread_W, abs=1e-4)
    assert estimate_A == pytest.approx(chance_W @ estimate_W_A, abs=1e-4)
    within_A, between_A = chance_W @ variance_W_A, chance_W @ (estimate_W_A - chance_W @ estimate_W_A) ** 2
    assert variance_A == pytest.approx(within_A + between_A, abs=1e-4)


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
        shared_P_S = rng.normal(0, 0.05, (2, 5))  # a baseline that scatters much
        few, much = (partially_pooled(of, FAMILIES) for of in (d_A_P_S, d_A_P_S - shared_P_S))
        assert much.estimate_A == pytest.approx(few.estimate_A - shared_P_S.mean(), abs=1e-12)
        ratios.append(np.median(much.error_A / few.error_A))
    assert np.median(ratios) > 1.5


@pytest.mark.parametrize(("spread", "between"), [(0.0, 0.005), (0.01, 0.005), (0.02, 0.0)])
def test_intervals_hold_their_level_for_the_highest_arm_too(spread, between):
    rng, hits, errors = np.random.default_rng(0), [], []
    for _ in range(200):
        effect_A, d_A_P_S = draw(rng, spread, between)
        for fit in (partially_pooled(d_A_P_S, FAMILIES), nested(d_A_P_S)):
            low_A, high_A = fit.interval(0.95)
            inside_A = (low_A < effect_A) & (effect_A < high_A)
            hits.append((inside_A.mean(), inside_A[fit.estimate_A.argmax()]))
            errors.append(np.mean((fit.estimate_A - effect_A) ** 2))
    pooled, raw = np.reshape(hits, (-1, 2, 2)).mean(0)
    assert pooled == pytest.approx([0.95, 0.95], abs=0.035)
    assert raw[1] < pooled[1]
    assert np.diff(np.reshape(errors, (-1, 2)).mean(0))[0] > 0
