"""Advantage variance: the notebook's closed forms by hand and by brute force, gradients against differences, and the
samplers. `cells` are the variables of notebooks/theory/variance.ipynb after a small run."""

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_cells import run_cells

from repro.stats.verdicts import words
from repro.theory.variance import SoftmaxPolicy, best_variances, draw_policy

SMALL = dict(vocabulary=3, length=2, hidden=4, sharpness=1.0)
RUN = dict(group_size=8, keep=4, n_vectors=50, n_queries=3, n_groups=300, batch_groups=16, n_batches=20, **SMALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("variance")


@pytest.fixture(scope="module")
def cells(folder) -> SimpleNamespace:
    return SimpleNamespace(**run_cells("variance", folder, **RUN, seed=3))


def best_of_all(values_G, keep: int) -> float:
    """The largest variance of any subset, every subset tried."""
    return max(np.var(chosen) for chosen in itertools.combinations(values_G, keep))


def test_lemma_1_by_hand(cells):
    # 3 of {−1, −1, 1, 1}: {−1, 1, 1} has mean 1/3 and variance 1 − 1/9. All four, or two: 1.
    assert cells.lemma_bound(4, np.array([2, 3, 4])) == pytest.approx([1, 8 / 9, 1])
    assert cells.averaged_bound(4, np.array([2, 3, 4])) == pytest.approx([2 / 3, 8 / 9, 1])
    assert cells.selected_variance(4, 2, np.array([2, 3, 4])) == pytest.approx([1, 8 / 9, 1])
    # One success of four: A = √3 and −1/√3. The best two are one of each: variance ((√3 + 1/√3)/2)² = 4/3.
    assert cells.selected_variance(4, 1, 2) == pytest.approx(4 / 3)
    assert cells.selected_variance(4, np.array([0, 4]), 2) == pytest.approx([0, 0])
    assert cells.kept_successes(8, np.array([0, 1, 4, 7, 8]), 5).tolist() == [0, 1, 3, 4, 5]
    # 3·|8 − 2k| < 8 for k = 3, 4, 5, and 5·|8 − 2k| < 8 for k = 4 alone; an even size never fails, nor the whole group.
    assert cells.lemma_fails(8, np.arange(9), 3).nonzero()[0].tolist() == [3, 4, 5]
    assert cells.lemma_fails(8, np.arange(9), 5).nonzero()[0].tolist() == [4]
    assert not cells.lemma_fails(9, 4, np.array([2, 4, 6, 8, 9])).any()


@given(st.lists(st.integers(-9, 9), min_size=2, max_size=8).filter(lambda values: len(set(values)) > 1))
@settings(deadline=None)
def test_some_subset_of_every_size_reaches_the_corrected_bound(cells, values):
    values_G = np.array(values, dtype=float)
    values_G = (values_G - values_G.mean()) / values_G.std()
    for keep in range(2, len(values) + 1):
        best = best_of_all(values_G, keep)
        assert best_variances(values_G[None], keep) == pytest.approx([best])
        bound = cells.lemma_bound(len(values), keep)
        assert best >= bound - 1e-9
        assert bound >= cells.averaged_bound(len(values), keep) - 1e-12


def test_binary_groups_agree_with_every_closed_form(cells):
    table = cells.binary_groups(13)
    assert len(table) == sum((size - 1) ** 2 for size in range(2, 14))
    np.testing.assert_allclose(table["variance"], table["predicted"], rtol=1e-12)
    np.testing.assert_array_equal(table["below"], table["fails"])
    assert table["fails"].any() and (table.loc[table["fails"], "keep"] % 2 == 1).all()
    # The bound is attained by half successes: sharp for every n of an even G.
    half = table[table["group_size"] == 2 * table["successes"]]
    np.testing.assert_allclose(half["variance"], half["bound"], rtol=1e-12)


def test_bounds_by_hand(cells):
    # G = 5, Var = 2: 3·2^(1/3)·2^(1/3)·2^(1/3) = 6.
    assert cells.proposition_2(2.0, 5) == pytest.approx(6)
    assert cells.moment_bound(2.25) == pytest.approx(3)
    # p = 1/2: two rollouts agree with probability 1/2, four with 1/8.
    assert cells.one_sided(0.5, 4, 2) == pytest.approx(3 / 8)
    ratios = cells.bound_ratios(cells.all_splits(16)).set_index("kind")
    assert ratios.loc["best", "least"] == pytest.approx(3 / 2 ** (2 / 3))  # at G = 2
    assert ratios.loc["mixed", "least"] > 1 and ratios.loc["mixed", "broken"] == 0
    assert ratios.loc["one-sided", "broken"] == ratios.loc["one-sided", "subsets"] > 0


def test_one_token_attains_its_bound_and_breaks_proposition_2(cells):
    """Tabular logits, γ = 1: half of a group on one token, half on another, advantages ±1."""
    scores = np.eye(3) - np.array([0.5, 0.3, 0.2])
    advantages, tokens = np.array([1.0, 1.0, -1.0, -1.0]), np.array([0, 0, 1, 1])
    whole = (advantages[:, None] * scores[tokens]).mean(axis=0)
    assert np.linalg.norm(whole) == pytest.approx(np.sqrt(0.5))
    part = (advantages[:2, None] * scores[tokens[:2]]).mean(axis=0)
    assert np.linalg.norm(part) > 0.6 > cells.proposition_2(np.var(advantages[:2]), 4) == 0
    assert np.linalg.norm(part) <= cells.moment_bound(1.0)
    # No policy of one-token responses goes beyond: Proposition 1 allows 4.
    one_token = cells.tightness[cells.tightness["length"] == 1]
    assert len(one_token) == 3 and (one_token["eq_4_largest"] <= np.sqrt(0.5) / 4 + 1e-12).all()


def test_scores_are_the_gradients_and_gamma_their_jacobian():
    policy = draw_policy(**SMALL, queries=3, seed=1)
    size = policy.output_V_H.size
    flat = np.concatenate([policy.output_V_H.ravel(), policy.input_H_F.ravel()])

    def at(parameters_P) -> SoftmaxPolicy:
        output_V_H = parameters_P[:size].reshape(policy.output_V_H.shape)
        input_H_F = parameters_P[size:].reshape(policy.input_H_F.shape)
        return SoftmaxPolicy(output_V_H, input_H_F, policy.queries_Q_D, policy.values_Q_T_V, policy.aims_Q)

    pairs = [(at(flat + step), at(flat - step)) for step in 1e-6 * np.eye(len(flat))]
    logs = [(np.log(a.probabilities_Q_Y) - np.log(b.probabilities_Q_Y)) / 2e-6 for a, b in pairs]
    np.testing.assert_allclose(policy.scores_Q_Y_P, np.stack(logs, axis=-1) / SMALL["length"], atol=1e-7)
    logits = [(a.hidden_Q_C_H @ a.output_V_H.T - b.hidden_Q_C_H @ b.output_V_H.T) / 2e-6 for a, b in pairs]
    norms_Q_C = np.linalg.norm(np.stack(logits, axis=-1), ord=2, axis=(2, 3))
    np.testing.assert_allclose(policy.gamma_Q, norms_Q_C.max(axis=1), rtol=1e-6)
    assert np.einsum("qy,qyp->qp", policy.probabilities_Q_Y, policy.scores_Q_Y_P) == pytest.approx(0, abs=1e-12)
    assert ((policy.rates_Q > 0) & (policy.rates_Q < 1)).all()


@pytest.mark.parametrize("method", ["grpo", "d1s", "pods"])
def test_the_expected_gradient_of_every_group_is_the_closed_form(cells, method):
    """Every group of four responses of one query, with its probability: no sampling, no tolerance but rounding."""
    policy = draw_policy(vocabulary=3, length=1, hidden=4, sharpness=1.0, queries=3, seed=2)
    query, size, keep = 1, 4, 2
    total_P = 0.0
    for group in itertools.product(range(3), repeat=size):
        rewards = policy.correct_Q_Y[query, list(group)]
        if np.ptp(rewards) == 0:
            continue
        advantages = (rewards - rewards.mean()) / rewards.std()
        # Two of four of largest variance: the first success and the first failure, in order.
        rows = range(size) if method == "grpo" else [int(rewards.argmax()), int(rewards.argmin())]
        kept = np.array([advantages[row] for row in rows]) if method != "pods" else np.array([1.0, -1.0])
        gradient_P = kept @ policy.scores_Q_Y_P[query, [group[row] for row in rows]] / len(kept)
        total_P = total_P + policy.probabilities_Q_Y[query, list(group)].prod() * gradient_P
    factor = cells.gradient_factor(policy.rates_Q[query], size, keep, method)
    np.testing.assert_allclose(total_P, factor * policy.rate_gradients_Q_P[query], rtol=1e-10, atol=1e-14)


def test_factors_tend_to_their_limits(cells):
    rates = np.array([0.3, 0.5, 0.8])
    base = cells.gradient_factor(rates, 4000, 8, "grpo")
    np.testing.assert_allclose(base, 1 / np.sqrt(rates * (1 - rates)), rtol=1e-3)
    for method in ("d1s", "pods"):
        ratio = cells.gradient_factor(rates, 4000, 8, method) / base
        np.testing.assert_allclose(ratio, cells.limit_ratio(rates, method), rtol=5e-3)
    assert cells.limit_ratio(0.5, "d1s") == cells.limit_ratio(0.5, "pods") == cells.limit_ratio(0.2, "grpo") == 1


def test_samplers_keep_the_same_rollouts_and_the_predicted_variance(cells):
    for keep in (2, 3, 8, 11):
        within = cells.within_groups(11, keep, seed=0)
        assert within["same"].all() or keep == 3
        np.testing.assert_allclose(within["d1s"], within["predicted"], rtol=1e-12)
        np.testing.assert_allclose(within["pods"], 1.0, atol=1e-4)


def test_usefulness_by_hand(cells):
    # B = 2 groups of 4, n = 2: M = 0, 1, 2 with 1/4, 1/2, 1/4. Within groups M/2; across, one group is enough.
    assert cells.useful_groups(0.5, 2, 4, 2, cross=False) == pytest.approx(0.5)
    assert cells.useful_groups(0.5, 2, 4, 2, cross=True) == pytest.approx(0.75)
    # n = 3: with M = 1, two rollouts are missing, from one silent group: 1/2.
    assert cells.useful_groups(0.5, 2, 4, 3, cross=True) == pytest.approx(0.5)
    assert cells.useful_groups(0.7, 4096, 32, np.array([8, 28]), cross=True) == pytest.approx([1, 0.8], abs=1e-3)
    # p uniform: E p^G = 1/(G + 1).
    assert cells.signal_probability(1, 1, 4) == pytest.approx(3 / 5)
    assert cells.binomial_pmf(np.arange(3), 2, 0.25) == pytest.approx([9 / 16, 6 / 16, 1 / 16])


@given(st.integers(0, 2**32 - 1), st.integers(3, 9), st.integers(1, 9))
@settings(deadline=None, max_examples=25)
def test_usefulness_of_every_batch_is_the_closed_form(cells, seed, group_size, groups):
    batches = cells.simulate_usefulness(0.3, 0.6, groups, group_size, range(2, group_size + 1), 2, seed)
    assert batches["useful"].to_numpy() == pytest.approx(batches["given"].to_numpy())
    across = batches[batches["sampler"] == "d1s-c"]
    assert (across["silent_kept"] == 0).all()


def test_measured_gradients_have_the_closed_forms_means(cells):
    """Within 4.5 standard errors, query by query; and the verdicts on the same numbers are those printed."""
    factors = cells.factors
    assert len(factors) == 2 * RUN["n_queries"]
    assert ((factors["measured"] - factors["predicted"]).abs() <= 4.5 * factors["se"]).all()
    refuted = [verdict.id for verdict in cells.verdicts if verdict.outcome == "refuted"]
    assert refuted == ["lemma-1-printed", "prop-2-printed", "pinned-variance-pins-gradient"]
    least = cells.verdicts[0]
    assert (least.value, least.low, least.high) == pytest.approx([8 / 9] * 3, abs=1e-9)


def test_every_verdict_has_words(folder):
    assert list(pd.read_parquet(folder / "verdicts.parquet")["id"]) == list(words("variance"))
