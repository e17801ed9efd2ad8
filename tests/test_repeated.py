"""A machine's own runs against those in git: a repetition is told from another method."""

import numpy as np
import pandas as pd
import pytest

from repro import settings as settings_module
from repro.experiments.results.repeated import repeated, sentence
from repro.pipeline.verify import plausible
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
    stored = curves({"grpo": GRPO, "zvf": ZVF})
    table = repeated(stored[stored["seed"] < 3], stored, SETTINGS)
    assert table[["arm", "seeds", "same_bits"]].values.tolist() == [["zvf", 3, 3]] and table["inside"].all()
    assert sentence(table, 0.95) == "All 3 runs made here have the bits of those in git"


def test_other_runs_are_held_to_the_prediction_interval():
    stored = curves({"grpo": GRPO, "zvf": ZVF, "pods": PODS})
    near, far = [value + 0.005 for value in ZVF], [value - 0.1 for value in PODS]
    table = repeated(curves({"grpo": GRPO, "zvf": near, "pods": far}), stored, SETTINGS).set_index("arm")
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
