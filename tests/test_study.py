"""Curves to figures: cost to reach, pairing by seed, intervals, the base policy's regime. Hand-computed cases."""

import warnings

import numpy as np
import pandas as pd
import pytest

from repro.files import read_parquet, write_json, write_parquet
from repro.settings import Statistics
from repro.study.base_policy import describe_families, describe_groups
from repro.study.efficiency import cost_ratios, cost_to_reach, summarise
from repro.study.intervals import mean_intervals
from repro.study.tables import accuracy_table, ratio_table

STATISTICS = Statistics(levels=[0.5, 1.0], resamples=2000, confidence=0.95, seed=0)


def curve(arm, seed, costs, accuracies):
    steps = range(len(costs))
    return pd.DataFrame({"arm": arm, "seed": seed, "step": steps, "tokens": costs, "accuracy": accuracies})


def crossing(costs, accuracies, level):
    cost_B, reached_B = cost_to_reach(np.array([costs], float), np.array([accuracies], float), np.array([level]))
    return cost_B[0], bool(reached_B[0])


def test_cost_to_reach_is_linear_between_evaluations():
    costs, accuracies = [0, 10, 20], [0.2, 0.4, 0.8]
    assert crossing(costs, accuracies, 0.3) == (pytest.approx(5.0), True)
    assert crossing(costs, accuracies, 0.7) == (pytest.approx(17.5), True)
    assert crossing(costs, accuracies, 0.2) == (0.0, True)
    assert crossing(costs, accuracies, 0.8) == (pytest.approx(20.0), True)
    assert crossing(costs, accuracies, 0.81) == (20.0, False)  # a lower bound


def test_cost_to_reach_takes_the_first_crossing_of_a_curve_that_falls_back():
    assert crossing([0, 10, 20, 30], [0.0, 0.6, 0.2, 0.9], 0.5) == (pytest.approx(10 * 0.5 / 0.6), True)


def test_ratios_are_those_of_mean_curves_and_resample_pairs():
    runs = pd.concat(
        [
            curve("base", 0, [0, 100, 200], [0.2, 0.4, 0.6]),
            curve("base", 1, [0, 100, 200], [0.0, 0.6, 0.8]),
            curve("arm", 0, [0, 50, 100], [0.2, 0.4, 0.6]),
            curve("arm", 1, [0, 50, 100], [0.0, 0.6, 0.8]),
            curve("slow", 0, [0, 100, 200], [0.2, 0.3, 0.4]),
            curve("slow", 1, [0, 100, 200], [0.0, 0.1, 0.2]),
        ]
    )
    # mean curve of base: 0.1, 0.5, 0.7; half of its rise: 0.4, three quarters of the way to 100
    ratios = cost_ratios(runs, "base", "tokens", 0.5, STATISTICS)
    assert ratios["arm"][""] == pytest.approx(0.5) == ratios["arm"]["_low"] == ratios["arm"]["_high"]
    assert ratios["base"][""] == 1.0 and ratios["arm"]["_reached"]
    assert ratios["slow"][""] == pytest.approx(200 / 75) and not ratios["slow"]["_reached"]
    summary = summarise(runs, "base", ["tokens"], STATISTICS).set_index("arm")
    assert summary.loc["arm", "tokens_ratio_50"] == pytest.approx(0.5)
    assert summary.loc["slow", "difference"] == pytest.approx((-0.2 - 0.6) / 2)
    assert summary.loc["base", "gain"] == pytest.approx((0.4 + 0.8) / 2)
    titles = {"base": "Base", "arm": "Arm", "slow": "Slow"}
    assert "| Slow | 0.300 [" in accuracy_table(summary.reset_index(), titles)
    assert "| Slow | ≥ 2.67 |" in ratio_table(summary.reset_index(), titles, "tokens", [0.5])


def test_an_arm_equal_to_the_baseline_has_an_interval_around_one():
    rng = np.random.default_rng(0)
    noisy = [
        curve(arm, seed, range(7), 0.6 - 0.4 * np.exp(-np.arange(7) / 2) + rng.normal(0, 0.01, 7))
        for arm in ("base", "arm")
        for seed in range(10)
    ]
    ratios = cost_ratios(pd.concat(noisy), "base", "tokens", 0.9, STATISTICS)["arm"]
    assert ratios["_low"] < 1 < ratios["_high"]


def test_a_baseline_that_never_rose_leaves_the_ratio_undefined():
    runs = pd.concat([curve("base", 0, [0, 10], [0.5, 0.4]), curve("arm", 0, [0, 10], [0.5, 0.6])])
    summary = summarise(runs, "base", ["tokens"], STATISTICS)
    assert summary["tokens_ratio_50"].isna().all()
    assert "undefined" in ratio_table(summary, {"base": "Base", "arm": "Arm"}, "tokens", [0.5])


def test_unpaired_seeds_are_refused():
    with pytest.raises(ValueError, match="no run of the baseline 'base'"):
        cost_ratios(curve("arm", 3, [0, 1], [0, 1]), "base", "tokens", 0.5, STATISTICS)
    unpaired = pd.concat([curve("base", 0, [0, 1], [0, 1]), curve("arm", 3, [0, 1], [0, 1])])
    with pytest.raises(ValueError, match=r"arm has seeds \[3\], base has \[0\]"):
        summarise(unpaired, "base", ["tokens"], STATISTICS)


def test_intervals_are_rliables():
    """The same estimator, so the bounds agree to the Monte Carlo error of 2,000 resamples, some per cent of a width."""
    from rliable import library

    scores = np.random.default_rng(3).normal(0.6, 0.05, size=10)
    mean, low, high = mean_intervals({"arm": scores}, STATISTICS)["arm"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        points, bounds = library.get_interval_estimates(
            {"arm": scores[:, None]},
            lambda array: np.array([array.mean()]),
            reps=2000,
            random_state=np.random.RandomState(0),
        )
    assert mean == pytest.approx(points["arm"][0])
    assert [low, high] == pytest.approx(bounds["arm"][:, 0], abs=0.08 * (high - low))


def test_intervals_of_five_seeds_are_as_narrow_as_the_reports_say():
    """Percentile bootstrap of a normal mean at n = 5: about 80 to 85% coverage in place of 95%."""
    rng = np.random.default_rng(1)
    quick = STATISTICS.model_copy(update={"resamples": 400})
    bounds = [mean_intervals({"a": rng.normal(size=5)}, quick)["a"][1:] for _ in range(600)]
    assert 0.77 < np.mean([low <= 0 <= high for low, high in bounds]) < 0.87


def test_intervals_repeat_and_admit_what_they_do_not_know():
    values = {"a": np.array([0.1, 0.2, 0.4]), "one": np.array([0.3]), "nan": np.array([0.1, np.nan])}
    first, second = mean_intervals(values, STATISTICS), mean_intervals(values, STATISTICS)
    assert first["a"] == second["a"] and 0.0999 < first["a"][1] < first["a"][2] < 0.4001
    assert first["one"][0] == 0.3 and np.isnan(first["one"][1:]).all() and np.isnan(first["nan"]).all()


def test_the_regime_is_counted_right():
    rollouts = pd.DataFrame(
        {
            "query": [0, 0, 0, 0, 1, 1, 1, 1],
            "family": ["x"] * 4 + ["y"] * 4,
            "group": [0, 0, 1, 1] * 2,
            "correct": [1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
            "response_tokens": [2, 6, 3, 3, 5, 10, 1, 4],
            "entropy": [0.5] * 8,
        }
    )
    groups = describe_groups(rollouts)
    assert groups["signal"].tolist() == [True, False, False, False]
    assert groups["length_ratio"].tolist() == [3.0, 1.0, 2.0, 4.0]
    families = describe_families(rollouts).set_index("family")
    assert families["success"].to_dict() == {"x": 0.75, "y": 0.0, "all": 0.375}
    assert families["groups_without_signal"].to_dict() == {"x": 0.5, "y": 1.0, "all": 0.75}
    assert families.loc["x", "tokens_right"] == pytest.approx(8 / 3) and families.loc["all", "length_ratio"] == 2.5


def test_files_are_whole_or_absent(tmp_path):
    path = write_parquet(pd.DataFrame({"a": [1]}), tmp_path / "t.parquet")
    again = write_parquet(pd.DataFrame({"a": [1]}), tmp_path / "u.parquet")
    assert path.read_bytes() == again.read_bytes() and read_parquet(path, "x")["a"].tolist() == [1]
    with pytest.raises(ValueError):
        write_json({"a": float("nan")}, tmp_path / "n.json")
    with pytest.raises(FileNotFoundError, match="run `dvc repro train@grpo` first"):
        read_parquet(tmp_path / "none.parquet", "dvc repro train@grpo")
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ValueError, match=r"cannot be read .* delete it and run `dvc repro policy`"):
        read_parquet(path, "dvc repro policy")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.parquet", "u.parquet"]
