"""Seeds nested in base policies: the closed form, its intervals' level, and what a run of a panel reached."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t, ttest_1samp

from repro.stats.nested import Nested, moderate, nested
from repro.stats.outcomes import compare, outcomes, paired


def draw(rng, arms=11, policies=4, seeds=5, between=0.02, within=0.025, of_baseline=0.0):
    """(differences_A_P_S of arms without an effect on average, a repetition on a new policy, one on the first).
    of_baseline: the scatter of the baseline between base policies, which the repetitions lack."""
    base_P_S = rng.normal(0, within, (policies, seeds))
    if of_baseline:
        base_P_S += rng.normal(0, of_baseline, (policies, 1))
    own_A_P = rng.normal(0, between, (arms, policies))
    d_A_P_S = own_A_P[..., None] + rng.normal(0, within, (arms, policies, seeds)) - base_P_S
    again_A = rng.normal(0, within, (arms, 5)).mean(1) - rng.normal(0, within, 5).mean()
    return d_A_P_S, rng.normal(0, between, arms) + again_A, own_A_P[:, 0] + again_A


def test_the_closed_form_is_restricted_maximum_likelihood():
    mixed = pytest.importorskip("statsmodels.regression.mixed_linear_model")
    d_A_P_S, *_ = draw(np.random.default_rng(3), arms=1, policies=6, between=0.04)
    frame = pd.DataFrame({"d": d_A_P_S.ravel(), "policy": np.repeat(np.arange(6), 5), "one": 1.0})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = mixed.MixedLM(frame["d"], frame[["one"]], groups=frame["policy"]).fit(reml=True)
    ours = nested(d_A_P_S)
    assert ours.estimate_A[0] == pytest.approx(fit.fe_params["one"], abs=1e-6)
    assert ours.error_A[0] == pytest.approx(fit.bse_fe["one"], rel=1e-3)
    assert ours.within_A[0] == pytest.approx(fit.scale, rel=1e-3)
    assert ours.policy_variance_A[0] == pytest.approx(fit.cov_re.iloc[0, 0], rel=1e-2)


def test_intervals_hold_their_level_for_arms_that_share_a_baseline():
    """Of 400 studies of eleven arms: confidence intervals of δ, prediction intervals of a study of five seeds on a new
    base policy and on one of these."""
    rng, hits = np.random.default_rng(0), []
    for _ in range(400):
        d_A_P_S, new_A, same_A = draw(rng)
        fit = nested(d_A_P_S)
        ends = (fit.interval(0.95), fit.prediction(0.95, 5), fit.prediction(0.95, 5, policy=0))
        hits.append([((low < x) & (x < high)).mean() for (low, high), x in zip(ends, (0, new_A, same_A), strict=True)])
    assert np.mean(hits, axis=0) == pytest.approx([0.95, 0.95, 0.95], abs=0.03)


@pytest.mark.parametrize("between", [0.0, 0.008])
def test_two_base_policies_that_agree_by_chance_make_no_interval_narrow(between):
    rng, hits = np.random.default_rng(0), []
    for _ in range(600):
        fit = nested(draw(rng, arms=4, policies=2, between=between, within=0.015)[0])
        low_A, high_A = fit.interval(0.95)
        hits.append(((low_A < 0) & (high_A > 0)).mean())
    assert 0.93 < np.mean(hits) < 0.98


@pytest.mark.parametrize(("arms", "policies", "share"), [(4, 2, 0.897), (11, 4, 0.937), (11, 8, 0.944)])
def test_a_baseline_with_effects_of_its_own_lowers_coverage_as_the_docstring_says(arms, policies, share):
    rng, hits = np.random.default_rng(0), []
    for _ in range(1000):
        low_A, high_A = nested(draw(rng, arms, policies, 5, 0.02, 0.015, of_baseline=0.02)[0]).interval(0.95)
        hits.append(((low_A < 0) & (high_A > 0)).mean())
    error = np.std(hits) / len(hits) ** 0.5
    assert np.mean(hits) == pytest.approx(share, abs=4 * error) and 4 * error < 0.03


def test_where_base_policies_differ_less_than_seeds_both_mean_squares_are_pooled():
    d_A_P_S = np.array([[[0.0, 0.2, 0.4], [0.4, 0.2, 0.0]]])  # one arm, whose base policies have the same mean
    fit = nested(d_A_P_S)
    assert fit.between_A == pytest.approx(d_A_P_S.var(ddof=1)) and fit.between_freedom_A == 5
    assert fit.policy_variance_A == 0 and fit.within_A == pytest.approx(0.04)
    assert np.ravel(fit.interval(0.95)) == pytest.approx(
        ttest_1samp(d_A_P_S.ravel(), 0).confidence_interval(0.95), abs=1e-12
    )


def test_one_arm_on_one_policy_is_the_paired_t_test():
    d_A_P_S = np.random.default_rng(1).normal(0.01, 0.02, (1, 1, 6))
    fit, known = nested(d_A_P_S), ttest_1samp(d_A_P_S[0, 0], 0)
    assert fit.p_values()[0] == pytest.approx(known.pvalue)
    assert np.ravel(fit.interval(0.9)) == pytest.approx(list(known.confidence_interval(0.9)))
    half = t.ppf(0.95, 5) * d_A_P_S.std(ddof=1) * (1 / 6 + 1 / 5) ** 0.5
    assert np.ravel(fit.prediction(0.9, 5)) == pytest.approx([d_A_P_S.mean() - half, d_A_P_S.mean() + half])


def test_one_arm_with_one_seed_is_the_t_test_over_base_policies():
    d_A_P_S = np.random.default_rng(1).normal(0.01, 0.02, (1, 8, 1))
    fit, known = nested(d_A_P_S), ttest_1samp(d_A_P_S[0, :, 0], 0)
    assert fit.p_values()[0] == pytest.approx(known.pvalue)
    assert np.ravel(fit.interval(0.9)) == pytest.approx(list(known.confidence_interval(0.9)))
    assert np.isnan([*fit.prediction(0.9, 5), fit.seeds_to_tell(0.9, 0.01, 6)]).all()


def test_a_prediction_on_another_policy_has_the_between_mean_square():
    fit = nested(draw(np.random.default_rng(2), between=0.05)[0])
    low_A, high_A = fit.prediction(0.95, 5)
    half_A = t.ppf(0.975, fit.between_freedom_A) * np.sqrt(fit.between_A * (1 + 1 / 4) / 5)
    assert (fit.between_A > fit.within_A).all() and (high_A - low_A) / 2 == pytest.approx(half_A)
    two = np.ravel(np.diff(fit.prediction(0.95, 5, policies=2), axis=0)) / 2
    assert two == pytest.approx(t.ppf(0.975, fit.between_freedom_A) * np.sqrt(fit.between_A * (1 / 2 + 1 / 4) / 5))
    assert (fit.detectable(0.95, 0.8) > half_A * 0).all()
    narrow = nested(np.concatenate([draw(np.random.default_rng(2), between=0.05)[0]] * 4, axis=2)).prediction(
        0.95, 5, 0
    )
    assert (narrow[1] - narrow[0] > 2 * 1.9 * np.sqrt(fit.within_A / 5) * 0.8).all()  # its own scatter stays


def test_seeds_that_would_tell_are_the_fewest_whose_interval_does():
    means_A, tau, sigma = np.array([0.0, 0.004, -0.009, 0.03]), 0.002, 0.02
    between_A, within_A = np.full(4, 5 * tau**2 + sigma**2), np.full(4, sigma**2)
    fit = Nested(means_A, np.tile(means_A[:, None], 4), between_A, within_A, np.full(4, 9.0), 64, 4, 5)

    def tells(seeds: int, estimate: float) -> bool:
        error = np.sqrt((tau**2 + sigma**2 / seeds) / 4)
        equal = abs(estimate) + t.ppf(0.975, 9) * error <= 0.01
        return equal or abs(estimate) > t.ppf(1 - 0.05 / 6 / 2, 9) * error

    fewest = [next(seeds for seeds in range(1, 2000) if tells(seeds, estimate)) for estimate in means_A]
    assert fit.seeds_to_tell(0.95, 0.01, 6).tolist() == fewest and fewest[0] > fewest[3]
    apart = replace(fit, between_A=np.full(4, 5 * 0.02**2 + sigma**2))  # base policies differ too much for any seeds
    assert np.isinf(apart.seeds_to_tell(0.95, 0.01, 6)[:3]).all()


@pytest.mark.parametrize("prior", [4.0, 20.0])
def test_variances_are_drawn_together_as_far_as_they_spread(prior):
    rng = np.random.default_rng(0)
    true_A = 2.0 * prior / rng.chisquare(prior, 20000)
    drawn_A, freedom = moderate(true_A * rng.chisquare(3, 20000) / 3, 3)
    assert freedom == pytest.approx(3 + prior, rel=0.1)
    assert (1 / drawn_A).mean() == pytest.approx((1 / true_A).mean(), rel=0.02)  # each is the posterior mean of 1/σ²
    alike_A, freedom = moderate(np.array([1.0, 1.1, 0.9, 1.05]), 3)
    assert np.ptp(alike_A) == 0 and freedom > 1e5
    assert moderate(np.array([0.3]), 3) == (np.array([0.3]), 3)
    tied_A, freedom = moderate(np.array([1.0, 1.1, 0.0, 1.05]), 3)  # shares of few queries may agree by chance
    assert tied_A.tolist() == 4 * [moderate(np.array([1.0, 1.1, 1.05]), 3)[0][0]] and freedom > 1e5


def test_outcomes_are_read_off_a_curve():
    step = pd.DataFrame({"run": "x", "share": [0.0, 0.5, 1.1, 1.6], "accuracy": [0.2, 0.4, 0.52, 0.62]})
    step = step.assign(flops=step["share"] * 10, trained_tokens=1.0, paper_tokens=2.0, diverged=False)
    short = step[:2].assign(run="y", diverged=[False, True])
    table = outcomes(pd.concat([short, step]).sample(frac=1, random_state=0))
    assert table.loc["x", ["final", "at_1", "at_1.5", "flops"]].tolist() == pytest.approx([0.62, 0.5, 0.6, 16])
    shares = np.arange(1, 11) / 10
    area = np.mean([np.interp(share, [0, 0.5, 1.1], [0.2, 0.4, 0.52]) for share in shares])
    assert table.loc["x", "area"] == pytest.approx(area) and not table.loc["x", "diverged"]
    assert table.loc["y", ["at_1", "final"]].tolist() == [0.4, 0.4] and table.loc["y", "diverged"]


def test_arms_are_paired_by_policy_and_seed_and_what_is_missing_is_named():
    rows = [("a", "grpo", s, 0.1 * s) for s in range(4)] + [("b", "grpo", s, 1 + s) for s in range(3)]
    rows += [("a", "zvf", s, 0.1 * s + 0.5) for s in (3, 1, 2)] + [("b", "zvf", s, s + 3.0) for s in range(2)]
    table = pd.DataFrame(rows, columns=["policy", "arm", "seed", "final"])
    assert np.allclose(paired(table, "final", ["zvf"], "grpo"), [[[0.5, 0.5], [2.0, 2.0]]])
    assert compare(table, "final", ["zvf"], "grpo").estimate_A[0] == pytest.approx(1.25)
    with pytest.raises(ValueError, match="no runs of 'pods'"):
        paired(table, "final", ["pods"], "grpo")
    with pytest.raises(ValueError, match="no base policy and seed in common"):
        paired(
            table.query("arm == 'grpo' or seed > 5 or policy == 'c'")
            .assign(final=1.0)
            ._append({"policy": "c", "arm": "zvf", "seed": 9, "final": 1.0}, ignore_index=True),
            "final",
            ["zvf"],
            "grpo",
        )
    with pytest.raises(ValueError, match="two seeds or base policies"):
        nested(np.ones((1, 1, 1)))
