"""Methods compared for the same cost: what is read off runs, the answers, and whether intervals hold."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import false_discovery_control, t

from repro import paths
from repro.experiments import equal_cost as front
from repro.settings import Statistics
from repro.stats.answers import answered
from repro.stats.calibration import calibration, foretold, repeated
from repro.stats.multiplicity import holm
from repro.stats.outcomes import compare, reached
from repro.stats.panels import RATE, NoRuns

STATISTICS = Statistics(confidence=0.95, levels=[0.9], resamples=100, seed=0)
FAMILIES = {"first": ["up", "level"], "second": ["down", "wild", "absent"]}


def runs_of(effects: dict[str, tuple[float, float]], seed: int = 0) -> pd.DataFrame:
    """{arm: (mean difference to the baseline, its scatter)}, four base policies of five seeds."""
    rng, rows = np.random.default_rng(seed), []
    for policy in "abcd":
        for number in range(5):
            base = rng.normal(0.4, 0.02)
            rows.append({"policy": policy, "arm": "grpo", "seed": number, "at_1": base})
            for arm, (mean, scatter) in effects.items():
                rows.append({"policy": policy, "arm": arm, "seed": number, "at_1": base + rng.normal(mean, scatter)})
    return pd.DataFrame(rows)


EFFECTS = {"up": (0.05, 0.01), "level": (0.0, 0.004), "down": (-0.1, 0.02), "wild": (0.0, 0.08)}


def test_answers_follow_the_interval_and_the_corrected_p():
    table = runs_of(EFFECTS)
    begun = table[(table["arm"] == "up") & (table["policy"] == "a")].assign(arm="absent")  # elsewhere still to be made
    table = front.on_every_policy(pd.concat([table, begun], ignore_index=True), "grpo")
    found = answered(table, "at_1", FAMILIES, "grpo", STATISTICS)
    assert list(found.index) == ["up", "level", "down", "wild"]  # `absent` is not on every base policy
    assert list(found["answer"]) == ["higher", "equal", "lower", "inconclusive"]
    fit = compare(table, "at_1", list(found.index), "grpo")
    p_A = fit.p_values()
    assert found["adjusted"].to_numpy() == pytest.approx([*holm(p_A[:2]), *false_discovery_control(p_A[2:])])
    assert found.loc["up", "agree"] == 4
    assert (found["predicted_low"] < found["difference_low"]).all()


def test_without_the_first_family_nothing_is_corrected_by_holm():
    table = runs_of({arm: EFFECTS[arm] for arm in ("down", "wild")})
    found = answered(table, "at_1", FAMILIES, "grpo", STATISTICS)
    p_A = compare(table, "at_1", ["down", "wild"], "grpo").p_values()
    assert found["adjusted"].to_numpy() == pytest.approx(false_discovery_control(p_A))


def test_a_single_policys_means_are_differences_over_its_seeds():
    table = runs_of(EFFECTS)
    own = answered(table, "at_1", FAMILIES, "grpo", STATISTICS)["by_policy"]["up"]
    of_c = table[table["policy"] == "c"].set_index(["arm", "seed"])["at_1"]
    assert own["abcd".index("c")] == pytest.approx((of_c["up"] - of_c["grpo"]).mean())


@pytest.fixture
def panels_of_two(tmp_path, monkeypatch):
    """Two panels: each run climbs from 0.2 by its seed's slope per share of the budget, to a share of 1.5."""
    monkeypatch.setattr(paths, "PANELS", tmp_path)
    for panel, varied in {"budget": {}, "tuned": {RATE: 1e-4}}.items():
        (tmp_path / panel).mkdir()
        runs, curves = [], []
        for policy, arm, seed in [(p, a, s) for p in "ab" for a in ("grpo", "zvf") for s in (0, 1)]:
            name = f"{panel}/{policy}/{arm}/{seed}"
            facts = {"run": name, "panel": panel, "policy": policy, "arm": arm, "seed": seed}
            runs.append(facts | {"varied": json.dumps(varied)})
            slope = 0.1 + 0.1 * (arm == "zvf") + 0.02 * seed
            for share in (0.0, 0.75, 1.5):
                spent = {"flops": share, "trained_tokens": 10 * share, "paper_tokens": 20 * share}
                curves.append(
                    {"run": name, "share": share, "accuracy": 0.2 + slope * share, "diverged": False, **spent}
                )
        pd.DataFrame(runs).to_parquet(tmp_path / panel / "runs.parquet")
        pd.DataFrame(curves).to_parquet(tmp_path / panel / "curves.parquet")


def test_runs_are_read_at_their_rate_and_at_the_budget(panels_of_two):
    shared, own = reached(["budget"], 2e-4), reached(["tuned"], 2e-4)
    assert set(shared["rate"]) == {2e-4} and set(own["rate"]) == {1e-4}
    zvf = shared.set_index("run").loc["budget/a/zvf/1"]
    assert zvf["at_1"] == pytest.approx(0.42) and zvf["at_1.5"] == pytest.approx(0.53)
    assert zvf["paper_tokens_at_1"] == pytest.approx(20)
    both = front.at_best(shared, own, {"grpo": 1e-4, "zvf": 2e-4})
    assert set(both.loc[both["arm"] == "grpo", "panel"]) == {"tuned"}
    assert set(both.loc[both["arm"] == "zvf", "panel"]) == {"budget"}


def test_without_runs_it_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "PANELS", tmp_path)
    with pytest.raises(NoRuns, match="make runs PANEL=budget"):
        reached(["budget"], 2e-4)


def test_intervals_that_know_of_base_policies_hold_and_those_of_one_do_not():
    """Of 30 panels in which base policies differ by as much as five seeds' means or more."""
    rng, rows = np.random.default_rng(0), []
    for _ in range(30):
        own_A_P = rng.normal(0, 0.03, (11, 4))
        base_P_S = rng.normal(0, 0.02, (4, 5))
        rows.append(calibration(own_A_P[..., None] + rng.normal(0, 0.02, (11, 4, 5)) - base_P_S, 0.95))
    held = pd.DataFrame([of["contained"] for of in rows]).mean()
    half = pd.DataFrame([of["half"] for of in rows]).mean()
    assert half["other policy"] > half["other half"] > half["one policy, mean"]
    sure = calibration(0.1 + rng.normal(0, 0.001, (11, 4, 5)), 0.95)
    assert (sure["signed"] == 1).all() and (sure["half"] < 0.05).all()
    assert held["other seeds"] == pytest.approx(0.95, abs=0.03)
    assert held["other policy"] == pytest.approx(0.95, abs=0.03)
    assert held["other half"] == pytest.approx(0.95, abs=0.03)
    assert held["one policy, mean"] < held["one policy, predicted"] < 0.8
    with pytest.raises(ValueError, match="runs on 3 base policies"):
        calibration(np.zeros((3, 3, 5)), 0.95)


def test_a_baseline_that_is_run_again_lies_where_its_first_seeds_predict():
    first = pd.DataFrame({"policy": list("aaab"), "at_1": [0.3, 0.4, 0.5, 0.2]})
    first = pd.concat([first, first.tail(1).assign(at_1=0.2)])
    again = pd.DataFrame({"policy": list("aabb"), "at_1": [0.4, 0.5, 0.2, 0.3]})
    table = repeated(first, again, "at_1", 0.95)
    half = t.ppf(0.975, 2) * 0.1 * (1 / 3 + 1 / 2) ** 0.5
    assert table.loc["a"].tolist() == pytest.approx([0.4, 0.1, 0.4 - half, 0.4 + half, 0.45])
    assert table.loc["b", ["scatter", "low", "again"]].tolist() == pytest.approx([0.0, 0.2, 0.25])


def test_what_four_base_policies_foretell_of_others_is_held_against_them():
    """Of two new base policies of three seeds, one is like the others and one is not."""
    first, others = runs_of(EFFECTS), runs_of(EFFECTS, seed=1)
    later = others[(others["policy"] <= "b") & (others["seed"] < 3)].replace({"policy": {"a": "e", "b": "f"}})
    later.loc[(later["policy"] == "f") & (later["arm"] == "up"), "at_1"] -= 0.2
    table = foretold(first, pd.concat([later, first[first["policy"] == "a"]]), ["up", "level"], "grpo", "at_1", 0.95)
    assert table.index.tolist() == [("up", "e"), ("up", "f"), ("level", "e"), ("level", "f")]
    assert table["inside"].tolist() == [True, False, True, True]
    fit = compare(first, "at_1", ["up", "level"], "grpo")
    low_A, high_A = fit.prediction(0.95, 3)
    assert table.loc[("up", "e"), ["low", "high"]].tolist() == pytest.approx([low_A[0], high_A[0]])
    wide = later[later["policy"] == "e"].pivot(index="seed", columns="arm", values="at_1")
    assert table.loc[("level", "e"), "mean"] == pytest.approx((wide["level"] - wide["grpo"]).mean())


def test_the_latest_answer_of_an_arm_is_that_of_the_study_that_asked_again():
    first, again = runs_of(EFFECTS), runs_of({"down": (0.0, 0.004), "up": (0.05, 0.01)}, seed=1)
    answers = {
        name: answered(runs, "at_1", FAMILIES, "grpo", STATISTICS)
        for name, runs in {front.OWN: first, front.AGAIN: again}.items()
    }
    last = front.latest(answers)
    assert last["study"].to_dict() == {
        "up": front.AGAIN,
        "level": front.OWN,
        "down": front.AGAIN,
        "wild": front.OWN,
    }
    assert (answers[front.OWN].at["down", "answer"], last.at["down", "answer"]) == ("lower", "equal")
