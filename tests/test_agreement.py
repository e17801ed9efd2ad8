"""Two sources that rank arms: closed forms, and simulated sources whose ρ, reliability and noise are known."""

import numpy as np
import pandas as pd
import pytest

from repro.settings import Statistics
from repro.stats.agreement import LEAST, agreement, by_unit, predicted, ranked, reliability, signs

STATISTICS = Statistics(resamples=100, seed=0, confidence=0.95, levels=[0.9])


def source(true_A: np.ndarray, units: int, noise: float, rng: np.random.Generator) -> pd.DataFrame:
    values_A_U = true_A[:, None] + rng.normal(0, noise, (len(true_A), units))
    return pd.DataFrame(values_A_U, [f"arm-{place}" for place in range(len(true_A))])


def test_differences_are_paired_by_seed_and_averaged_over_the_seeds_of_a_base_policy():
    runs = [
        (policy, arm, seed, base + less * (arm == "own"))
        for policy, less in (("i", 0.1), ("j", 0.3))
        for seed, base in ((0, 0.5), (1, 0.9))
        for arm in ("grpo", "own")
    ] + [("i", "elsewhere", 0, 0.7)]
    table = pd.DataFrame(runs, columns=["policy", "arm", "seed", "accuracy"])
    found = by_unit(table, "accuracy", "grpo")
    assert found.index.to_list() == ["own"] and found.loc["own"].to_numpy() == pytest.approx([0.1, 0.3])
    one = by_unit(table[table["policy"] == "i"], "accuracy", "grpo")
    assert one.columns.to_list() == [0, 1] and one.loc["own"].to_numpy() == pytest.approx([0.1, 0.1])


def test_a_copy_without_noise_agrees_in_everything_and_its_reverse_in_nothing():
    first = source(np.arange(1.0, 9.0), 3, 0.0, np.random.default_rng(0))
    told = agreement(first, first.iloc[::-1] * 2 + 1, STATISTICS)  # arms are found by name
    assert (told["arms"], told["rho"], told["ceiling"], told["agree"]) == (8, 1.0, 1.0, 1.0)
    assert told["rho_low"] > 0.7 and told["p"] < 0.001 and told["pairs"] == 8 * 9 / 2
    assert agreement(first, -first, STATISTICS)["rho"] == -1 and agreement(first, -first, STATISTICS)["agree"] == 0
    with pytest.raises(ValueError, match="3 arms in common; it takes 4"):
        agreement(first, first.head(LEAST - 1), STATISTICS)


def test_an_interval_has_its_closed_form_and_excludes_0_where_p_says_so():
    low, high, p = ranked(0.5, 19, 0.95)
    half = 1.959964 * np.sqrt((1 + 0.125) / 16)
    assert (np.arctanh(high), np.arctanh(low)) == pytest.approx((np.arctanh(0.5) + half, np.arctanh(0.5) - half))
    assert (low > 0) == (p < 0.05)
    assert ranked(1.0, 4, 0.95)[0] < 0 < ranked(1.0, 12, 0.95)[0]  # four arms in one order are chance
    assert ranked(0.5, 19, 0.95, shared=0.05)[0] < low
    assert np.isnan(ranked(0.5, 3, 0.95)).all()


@pytest.mark.parametrize("true", [0.0, 0.9])
def test_intervals_contain_the_true_correlation_in_95_of_100_pairs_and_the_ceiling_is_the_reliability(true):
    rng, arms, units, noise = np.random.default_rng(0), 30, 4, 1.0
    reliable = 1 / (1 + noise**2 / units)  # of either source's means, so the ceiling too
    expected = 6 / np.pi * np.arcsin(true * reliable / 2)  # Spearman's of two normal variables
    found = []
    for _ in range(200):
        true_A_2 = rng.multivariate_normal([0, 0], [[1, true], [true, 1]], arms)
        found.append(agreement(*(source(of, units, noise, rng) for of in true_A_2.T), STATISTICS))
    table = pd.DataFrame(found)
    assert table["rho"].mean() == pytest.approx(expected, abs=0.03)
    inside = (table["rho_low"] <= expected) & (expected <= table["rho_high"])
    assert 0.92 <= inside.mean() <= 0.99
    assert table["ceiling"].mean() == pytest.approx(reliable, abs=0.05)


def test_reliability_is_spearman_and_browns_and_0_where_units_contradict_each_other():
    table = pd.DataFrame({"a": [1, 2, 3, 4], "b": [1, 2, 4, 3]})  # r = 0.8
    assert reliability(table) == pytest.approx(2 * 0.8 / 1.8)
    assert reliability(table.assign(b=-table["a"])) == 0
    assert np.isnan(reliability(table[["a"]]))


def test_signs_are_of_pairs_that_differ_by_more_than_their_noise_the_baseline_among_them():
    rng = np.random.default_rng(0)
    sign_P = signs(source(np.array([1.0, 1.0, -1.0]), 6, 0.05, rng).to_numpy(), 0.95)
    assert sign_P.tolist() == [1, 1, -1, 0, -1, -1]  # baseline–a, –b, –c, a–b, a–c, b–c
    assert not signs(np.ones((3, 1)), 0.95).any()


def test_a_line_predicts_the_arm_that_it_was_not_fitted_to():
    rng = np.random.default_rng(0)
    first = source(rng.normal(size=9), 2, 0.1, rng)
    second = 2 * first + rng.normal(0, 0.3, first.shape)
    told = predicted(first, second, 0.95)
    x, y = first.mean(axis=1), second.mean(axis=1)
    for arm in first.index:
        line = np.polyfit(x.drop(arm), y.drop(arm), 1)
        assert told.at[arm, "predicted"] == pytest.approx(np.polyval(line, x[arm]))
        assert told.at[arm, "plain"] == pytest.approx(y.drop(arm).mean())


def test_predictions_contain_95_of_100_arms():
    rng = np.random.default_rng(0)
    told = [
        predicted(first, first + rng.normal(0, 0.5, first.shape), 0.95)["inside"].mean()
        for first in (source(rng.normal(size=12), 2, 0.3, rng) for _ in range(200))
    ]
    assert np.mean(told) == pytest.approx(0.95, abs=0.02)
