"""The mixes: what equation 8 predicts, one factor for a whole curve, differences and rankings. By hand."""

import json

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from repro import settings as settings_module
from repro.experiments.mixes import compared, made, plot, saving
from repro.files import Unreadable, write_parquet
from repro.plots.words import in_words
from repro.runs import design as designs
from repro.runs.batches import batches
from repro.stats import panels
from repro.stats.panels import NoRuns
from repro.stats.saturation import curve, scaled

STATISTICS = settings_module.load().statistics


def test_the_mixes_are_those_of_the_design_and_an_arm_of_each_is_trained_on_its_queries():
    design = designs.load()
    assert list(made.declared()) == design.panels[made.PANEL].vary["mix"]
    for cell in designs.cells(design, [made.PANEL]):
        mix = made.declared()[dict(cell.varied)["mix"]]
        families = designs.settings_of(design, cell).task.families
        assert {name: family.share for name, family in families.items()} == mix.shares
        break
    assert made.shares().drop(columns="about").sum(axis=1).to_numpy() == pytest.approx(1.0)


def test_the_prediction_is_equation_8_of_the_two_ways_to_draw():
    advantage_N, cost_N = np.array([1.0, -2.0, 0.0, 0.5]), np.array([4.0, 9.0, 25.0, 1.0])
    table = batches(pd.DataFrame({"step": 0, "advantage": advantage_N, "cost": cost_N}))

    def eq_8(p_N: np.ndarray) -> float:
        drawn_N = p_N > 0
        return (p_N @ cost_N) * (advantage_N[drawn_N] ** 2 / p_N[drawn_N]).sum()

    optimal_N = np.abs(advantage_N) / np.sqrt(cost_N)
    assert made.predicted(table) == pytest.approx(eq_8(optimal_N / optimal_N.sum()) / eq_8(np.full(4, 0.25)))
    assert np.isnan(made.predicted(table.assign(square=0.0))).all()


def test_an_arm_that_needs_half_of_the_tokens_is_found_to():
    cost_E = np.tile(np.linspace(0.1, 3, 12), 2)
    arm_N = np.repeat([0, 1], 12)
    accuracy_E = curve(cost_E / np.array([1.0, 0.5])[arm_N], 0.3, 0.6, 0.8, 1.2)
    assert scaled(cost_E, accuracy_E, arm_N, 0.3) == pytest.approx([1.0, 0.5], rel=1e-4)
    with pytest.raises(ValueError, match="cost above 0; one has 0"):
        scaled(cost_E - 0.1, accuracy_E, arm_N, 0.3)


def runs(factors: dict[str, float]) -> pd.DataFrame:
    """Curves, with noise, of arms that need these factors of the base's tokens: two mixes, two policies, five seeds."""
    rng, rows = np.random.default_rng(0), []
    for mix in ("one", "two"):
        for policy in ("a", "b"):
            for arm, factor in factors.items():
                for seed in range(5):
                    cost_E = np.linspace(0, 3, 12)
                    seen_E = curve(cost_E / factor, 0.3, 0.6, 0.8, 1.2) + np.r_[0, rng.normal(0, 0.004, 11)]
                    own = {"mix": mix, "policy": policy, "arm": arm, "seed": seed, "run": f"{mix}{policy}{arm}{seed}"}
                    named = {"step": range(12), "samples": 2, "paper_tokens": cost_E, "flops": cost_E + 1}
                    rows.append(pd.DataFrame({**own, **named, "accuracy": seen_E}))
    return pd.concat(rows, ignore_index=True)


def test_the_factor_and_its_interval_over_seeds():
    found = saving.measured(
        runs({"base": 1.0, "half": 0.5, "same": 1.0}), ["half", "same"], "base", "paper_tokens", 0.95
    )
    assert len(found) == 8
    truth = found["arm"].map({"half": 0.5, "same": 1.0})
    assert found["factor"].to_numpy() == pytest.approx(truth, rel=0.06)
    assert ((found["factor_low"] < truth) & (truth < found["factor_high"])).sum() >= 7
    assert (found["factor_high"] / found["factor_low"]).max() < 1.3


def test_over_places_the_slope_is_one_where_the_equation_holds():
    described = pd.DataFrame({"mix": list("pqr"), "policy": "a", "factor": [0.25, 0.5, 1.0]})
    exact = described.assign(factor=[0.5, 1.0, 2.0], factor_low=0.1, factor_high=3.0)
    both = saving.beside(pd.concat([exact.assign(arm="drawn"), exact.assign(arm="grpo")]), described, ["drawn"])
    drawn, other = saving.over_places(both, 0.95).itertuples()
    assert (drawn.predicted, drawn.factor, other.predicted) == pytest.approx((0.5, 1.0, 1.0))
    assert (drawn.slope, drawn.slope_low, drawn.slope_high) == pytest.approx((1.0, 1.0, 1.0))
    assert np.isnan(other.slope) and np.isnan(saving.over_places(both[:2], 0.95).iloc[0]["slope"])


def test_differences_by_steps_and_by_flops_and_the_figures_say_them():
    curves = runs({"grpo": 1.0, "fast": 0.5, "like": 1.0})
    outcomes = compared.outcomes(curves)
    fast = outcomes[outcomes["arm"] == "fast"]
    assert fast["steps"].mean() == pytest.approx(curve(np.array([6.0]), 0.3, 0.6, 0.8, 1.2)[0], abs=0.005)
    assert outcomes["flops"].to_numpy() == pytest.approx(outcomes["steps"])  # all spend as much
    table = compared.differences(outcomes, ["fast", "like"], "grpo", STATISTICS)
    assert table.groupby("arm")["answer"].agg(set).to_dict() == {"fast": {"higher"}, "like": {"open"}}
    cheap = curves.assign(flops=curves["flops"] * np.where(curves["arm"] == "fast", 2.0, 1.0))
    halved = compared.outcomes(cheap).groupby("arm")["flops"].mean()
    assert halved["fast"] < fast["steps"].mean() - 0.02  # as accurate as when it had spent what the others spend in all
    taus = compared.agreement(outcomes)
    assert set(taus["mix"] == taus["other"]) == {True, False} and taus["tau"].between(-1, 1).all()
    titles, names = {"one": "mix one", "two": "mix two"}, {arm: arm.title() for arm in ("grpo", "fast", "like")}
    figure = plot.differences(table, ["fast", "like"], titles, names, "Alike?")
    assert "Fast higher on mix one" in in_words(figure)
    described = pd.DataFrame({"mix": ["one", "two"], "policy": "a", "factor": [0.5, 0.8]})
    measured = saving.measured(curves, ["fast"], "grpo", "paper_tokens", 0.95)
    figure = plot.savings(saving.beside(measured, described, ["fast"]), ["fast"], titles, names, "Saved?")
    assert "Fast: predicted 0.50 to 0.80, measured 0.50 to 0.50" in in_words(figure)


def test_mixes_that_are_still_being_made_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(panels.paths, "PANELS", tmp_path)
    with pytest.raises(NoRuns, match="make runs PANEL=mixes"):
        made.load("curves")
    cells = [("few-silent", "a", arm) for arm in ("grpo", "zvf")] + [("many-silent", "a", "grpo")]
    cells += [("length-blind", policy, arm) for policy in "ab" for arm in ("grpo", "zvf")]
    table = pd.DataFrame(
        [
            {"run": "".join(cell), "policy": cell[1], "arm": cell[2], "seed": 0, "varied": json.dumps({"mix": cell[0]})}
            for cell in cells
        ]
    )
    write_parquet(table, tmp_path / "mixes/runs.parquet")
    write_parquet(table[["run"]].assign(step=0), tmp_path / "mixes/curves.parquet")
    kept = made.load("curves")[["mix", "policy", "arm"]].agg(" ".join, axis=1).tolist()
    assert kept == [f"{mix} a {arm}" for mix in ("few-silent", "length-blind") for arm in ("grpo", "zvf")]
    write_parquet(table.assign(varied="{}"), tmp_path / "mixes/runs.parquet")
    with pytest.raises(Unreadable, match="does not say its mix"):
        made.load("curves")


def test_the_primaries_of_settings_and_design_are_the_same():
    assert designs.load().groups["primaries"] == settings_module.load(ROOT / "params.yaml").primaries
