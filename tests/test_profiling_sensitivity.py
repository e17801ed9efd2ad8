"""Sensitivity of the plan to K and to the temperature: against brute force, and where the answer is known."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from repro.experiments.profile import sensitivity
from repro.experiments.profile.sensitivity import Comparison
from repro.methods.sgpo_rule import Rule
from repro.settings import load
from repro.stats.correlation import spearman
from repro.stats.intervals import mean_intervals, over_seeds
from repro.theory.group_size import informative

SETTINGS = load(scale="smoke")
STATISTICS = SETTINGS.statistics
COMPARISON = Comparison(Rule(smallest=2, largest=8, unsolvable_share=0.25), group=4, price=0.2, rollouts=1000)
MARGIN = 0.05
SEEDS = (0, 1, 2)


def drawn(p_Q, samples=32, seeds=3, seed=0) -> np.ndarray:
    """correct_S_Q_K of queries with success probabilities p_Q."""
    return np.random.default_rng(seed).random((seeds, len(p_Q), samples)) < np.asarray(p_Q)[:, None]


@given(st.integers(2, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(2, n))))
def test_informative_groups_are_the_mixed_subsets(case):
    samples, successes, size = case
    outcomes = [place < successes for place in range(samples)]
    mixed = [0 < sum(group) < size for group in combinations(outcomes, size)]
    found = sensitivity.informative_groups(np.array([successes]), samples, np.array([size]))
    assert found == pytest.approx(np.mean(mixed))


def test_informative_groups_are_unbiased_and_plug_in_where_they_cannot_be():
    p, samples = 0.2, 10
    counts = np.random.default_rng(0).binomial(samples, p, 200_000)
    assert sensitivity.informative_groups(counts, samples, np.full(len(counts), 6)).mean() == pytest.approx(
        float(informative(p, 6)), abs=0.003
    )
    mixed = sensitivity.informative_groups(np.array([2, 2]), samples, np.array([6, 12]))
    assert mixed[1] == pytest.approx(float(informative(0.2, 12)))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=20))
def test_rank_correlation_is_spearmans(pairs):
    x_Q, y_Q = np.array(pairs, float).T
    if np.ptp(x_Q) == 0 or np.ptp(y_Q) == 0:
        assert np.isnan(spearman(x_Q, y_Q))
    else:
        assert spearman(x_Q, y_Q) == pytest.approx(spearmanr(x_Q, y_Q).statistic)


def test_a_profile_without_noise_makes_no_error_at_any_K():
    """Queries that are always or never solved: every K knows them, and only the charge grows."""
    correct_S_Q_K = drawn([0.0, 0.0, 1.0])
    table = sensitivity.by_samples(correct_S_Q_K, SEEDS, COMPARISON, MARGIN)
    assert sorted(set(table["samples"])) == [2, 4, 8, 16, 32]
    assert table["rank_correlation"].tolist() == pytest.approx([1.0] * len(table))
    for name in ("wrong_class", "misfiled", "size_error", "size_changed", "informative"):
        assert (table[name] == 0).all()
    assert table["saving"].isna().all()  # equal groups find nothing either
    assert set(sensitivity.by_samples(correct_S_Q_K[:, :, :9], SEEDS, COMPARISON, MARGIN)["samples"]) == {2, 4, 8}


def test_by_samples_by_hand():
    """Two queries, one seed's first two samples against the 8 of the two others."""
    correct_S_Q_K = np.zeros((3, 2, 4), bool)
    correct_S_Q_K[0, 0, :1] = True  # ½ by two samples; the others solve it in 6 of 8
    correct_S_Q_K[1:, 0, :3] = True
    correct_S_Q_K[1:, 1, :2] = True  # never by seed 0, in 4 of 8 by the others
    table = sensitivity.by_samples(correct_S_Q_K, SEEDS, COMPARISON, MARGIN)
    row = table[(table["samples"] == 2) & (table["seed"] == 0)].iloc[0]
    assert row["rank_correlation"] == pytest.approx(1.0)
    assert row["wrong_class"] == row["misfiled"] == 0.5  # the second query is thinned
    assert row["size_error"] == (0 + 6) / 2 and row["size_changed"] == 0.5  # 8 for p̂ = 0, and 2 for ½
    mixed = 1 - (15 + 1) / 28  # pairs of 8 with 6 successes that are equal: C(6, 2) and C(2, 2)
    assert row["informative"] == pytest.approx((mixed + 0.25 * 1.0) / (2 + 0.25 * 8))  # all 8 of the second differ
    fours = [1 - 15 / 70, 1 - 2 / 70]  # equal groups: C(6, 4) of 70, and C(4, 4) twice
    assert row["uniform_informative"] == pytest.approx(sum(fours) / 2 / 4)
    charge = 1000 / (1000 + 0.2 * 2 * 2)
    assert row["saving_charged"] == pytest.approx(row["saving"] * charge)
    assert row["informative_charged"] == pytest.approx(row["informative"] * charge)


def test_no_sample_judges_its_own_seed():
    """Other samples of seed 0 change what is said of the others, and of seed 0 only through its own first K."""
    before = drawn(np.linspace(0, 1, 50))
    after = before.copy()
    after[0, :, 8:] = ~after[0, :, 8:]
    tables = [sensitivity.by_samples(correct, SEEDS, COMPARISON, MARGIN) for correct in (before, after)]
    own = [table[(table["seed"] == 0) & (table["samples"] <= 8)] for table in tables]
    other = [table[table["seed"] == 1] for table in tables]
    assert own[0].equals(own[1]) and not other[0].equals(other[1])


def test_means_over_seeds_are_those_of_each_group_in_the_order_of_the_table():
    table = pd.DataFrame({"arm": ["b", "b", "a", "a"], "seed": [0, 1, 0, 1], "x": [1.0, 3.0, 5.0, 5.0]})
    means = over_seeds(table.assign(y=[0.0, np.nan, 1.0, 0.0]), "arm", STATISTICS)
    assert means.index.tolist() == ["b", "a"]
    assert tuple(means.loc["b", ["x", "x_low", "x_high"]]) == mean_intervals({"": np.array([1, 3])}, STATISTICS)[""]
    assert means["x"].tolist() == [2, 5] and np.isnan(means.loc["b", "y"]) and means.loc["a", "y"] == 0.5
    single = over_seeds(table[table["seed"] == 0], ["arm"], STATISTICS)
    assert single["x"].tolist() == [1, 5] and single[["x_low", "x_high"]].isna().all(axis=None)
    assert over_seeds(table.iloc[:0], "arm", STATISTICS).columns.tolist() == ["x", "x_low", "x_high"]
