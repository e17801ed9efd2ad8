"""Sharpening: gains by temperature and number of samples, from successes made by hand."""

import numpy as np
import pandas as pd
import pytest

from repro.experiments.sharpening import gains, plot, scores
from repro.files import write_parquet
from repro.plots.words import in_words
from repro.stats import panels
from repro.stats.panels import NoRuns


def test_gains_by_temperature_and_number_of_samples():
    rows = []
    # successes of 4 samples on two queries, at temperatures 0.01 (one sample) and 1
    for run, arm, seed, cold, warm in (("x", "base", 0, (0, 1), (1, 1)), ("y", "arm", 0, (1, 1), (3, 3))):
        for query in (0, 1):
            known = {"run": run, "policy": "a", "arm": arm, "seed": seed, "query": query}
            rows.append({**known, "temperature": 0.01, "samples": 1, "successes": cold[query]})
            rows.append({**known, "temperature": 1.0, "samples": 4, "successes": warm[query]})
    table = scores.scores(pd.DataFrame(rows), [1, 4])
    assert table.columns.to_list() == [(0.01, 1), (1.0, 1), (1.0, 4)]
    assert table.loc[("a", "base", 0)].to_list() == [0.5, 0.25, 1.0]
    two = pd.concat([table, table.loc[[("a", "arm", 0)]].rename({0: 1}, level="seed")])
    gain = gains.gains(two, ["arm"], 0.95).set_index(["temperature", "k"])["gain"]
    assert gain.to_dict() == {(0.01, 1): 0.5, (1.0, 1): 0.5, (1.0, 4): 0.0}
    other = two.rename({"arm": "other"}, level="arm").drop("base", level="arm") - 0.125
    less = gains.gains(pd.concat([two, other]), ["other"], 0.95, over="arm")
    assert less["gain"].to_list() == [-0.125] * 3  # paired with the same seed
    panels = {"one sample": {(1.0, 1): "temperature 1"}, "several": {(1.0, 4): "one of 4"}}
    figure = plot.gains(gains.gains(two, ["arm"], 0.95), panels, {"arm": "Arm"}, "Sharpening?")
    assert "temperature 1, +0.500 to +0.500; one of 4, +0.000 to +0.000" in in_words(figure)


def test_base_policies_on_which_an_arm_is_missing_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(panels.paths, "PANELS", tmp_path)
    with pytest.raises(NoRuns, match="make runs PANEL=sharpening"):
        scores.load()
    keys = [("a", "grpo"), ("a", "zvf"), ("b", "grpo")]
    runs = pd.DataFrame([{"run": f"{policy}/{arm}", "policy": policy, "arm": arm, "seed": 0} for policy, arm in keys])
    asked = pd.DataFrame({"run": [*runs["run"], "sharpening/a/base", "sharpening/b/base"]})
    write_parquet(runs, tmp_path / scores.PANEL / "runs.parquet")
    write_parquet(asked.assign(temperature=np.float32(0.01)), tmp_path / scores.PANEL / "temperatures.parquet")
    table = scores.load()
    assert set(table["policy"]) == {"a"} and set(table["temperature"]) == {0.01}
    assert set(table["arm"]) == {"base", "grpo", "zvf"}
    half = pd.concat([runs, runs[:1].assign(run="again", seed=1)])
    assert set(panels.whole(half, ["policy"])["arm"]) == {"grpo"}  # zvf's second seed is still to come
