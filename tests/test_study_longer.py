"""Longer runs: known curves are found again, and what is still being made is left out."""

import numpy as np
import pandas as pd
import pytest

from repro import settings as settings_module
from repro.experiments.longer import ends, plot
from repro.files import write_parquet
from repro.plots.words import in_words
from repro.stats import panels
from repro.stats.panels import NoRuns
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
                    pd.DataFrame(
                        {
                            **own,
                            "step": range(30),
                            "samples": 2,
                            "gflop": gflop_E,
                            "flops": 1e9 * gflop_E,
                            "accuracy": seen_E,
                        }
                    )
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
    assert found["answer"]["factor"].to_dict() == {"higher": "lower", "faster": "lower"}  # either needs less
    alike = ends.measured(curves(0.0).query("arm != 'higher'"), ["grpo", "faster"]).groupby("arm")["factor"].mean()
    assert np.exp(alike["faster"]) == pytest.approx(0.5, rel=1e-3)
    known = curve(np.array([600.0, 800.0]), 0.3, 0.6, 100.0, 1.2)
    exact = ends.measured(curves(0.0), list(ENDS)).groupby("arm")[["flops", "steps"]].mean()
    assert exact.loc["grpo"].to_numpy() == pytest.approx(known, abs=1e-3)  # 600 GFLOP, all of the most economical run
    figure = plot.parameters(
        table, {"asymptote": "asymptote", "half": "half cost"}, {arm: arm for arm in ENDS if arm != "grpo"}, "?"
    )
    assert in_words(figure).startswith("asymptote: higher higher; half cost: ")


def fits(table: pd.DataFrame) -> dict:
    return {policy: ends.fitted(own, list(ENDS)) for policy, own in table.groupby("policy")}


def test_an_arm_that_has_not_made_half_of_its_rise_has_no_asymptote():
    table = curves(0.0)
    assert ends.untold(table, fits(table), list(ENDS)) == []
    begun = table.query("arm != 'higher' or gflop < 90")
    assert ends.untold(begun, fits(begun), list(ENDS)) == ["higher"]
    found = ends.differences(ends.measured(begun, list(ENDS)), ["higher", "faster"], "grpo", STATISTICS, ["higher"])
    assert set(found.query("measure == 'asymptote'")["arm"]) == {"faster"}
    assert set(found.query("measure == 'steps'")["arm"]) == {"higher", "faster"}


def test_differences_on_the_way():
    table = curves(0.01).assign(share=lambda rows: rows["gflop"] / 400)
    found = ends.on_the_way(table, ["higher", "faster"], "grpo", (0.5, 1.5), STATISTICS).set_index(["arm", "share"])
    found = found.loc["faster"]
    since, found = found["since"], found["difference"]
    assert since.to_list() == pytest.approx([0.0, found[1.5] - found[0.5]])
    at_200, at_600 = (curve(600 * np.r_[1, 1] / scale, 0.3, 0.6, np.array([50, 100]), 1.2) for scale in (3, 1))
    assert found.to_list() == pytest.approx([at_200[0] - at_200[1], at_600[0] - at_600[1]], abs=0.01)


def test_without_runs_it_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(panels.paths, "PANELS", tmp_path)
    with pytest.raises(NoRuns, match="make runs PANEL=longer"):
        ends.load()
    keys = [("a", "grpo"), ("a", "zvf"), ("b", "grpo")]  # of b an arm is missing
    runs = pd.DataFrame([{"run": f"{policy}/{arm}", "policy": policy, "arm": arm, "seed": 0} for policy, arm in keys])
    write_parquet(runs, tmp_path / ends.PANEL / "runs.parquet")
    write_parquet(runs[["run"]].assign(step=0, flops=2e9), tmp_path / ends.PANEL / "curves.parquet")
    table = ends.load()
    assert set(table["policy"]) == {"a"} and set(table["gflop"]) == {2.0}
