"""Curves to figures: cost to reach, pairing by seed, intervals, the base policy's regime. Hand-computed cases."""

import warnings

import numpy as np
import pandas as pd
import pytest

from repro.files import read_parquet, write_json, write_parquet
from repro.settings import Statistics
from repro.study.base_policy import describe_families, describe_groups
from repro.study.efficiency import cost_to_reach, paired_costs, summarise
from repro.study.intervals import mean_intervals
from repro.study.tables import accuracy_table, ratio_table

STATISTICS = Statistics(levels=[0.5, 1.0], resamples=2000, confidence=0.95, seed=0)


def curve(arm, seed, costs, accuracies):
    steps = range(len(costs))
    return pd.DataFrame({"arm": arm, "seed": seed, "step": steps, "tokens": costs, "accuracy": accuracies})


def test_cost_to_reach_is_linear_between_evaluations():
    costs_E, accuracies_E = np.array([0.0, 10.0, 20.0]), np.array([0.2, 0.4, 0.8])
    assert cost_to_reach(costs_E, accuracies_E, 0.3) == (pytest.approx(5.0), True)
    assert cost_to_reach(costs_E, accuracies_E, 0.7) == (pytest.approx(17.5), True)
    assert cost_to_reach(costs_E, accuracies_E, 0.2) == (0.0, True)
    assert cost_to_reach(costs_E, accuracies_E, 0.8) == (pytest.approx(20.0), True)
    assert cost_to_reach(costs_E, accuracies_E, 0.81) == (20.0, False)  # a lower bound


def test_cost_to_reach_takes_the_first_crossing_of_a_curve_that_falls_back():
    assert cost_to_reach(np.array([0.0, 10.0, 20.0, 30.0]), np.array([0.0, 0.6, 0.2, 0.9]), 0.5)[0] == pytest.approx(
        10 * 0.5 / 0.6
    )


def test_ratios_are_paired_with_the_baseline_of_the_same_seed():
    runs = pd.concat(
        [
            curve("base", 0, [0, 100, 200], [0.2, 0.4, 0.6]),
            curve("base", 1, [0, 100, 200], [0.0, 0.8, 0.8]),
            curve("arm", 0, [0, 50, 100], [0.2, 0.4, 0.6]),
            curve("arm", 1, [0, 50, 100], [0.0, 0.1, 0.2]),
        ]
    )
    half = paired_costs(runs, "base", "tokens", 0.5).set_index(["arm", "seed"])
    assert half.loc[("base", 0), "level"] == pytest.approx(0.4) and half.loc[("base", 1), "level"] == pytest.approx(0.4)
    assert half.loc[("arm", 0), "ratio"] == pytest.approx(0.5)
    assert half.loc[("arm", 1), "ratio"] == pytest.approx(2.0) and not half.loc[("arm", 1), "reached"]
    assert (half.loc["base", "ratio"] == 1.0).all()
    summary = summarise(runs, "base", ["tokens"], STATISTICS).set_index("arm")
    assert summary.loc["arm", "tokens_ratio_50"] == pytest.approx(1.0)  # geometric mean of 1/2 and 2
    assert summary.loc["arm", "tokens_ratio_50_reached"] == 1
    assert summary.loc["arm", "difference"] == pytest.approx((0.0 + (0.2 - 0.8)) / 2)
    assert summary.loc["base", "gain"] == pytest.approx((0.4 + 0.8) / 2)
    assert "| Arm | 0.400 [" in accuracy_table(summary.reset_index(), {"base": "Base", "arm": "Arm"})
    assert "≥ 1.00" in ratio_table(summary.reset_index(), {"base": "Base", "arm": "Arm"}, "tokens", [0.5])


def test_a_baseline_that_never_rose_leaves_the_ratio_undefined():
    runs = pd.concat([curve("base", 0, [0, 10], [0.5, 0.4]), curve("arm", 0, [0, 10], [0.5, 0.6])])
    summary = summarise(runs, "base", ["tokens"], STATISTICS)
    assert summary["tokens_ratio_50"].isna().all()
    assert "undefined" in ratio_table(summary, {"base": "Base", "arm": "Arm"}, "tokens", [0.5])


def test_a_seed_without_the_baseline_is_refused():
    with pytest.raises(ValueError, match="seed 3 has no run of the baseline 'base'"):
        paired_costs(curve("arm", 3, [0, 1], [0, 1]), "base", "tokens", 0.5)


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
