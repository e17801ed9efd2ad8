"""The atlas's runs as the study's, and a machine's own runs against them: a repetition is told from another method."""

import numpy as np
import pandas as pd
import pytest

from repro import paths
from repro import settings as settings_module
from repro.experiments.results.repeated import repeated, sentence
from repro.files import write_json, write_parquet
from repro.pipeline.verify import plausible
from repro.settings import SettingsError
from repro.stats import panel, runs
from repro.stats.intervals import predicted

ARMS = {"grpo": "grpo", "zvf": "zvf", "pods": "pods"}
SETTINGS = settings_module.load(scale="smoke", seeds=[0, 1, 2, 3, 4]).with_arms(ARMS)


def curves(final: dict[str, list[float]]) -> pd.DataFrame:
    rows = [
        {"arm": arm, "seed": seed, "step": step, "accuracy": np.float32(value * step / 4), "flops": 1e9 / 3 * step}
        for arm, ends in final.items()
        for seed, value in enumerate(ends)
        for step in (0, 4)
    ]
    return pd.DataFrame(rows)


GRPO, ZVF, PODS = [0.40, 0.42, 0.44, 0.41, 0.43], [0.41, 0.45, 0.45, 0.43, 0.43], [0.42, 0.43, 0.47, 0.43, 0.46]


def test_the_same_curves_have_the_same_bits():
    atlas = curves({"grpo": GRPO, "zvf": ZVF})
    table = repeated(atlas[atlas["seed"] < 3], atlas, SETTINGS)
    assert table[["arm", "seeds", "same_bits"]].values.tolist() == [["zvf", 3, 3]] and table["inside"].all()
    assert sentence(table, 0.95) == "All 3 runs made here have the atlas's bits"


def test_other_runs_are_held_to_the_prediction_interval():
    atlas = curves({"grpo": GRPO, "zvf": ZVF, "pods": PODS})
    near, far = [value + 0.005 for value in ZVF], [value - 0.1 for value in PODS]
    table = repeated(curves({"grpo": GRPO, "zvf": near, "pods": far}), atlas, SETTINGS).set_index("arm")
    difference = np.subtract(ZVF, GRPO)
    half = 2.7764 * difference.std(ddof=1) * np.sqrt(1 / 5 + 1 / 5)  # t of four degrees of freedom
    assert table.loc["zvf", "low"] == pytest.approx(difference.mean() - half, abs=1e-4)
    assert table["inside"].to_dict() == {"zvf": True, "pods": False} and table["same_bits"].sum() == 0
    assert "1 of 2 differences from the baseline lie inside the 95% prediction intervals" in sentence(table, 0.95)


def test_prediction_intervals_hold_their_level():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 4000, 5))
    _, low, high = predicted(first, 5, 0.95)
    assert ((low <= second.mean(1)) & (second.mean(1) <= high)).mean() == pytest.approx(0.95, abs=0.012)


def test_one_difference_in_twenty_outside_is_plausible_and_one_in_four_is_not():
    assert plausible(1, 20, 0.95) and plausible(3, 20, 0.95) and not plausible(5, 20, 0.95)


def test_the_atlas_s_runs_are_read_as_the_study_s(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ATLAS_DATA", tmp_path)
    names = {f"steps/a/{arm}/{seed}": (arm, seed) for seed in (1, 0) for arm in ("zvf", "grpo")}
    keys = [{"run": name, "arm": arm, "seed": seed} for name, (arm, seed) in names.items()]
    write_parquet(pd.DataFrame(keys), tmp_path / "steps/runs.parquet")
    rows = [{"run": name, "step": step, "accuracy": np.float32(0.1)} for name in names for step in (0, 4)]
    write_parquet(pd.DataFrame(rows).astype({"accuracy": "float32"}), tmp_path / "steps/curves.parquet")
    settings = SETTINGS.with_arms({"grpo": "grpo", "zvf": "zvf"}).model_copy(
        update={"atlas_panel": "steps", "seeds": [0, 1]}
    )
    write_json(panel.made_with(settings), tmp_path / "steps/settings.json")
    panel.check(settings)
    table = runs.study("evaluations", settings)
    assert table[["arm", "seed", "step"]].values.tolist() == [
        [arm, seed, step] for arm in ("grpo", "zvf") for seed in (0, 1) for step in (0, 4)
    ]
    assert table["accuracy"].dtype == "float64"
    more = settings.model_copy(update={"seeds": [0, 7]})
    with pytest.raises(ValueError, match="panel steps has no run of grpo with seed 7: `make atlas PANEL=steps`"):
        runs.study("evaluations", more)
    with pytest.raises(SettingsError, match="seeds: the atlas's panel steps lacks runs with seed 7: set atlas_panel"):
        panel.check(more)
    longer = settings.model_copy(update={"engine": settings.engine.model_copy(update={"steps": 9})})
    with pytest.raises(SettingsError, match=r"engine.steps is not what the runs of the atlas's panel steps were made"):
        panel.check(longer)


def test_a_changed_arm_is_read_from_the_runs_made_here_and_one_of_the_atlas_alone_is_refused():
    settings = settings_module.load(scale="cpu")
    panel.check(settings)
    assert set(settings.compared_arms) == set(panel.arms_of(settings)) and len(settings.atlas_arms) > 40
    changed = {"dr-grpo": settings.arms["dr-grpo"].model_copy(update={"aggregation": "token-mean"})}
    other = settings.model_copy(update={"arms": {**settings.arms, **changed}})
    panel.check(other)
    assert set(settings.compared_arms) - set(panel.arms_of(other)) == {"dr-grpo"}
    changed = {"pods-32": settings.atlas_arms["pods-32"].model_copy(update={"aggregation": "token-mean"})}
    with pytest.raises(SettingsError, match=r"atlas_arms.pods-32 is not the arm .* has runs of: move it to arms"):
        panel.check(settings.model_copy(update={"atlas_arms": {**settings.atlas_arms, **changed}}))
    reworded = {"pods-32": settings.atlas_arms["pods-32"].model_copy(update={"title": "Another"})}
    panel.check(settings.model_copy(update={"atlas_arms": {**settings.atlas_arms, **reworded}}))
