"""Longer runs, and sharpening: known curves and known gains are found again."""

import numpy as np
import pandas as pd
import pytest

from repro import settings as settings_module
from repro.experiments.longer import ends
from repro.experiments.longer import plot as longer_plot
from repro.experiments.sharpening import gains as sharpened
from repro.experiments.sharpening import plot as sharpening_plot
from repro.experiments.sharpening import scores as sharpening
from repro.files import write_parquet
from repro.plots.words import in_words
from repro.stats import atlas
from repro.stats.atlas import NoRuns
from repro.stats.saturation import curve, together

STATISTICS = settings_module.load().statistics
ENDS = {"grpo": (0.60, 100.0), "higher": (0.70, 100.0), "faster": (0.60, 50.0)}  # asymptote, half cost


def curves(noise: float) -> pd.DataFrame:
    """Two base policies, five seeds, 30 evaluations; `faster` spends less a step."""
    rng, rows = np.random.default_rng(0), []
    for policy in ("a", "b"):
        for arm, (asymptote, half) in ENDS.items():
            for seed in range(5):
                gflop_E = np.linspace(0, 600 if arm == "faster" else 800, 30)
                seen_E = curve(gflop_E, 0.3, asymptote, half, 1.2) + np.r_[0, rng.normal(0, noise, 29)]
                own = {"policy": policy, "arm": arm, "seed": seed, "run": f"{policy}{arm}{seed}"}
                rows.append(
                    pd.DataFrame({**own, "step": range(30), "samples": 2, "gflop": gflop_E, "accuracy": seen_E})
                )
    return pd.concat(rows, ignore_index=True)


def test_curves_fitted_together_find_the_ends_and_the_speeds():
    table = curves(0.0)
    fit = ends.fitted(table[table["policy"] == "a"], list(ENDS))
    assert fit.asymptote_A == pytest.approx([end for end, _ in ENDS.values()], abs=1e-4)
    assert fit.half_A == pytest.approx([half for _, half in ENDS.values()], rel=1e-3)
    assert fit.steepness == pytest.approx(1.2, rel=1e-3)
    assert fit(1, [0.0, 100.0]) == pytest.approx([0.3, 0.5], abs=1e-4)
    with pytest.raises(ValueError, match="cost above 0; one has 0"):
        together(np.zeros(9), np.ones(9), np.arange(9) % 3, 0.3)


def test_an_arm_that_ends_higher_is_told_from_one_that_is_faster():
    table = ends.differences(ends.measured(curves(0.01), list(ENDS)), ["higher", "faster"], "grpo", STATISTICS)
    found = table.set_index(["measure", "arm"])
    assert found["answer"].unstack().loc["asymptote"].to_dict() == {"higher": "higher", "faster": "open"}
    assert found.at[("half", "faster"), "answer"] == "lower"
    assert found.at[("half", "higher"), "value"] == pytest.approx(1.0, abs=0.15)
    assert found.at[("asymptote", "higher"), "value"] == pytest.approx(0.1, abs=0.02)
    assert found.at[("half", "faster"), "value"] == pytest.approx(0.5, abs=0.1)
    known = curve(np.array([600.0, 800.0]), 0.3, 0.6, 100.0, 1.2)
    exact = ends.measured(curves(0.0), list(ENDS)).groupby("arm")[["flops", "steps"]].mean()
    assert exact.loc["grpo"].to_numpy() == pytest.approx(known, abs=1e-3)  # 600 GFLOP, all of the most economical run
    figure = longer_plot.parameters(
        table, {"asymptote": "asymptote", "half": "half cost"}, {arm: arm for arm in ENDS if arm != "grpo"}, "?"
    )
    assert in_words(figure).startswith("asymptote: higher higher; half cost: ")


def test_gains_by_temperature_and_number_of_samples():
    rows = []
    # successes of 4 samples on two queries, at temperatures 0.01 (one sample) and 1
    for run, arm, seed, cold, warm in (("x", "base", 0, (0, 1), (1, 1)), ("y", "arm", 0, (1, 1), (3, 3))):
        for query in (0, 1):
            known = {"run": run, "policy": "a", "arm": arm, "seed": seed, "query": query}
            rows.append({**known, "temperature": 0.01, "samples": 1, "successes": cold[query]})
            rows.append({**known, "temperature": 1.0, "samples": 4, "successes": warm[query]})
    table = sharpening.scores(pd.DataFrame(rows), [1, 4])
    assert table.columns.to_list() == [(0.01, 1), (1.0, 1), (1.0, 4)]
    assert table.loc[("a", "base", 0)].to_list() == [0.5, 0.25, 1.0]
    two = pd.concat([table, table.loc[[("a", "arm", 0)]].rename({0: 1}, level="seed")])
    gain = sharpened.gains(two, ["arm"], 0.95).set_index(["temperature", "k"])["gain"]
    assert gain.to_dict() == {(0.01, 1): 0.5, (1.0, 1): 0.5, (1.0, 4): 0.0}
    other = two.rename({"arm": "other"}, level="arm").drop("base", level="arm") - 0.125
    less = sharpened.gains(pd.concat([two, other]), ["other"], 0.95, over="arm")
    assert less["gain"].to_list() == [-0.125] * 3  # paired with the same seed
    panels = {"one sample": {(1.0, 1): "temperature 1"}, "several": {(1.0, 4): "one of 4"}}
    figure = sharpening_plot.gains(sharpened.gains(two, ["arm"], 0.95), panels, {"arm": "Arm"}, "Sharpening?")
    assert "temperature 1, +0.500 to +0.500; one of 4, +0.000 to +0.000" in in_words(figure)


def test_base_policies_on_which_an_arm_is_missing_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(atlas.paths, "ATLAS_DATA", tmp_path)
    for load, panel in ((sharpening.load, sharpening.PANEL), (ends.load, ends.PANEL)):
        with pytest.raises(NoRuns, match=f"make atlas PANEL={panel}"):
            load()
        keys = [("a", "grpo"), ("a", "zvf"), ("b", "grpo")]
        runs = pd.DataFrame([{"run": f"{panel}/{p}/{arm}/0", "policy": p, "arm": arm, "seed": 0} for p, arm in keys])
        bases = pd.DataFrame({"run": [f"{panel}/{p}/base" for p in "ab"]})
        write_parquet(runs, tmp_path / panel / "runs.parquet")
        table = pd.concat([runs[["run"]], bases]).assign(temperature=np.float32(0.01), step=0, flops=2e9)
        write_parquet(table, tmp_path / panel / "temperatures.parquet")
        write_parquet(table, tmp_path / panel / "curves.parquet")
        assert set(load()["policy"]) == {"a"}
    half = pd.concat([runs, runs[:1].assign(run="again", seed=1)])
    assert set(atlas.whole(half, ["policy"])["arm"]) == {"grpo"}  # zvf's second seed is still to come
    assert set(sharpening.load()["arm"]) == {"base", "grpo", "zvf"} and set(sharpening.load()["temperature"]) == {0.01}
