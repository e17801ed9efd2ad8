"""Arms compared over base policies and seeds, from runs made by hand: any factor, any price, any measure."""

import json
from itertools import product

import numpy as np
import pandas as pd
import pytest

from repro.files import Unreadable, write_parquet
from repro.stats import compare, panels
from repro.stats.compare import Less
from repro.stats.intervals import t_intervals
from repro.stats.panels import NoRuns
from repro.stats.saturation import curve

GROUP, WEIGHT = ("a.group", int, 0), ("a.weight", str)
BY_GROUP = {0: 0.40, 2: 0.42, 8: 0.45, 32: 0.41}


def write(folder, policies: dict[str, float]) -> None:
    """Runs that end at BY_GROUP, more with weight `b` by 0.02 and by the base policy, less by 0.01 a step before; those
    with groups of 32 spend twice as much a step. Of base policy c one run is missing."""
    runs, curves = [], []
    for policy, group, weight, seed in product(policies, BY_GROUP, "ab", range(2)):
        if (policy, group, weight, seed) == ("c", 32, "b", 1):
            continue
        panel = "with" if group else "without"
        run = f"{panel}/{policy}/{group}/{weight}/{seed}"
        varied = {"a.weight": weight} | ({"a.group": group} if group else {})
        known = {"policy": policy, "arm": "sgpo", "seed": seed, "varied": json.dumps(varied)}
        runs.append({"run": run, "panel": panel, **known})
        end = BY_GROUP[group] + 0.02 * (weight == "b") + policies[policy] + 0.001 * seed
        for step, accuracy in ((0, 0.3), (1, end - 0.01), (2, end)):
            curves.append({"run": run, "step": step, "accuracy": accuracy, "flops": step * (2 if group == 32 else 1)})
    runs, curves = pd.DataFrame(runs), pd.DataFrame(curves)
    for panel in ("with", "without"):
        write_parquet(runs[runs["panel"] == panel], folder / panel / "runs.parquet")
        write_parquet(curves[curves["run"].str.startswith(f"{panel}/")], folder / panel / "curves.parquet")


def test_levels_of_crossed_factors_after_as_many_steps_and_for_the_same_flops(tmp_path, monkeypatch):
    monkeypatch.setattr(panels.paths, "PANELS", tmp_path)
    with pytest.raises(NoRuns, match="make runs PANEL=with"):
        compare.load(["with", "without"])
    write(tmp_path, {"a": 0.0, "b": 0.1, "c": 0.0})
    runs = compare.load(["with", "without"], {"group": GROUP, "weight": WEIGHT})
    assert len(runs) == 2 * 4 * 2 * 2 and set(runs["policy"]) == {"a", "b"}
    table = runs.join(compare.at_ends(compare.rows("curves", runs)), on="run")
    asked = [Less([0, 2, 32], 8, "group"), Less(["b"], "a", "weight")]
    found = compare.contrasts(table, ["steps", "flops"], asked, 0.95).set_index(["measure", "level"])["difference"]
    assert found["steps"].to_list() == pytest.approx([-0.05, -0.03, -0.04, 0.02])
    assert found["flops", 32] == pytest.approx(-0.05)  # when the others have ended it is where its first step ends
    own = compare.contrasts(table, ["steps"], asked[:1], 0.95, within="weight")
    assert own[["weight", "level"]].agg(tuple, axis=1).to_list() == list(product("ab", (0, 2, 32)))
    write_parquet(pd.read_parquet(tmp_path / "with/runs.parquet").assign(varied="{}"), tmp_path / "with/runs.parquet")
    with pytest.raises(Unreadable, match=r"with/a/2/a/0 does not say its a\.weight"):
        compare.load(["with"], {"weight": WEIGHT})


def test_a_mean_over_a_crossed_factor_has_as_many_places_as_base_policies():
    """Five mixes move the arm alike on a base policy: twenty places would say far more than four."""
    rng, rows = np.random.default_rng(0), []
    for place, (policy, moved) in enumerate(zip("abcd", rng.normal(0.02, 0.02, 4), strict=True)):
        for mix, seed in product("vwxyz", range(3)):
            base = 0.4 + 0.01 * place
            rows.append({"policy": policy, "mix": mix, "seed": seed, "arm": "grpo", "at": base})
            rows.append({"policy": policy, "mix": mix, "seed": seed, "arm": "zvf", "at": base + moved})
    table = pd.DataFrame(rows)
    row = compare.differences(table, ["at"], ["zvf"], "grpo", 0.95).iloc[0]
    less = table.pivot_table(index=["policy", "mix"], columns="arm", values="at").diff(axis=1)["zvf"]
    ends = t_intervals(less.groupby("policy").mean().to_numpy()[None], 0.95)
    assert [row["difference"], row["difference_low"], row["difference_high"]] == pytest.approx([end[0] for end in ends])
    as_if = t_intervals(less.to_numpy()[None], 0.95)
    assert as_if[2][0] - as_if[1][0] < (ends[2][0] - ends[1][0]) / 2


def test_each_arm_can_have_a_reference_of_its_own_and_holm_is_over_all():
    rng = np.random.default_rng(0)
    rows = [
        {"policy": policy, "seed": seed, "arm": arm, "at": mean + rng.normal(0, 0.01)}
        for policy, seed, (arm, mean) in product("abc", range(3), {"a": 0.5, "b": 0.4, "c": 0.3}.items())
    ]
    found = compare.differences(pd.DataFrame(rows), ["at"], {"a": "b", "c": "b"}, None, 0.95, corrected="holm")
    assert found["arm"].to_list() == ["a", "c"] and found["answer"].to_list() == ["higher", "lower"]
    assert found["difference"].to_list() == pytest.approx([0.1, -0.1], abs=0.02)


def priced_runs(folder) -> pd.DataFrame:
    """At equal FLOPs alike: `dear` generates three quarters of its FLOPs, the baseline one; 1 budget in ten steps."""
    runs, curves = [], []
    for policy, arm, seed in product("ab", ("grpo", "dear"), range(2)):
        run, part = f"p/{policy}/{arm}/{seed}", 0.75 if arm == "dear" else 0.25
        runs.append({"run": run, "panel": "p", "policy": policy, "arm": arm, "seed": seed, "at_1": 0.0})
        for share in np.arange(16) / 10:
            spent = {"flops_generate": 8 * part * share, "flops_score": 2 * (1 - part) * share}
            spent |= {"flops_train": 6 * (1 - part) * share, "flops": 8 * share}
            spent |= {"trained_tokens": 1.0, "paper_tokens": 1.0, "diverged": False}
            curves.append({"run": run, "share": share, "accuracy": 0.3 + 0.1 * share, **spent})
    write_parquet(pd.DataFrame(runs), folder / "p/runs.parquet")
    write_parquet(pd.DataFrame(curves), folder / "p/curves.parquet")
    return pd.DataFrame(runs)


def test_the_price_of_generation_moves_the_budget_with_the_baselines_bill(tmp_path, monkeypatch):
    """At w the baseline's budget costs 2w + 6, and an arm that generates 6 of 8 has then spent (2w + 6)/(6w + 2)."""
    monkeypatch.setattr(panels.paths, "PANELS", tmp_path)
    runs = priced_runs(tmp_path)
    curves = compare.rows("curves", runs.drop(columns="at_1"))
    assert compare.weight_of(curves, "grpo", 0.25) == pytest.approx(1.0)
    weight = compare.weight_of(curves, "grpo", 0.75)
    assert weight == pytest.approx(9.0)  # 2w of 2w + 6
    dear = compare.priced(curves, "grpo", weight)  # as runs say that have been trained at this price
    for recorded in (curves, dear):
        without = compare.priced(recorded, "grpo", 1)
        assert np.allclose(without["share"], curves["share"]) and np.allclose(without["cost"], curves["flops"])
    for w in (1, weight, 0.1):
        table = compare.at_price(runs, "grpo", w).groupby("arm")[["at_1", "short"]].mean()
        reached = min((2 * w + 6) / (6 * w + 2), 1.5)
        assert table.loc["grpo", "at_1"] == pytest.approx(0.4)
        assert table.loc["dear", "at_1"] == pytest.approx(0.3 + 0.1 * reached)
        assert table.loc["dear", "short"] == (w == 0.1)  # it had ended before


def test_arms_that_two_panels_share_are_held_against_the_baseline_where_the_cheaper_ends(tmp_path, monkeypatch):
    """Panel q has an arm less and a seed less; `half` spends half of the baseline's, and rises as fast."""
    monkeypatch.setattr(panels.paths, "PANELS", tmp_path)
    for panel, policy, arms, seeds in (("p", "a", ("grpo", "half", "gone"), 3), ("q", "b", ("grpo", "half"), 2)):
        with pytest.raises(NoRuns, match=f"make runs PANEL={panel}"):
            compare.shared(["p", "q"], "grpo")
        runs, curves = [], []
        for arm, seed in product(arms, range(seeds)):
            known = {"run": f"{panel}{arm}{seed}", "panel": panel, "policy": policy, "arm": arm, "seed": seed}
            runs.append(known)
            for step in range(3):
                spent = step * (1.0 if arm == "half" else 2.0)
                curves.append({"run": known["run"], "step": step, "flops": spent, "accuracy": 0.3 + 0.1 * step})
        write_parquet(pd.DataFrame(runs), tmp_path / panel / "runs.parquet")
        write_parquet(pd.DataFrame(curves), tmp_path / panel / "curves.parquet")
    with pytest.raises(NoRuns, match="panel p has not two seeds of every arm and zvf"):
        compare.shared(["p", "q"], "zvf")
    table = compare.shared(["p", "q"], "grpo")
    assert set(table["arm"]) == {"grpo", "half"} and table.groupby("panel")["seed"].nunique().to_dict() == {
        "p": 3,
        "q": 2,
    }
    less = compare.less_at_the_cheaper(compare.rows("curves", table), "grpo")
    assert less.groupby(table.set_index("run")["arm"]).agg(["min", "max"]).loc["half"].to_list() == pytest.approx(
        [0.1, 0.1]
    )
    assert not less[table.loc[table["arm"] == "grpo", "run"]].any()


def test_places_that_are_still_being_made_are_left_out(tmp_path, monkeypatch):
    """Mix v lacks an arm, and base policy a has a mix more than b, on which it is whole."""
    monkeypatch.setattr(panels.paths, "PANELS", tmp_path)
    cells = [("w", "a", arm) for arm in ("grpo", "zvf")] + [("v", "a", "grpo")]
    cells += [("u", policy, arm) for policy in "ab" for arm in ("grpo", "zvf")]
    runs = pd.DataFrame(
        [
            {
                "run": "".join(cell),
                "panel": "p",
                "policy": cell[1],
                "arm": cell[2],
                "seed": 0,
                "varied": json.dumps({"mix": cell[0]}),
            }
            for cell in cells
        ]
    )
    write_parquet(runs, tmp_path / "p/runs.parquet")
    kept = compare.load(["p"], {"mix": ("mix", str)}, where=["mix", "policy"])
    assert set(kept["run"]) == {"wagrpo", "wazvf", "uagrpo", "uazvf"}
    assert set(compare.load(["p"])["arm"]) == {"grpo"}  # of base policy a there are more runs of it


def test_pass_at_k_by_run_of_the_ks_that_its_samples_allow():
    asked = pd.DataFrame({"run": list("xxyy"), "samples": 4, "successes": [0, 1, 4, 2]})
    found = compare.pass_at(asked, [1, 4, 8])
    assert found.columns.to_list() == [1, 4] and found.loc["x"].to_list() == [0.125, 0.5]


def test_an_arm_that_needs_half_of_the_cost_is_found_to_by_each_seeds_pseudo_value():
    rng, parts = np.random.default_rng(0), []
    for (policy, start), (arm, factor), seed in product(
        {"a": 0.3, "b": 0.4}.items(), {"half": 0.5, "base": 1}.items(), range(4)
    ):
        cost_E = np.linspace(0, 3, 12)
        seen_E = curve(cost_E / factor, start, 0.6, 0.8, 1.2) + np.r_[0, rng.normal(0, 0.003, 11)]
        known = {"run": f"{policy}{arm}{seed}", "policy": policy, "arm": arm, "seed": seed, "step": range(12)}
        parts.append(pd.DataFrame({**known, "samples": 2, "tokens": cost_E, "accuracy": seen_E}))
    curves = pd.concat(parts)
    found = compare.leaving_out(curves, ["policy"], lambda own: compare.factors(own, ["base", "half"], "tokens"))
    for _, seeds, factors_J_A in found:
        values_S = compare.pseudo_values(np.log(factors_J_A))[:, 1]
        assert len(values_S) == len(seeds) == 4 and np.exp(values_S.mean()) == pytest.approx(0.5, rel=0.05)


def test_pseudo_values_of_a_mean_are_the_values():
    table = pd.DataFrame({"policy": list("aaab"), "seed": [0, 1, 2, 0], "at": [0.1, 0.4, 0.7, 0.2]})
    (place, seeds, of_a), (_, _, of_b) = compare.leaving_out(table, ["policy"], lambda part: part["at"].mean())
    assert (place, seeds) == ("a", [0, 1, 2]) and compare.pseudo_values(of_a) == pytest.approx([0.1, 0.4, 0.7])
    assert of_b == pytest.approx([0.2])
