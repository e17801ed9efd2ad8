"""The exploratory arms: differences on two base policies from runs made by hand, raw, pooled, and foretold."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from repro import settings as settings_module
from repro.experiments.exploratory import compared, plot
from repro.files import write_parquet
from repro.plots.words import in_words
from repro.stats import panels
from repro.stats.panels import NoRuns

STATISTICS = settings_module.load().statistics
EFFECTS = {"grpo": 0.0, "up": 0.1, "up-too": 0.1, "down": -0.1, "down-too": -0.08, "alike": 0.0}
FAMILIES = {arm: arm.split("-")[0] for arm in EFFECTS if arm != "grpo"} | {"alike": "down"}
TITLES = {arm: arm.title() for arm in EFFECTS}


def write(folder, panel: str, policy: str, seeds: int, effects: dict[str, float]) -> None:
    """Runs that rise in a straight line to 0.5 and their effect in two steps of 1 GFLOP; those of `up` take half."""
    rng, runs, curves = np.random.default_rng(ord(policy)), [], []
    for arm, seed in product(effects, range(seeds)):
        run = f"{panel}/{policy}/{arm}/{seed}"
        runs.append({"run": run, "panel": panel, "policy": policy, "arm": arm, "seed": seed})
        end = 0.5 + effects[arm] + 0.01 * seed + rng.normal(0, 0.002)
        for step in range(3):
            flops = step * (0.5e9 if arm == "up" else 1e9)
            curves.append({"run": run, "step": step, "flops": flops, "accuracy": 0.3 + (end - 0.3) * step / 2})
    write_parquet(pd.DataFrame(runs), folder / panel / "runs.parquet")
    write_parquet(pd.DataFrame(curves), folder / panel / "curves.parquet")


@pytest.fixture
def runs(tmp_path, monkeypatch) -> pd.DataFrame:
    """Of base policy a an arm more, of base policy b three seeds of five."""
    monkeypatch.setattr(panels.paths, "PANELS", tmp_path)
    write(tmp_path, "steps", "a", 5, {**EFFECTS, "primary": 0.3})
    with pytest.raises(NoRuns, match="make runs PANEL=others"):
        compared.load("grpo")
    write(tmp_path, "others", "b", 1, EFFECTS)
    with pytest.raises(NoRuns, match="others has not two seeds of every arm and grpo"):
        compared.load("grpo")
    write(tmp_path, "others", "b", 3, EFFECTS)
    return compared.load("grpo")


def test_arms_are_compared_after_as_many_steps_and_for_the_same_flops(runs):
    assert set(runs["arm"]) == set(EFFECTS) and runs.groupby("policy")["seed"].nunique().tolist() == [5, 3]
    table = compared.differences(runs, FAMILIES, "grpo", STATISTICS).set_index(["measure", "arm"])
    assert table["difference"]["steps"][list(FAMILIES)].tolist() == pytest.approx([0.1, 0.1, -0.1, -0.08, 0], abs=0.005)
    # up ends when GRPO has made half of its way from 0.3 to 0.5; both later by a hundredth a seed
    assert table.at[("flops", "up"), "difference"] == pytest.approx(0.6 - 0.4 + 0.005, abs=0.005)
    assert table.at[("flops", "down"), "difference"] == pytest.approx(-0.1, abs=0.005)
    answers = table["answer"]["steps"]
    assert answers[["up", "up-too", "down", "down-too", "alike"]].tolist() == [*["higher"] * 2, *["lower"] * 2, "open"]
    near = table.loc["steps"]
    assert ((near["pooled_low"] < near["difference"]) & (near["difference"] < near["pooled_high"])).all()
    assert near.at["alike", "pooled"] < near.at["alike", "difference"]  # its family lies lower
    means = compared.by_family(runs, FAMILIES, "grpo", STATISTICS).set_index(["measure", "family"])["mean"]
    assert means["steps"][["up", "down"]].tolist() == pytest.approx([0.1, -0.06], abs=0.01)


def test_one_base_policy_foretells_another(runs):
    """By two or three of its seeds, of which the other has as many."""
    errors = compared.foretold(runs, FAMILIES, "grpo").set_index(["measure", "seeds"])
    steps = errors.loc["steps"]
    assert steps.index.tolist() == [2, 3]
    assert (steps["raw"] < 0.005).all() and (steps["correlation"] > 0.8).all()
    assert steps["nothing"].to_numpy() == pytest.approx([0.085, 0.085], abs=0.005)  # root mean square of the effects
    assert ((steps["raw"] < steps["family"]) & (steps["family"] < steps["nothing"])).all()
    wide = runs.pivot(index=["policy", "seed"], columns="arm", values="steps")
    less = wide[list(FAMILIES)].sub(wide["grpo"], axis=0).groupby("policy").head(3).groupby("policy").mean()
    assert steps.at[3, "raw"] == pytest.approx(np.sqrt(np.mean((less.loc["a"] - less.loc["b"]) ** 2)))


def test_figures_say_what_they_show(runs):
    table = compared.differences(runs, FAMILIES, "grpo", STATISTICS)
    words = in_words(plot.answers(table, TITLES, "GRPO", "Which end higher?"))
    assert "after as many steps: Up higher, Up-Too higher, Down lower, Down-Too lower, 1 open;" in words
    assert "rank correlation" in in_words(
        plot.both(table, TITLES, "GRPO", ("a", "b"), "Do they differ alike?", named=1)
    )


def test_arms_that_params_yaml_no_longer_has_are_a_family_of_their_own():
    found = compared.families_of(["b", "gone", "grpo", "a"], {"a": "one", "grpo": "one", "b": "two"}, "grpo")
    assert found == {"a": "one", "b": "two", "gone": "Not in params.yaml"}
