"""The claims of sGPO: every figure by hand from tables that are small enough, and what is missing is said."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from theory_cells import run_cells

from repro.experiments.claims import Study, Untestable, claims_table
from repro.experiments.claims import load as load_claims
from repro.experiments.claims import measures as by
from repro.settings import Statistics, load
from repro.stats.saturation import curve as saturating
from repro.stats.verdicts import NOTHING, OPPOSITE, SAME, SAME_SIZE, UNTESTED, at_least, frame, words

SEEDS = range(5)
STATISTICS = Statistics(levels=[0.9, 1.0], resamples=200, confidence=0.95, seed=0)
ARMS = load().all_arms
CLAIMS = [claim for claim in load_claims() if claim.paper == "sGPO"]


def evaluations(arm: str, accuracies, flops, profile=0.0) -> pd.DataFrame:
    """One row per seed and evaluation, all seeds alike; updates take 3/4 of what is not profiling, a token a FLOP."""
    rows = [
        {
            "arm": arm,
            "seed": seed,
            "step": 8 * place,
            "accuracy": accuracy,
            "flops": spent,
            "flops_profile": profile,
            "flops_train": 0.75 * (spent - profile),
            "generated_tokens": profile + 0.25 * (spent - profile),
            "trained_tokens": 0.75 * (spent - profile),
            "paper_tokens": 0.75 * (spent - profile),
            "diverged": False,
        }
        for seed in SEEDS
        for place, (accuracy, spent) in enumerate(zip(accuracies, flops, strict=True))
    ]
    return pd.DataFrame(rows)


def verdicts(**tables) -> pd.DataFrame:
    study = Study(SimpleNamespace(all_arms=ARMS, statistics=STATISTICS), **tables)
    return claims_table(study, CLAIMS).set_index("id")


def test_arms_exist_and_without_tables_nothing_is_tested():
    assert len(CLAIMS) == 37 + 2 and all(claim.id.startswith("sgpo-") for claim in CLAIMS)
    table = verdicts()
    assert (table["verdict"] == UNTESTED).all() and table["missing"].str.startswith("table ").all()


TENTHS_E = np.linspace(0, 200, 11)


def test_compute_and_accuracy_by_hand():
    base_E, costs_E = saturating(TENTHS_E, 0.2, 0.95, 100, 1), 0.6 * TENTHS_E
    own_E = saturating(costs_E, 0.2, 0.95, 25, 1)
    base = evaluations("grpo", base_E, TENTHS_E)
    own = evaluations("sgpo", own_E, 10 + costs_E, profile=10.0)
    longer = evaluations("grpo-longer", [*base_E, own_E[-1] + 0.01], [*TENTHS_E, 210])
    table = verdicts(evaluations=pd.concat([base, own, longer]))
    # GRPO ends at 0.7 after 200 FLOPs; sGPO is there 50 after its profile
    for id, ratio in {
        "sgpo-flops": 60 / 200,
        "sgpo-tokens": 60 / 200,
        "sgpo-training-flops": 0.75 * 50 / (0.75 * 200),
        "sgpo-flops-near": (10 + 37.5) / 150,  # 0.65, nine tenths of GRPO's rise
    }.items():
        assert table.loc[id, "value"] == pytest.approx(ratio, rel=1e-4)
    assert table.loc["sgpo-flops", "verdict"] == SAME_SIZE
    assert table.loc["sgpo-profile-share", "value"] == pytest.approx(10 / 130)
    assert table.loc["sgpo-profile-share", "verdict"] == SAME
    assert table.loc["sgpo-final", "value"] == pytest.approx(100 * (own_E[-1] - 0.7))
    assert table.loc["sgpo-final", "verdict"] == SAME
    assert table.loc["sgpo-equal-total", "value"] == pytest.approx(-1)
    assert table.loc["sgpo-equal-total", "verdict"] == OPPOSITE
    assert table.loc["sgpo-filter-alone", "missing"] == "evaluations of arm sgpo-filter"


def test_parts_are_held_against_sgpo_without_them_and_one_profile_against_several():
    arms = {"grpo": 0.5, "sgpo": 0.7, "sgpo-filter-allocation": 0.6, "sgpo-curriculum": 0.5, "sgpo-again-1": 0.705}
    rise_E = saturating(TENTHS_E, 0, 1.5, 100, 1)  # to 1
    parts = [evaluations(arm, 0.2 + (end - 0.2) * rise_E, TENTHS_E) for arm, end in arms.items()]
    table = verdicts(evaluations=pd.concat(parts))
    assert table.loc["sgpo-curriculum-ablated", "value"] == pytest.approx(10)
    assert table.loc["sgpo-curriculum-alone", "verdict"] == NOTHING
    part = 0.4 / 0.5 / 1.5  # of the way to sGPO's asymptote
    assert table.loc["sgpo-curriculum-flops", "value"] == pytest.approx(100 * part / (1 - part) / 200, rel=1e-4)
    assert table.loc["sgpo-again-1-final", "value"] == pytest.approx(0.5)
    assert table.loc["sgpo-again-1-final", "verdict"] == SAME  # within a point
    part = 0.5 / 0.505 / 1.5
    assert table.loc["sgpo-again-1-flops", "value"] == pytest.approx(100 * part / (1 - part) / 200, rel=1e-4)


def test_waste_and_the_drift_of_the_profile_are_those_of_the_last_checkpoint():
    steps = pd.concat(
        [
            pd.DataFrame({"arm": arm, "seed": SEEDS, "step": 0, "groups_without_signal": share})
            for arm, share in (("grpo", 0.4), ("sgpo", 0.3))
        ]
    )
    rows = [
        {"arm": arm, "seed": seed, "step": step, "spearman": 0.8 - step / 100, "corrected": 0.95, "rose_excess": 0.2}
        | {"class_changed_excess": step / 100, "size_changed_excess": 0.01 * (-1) ** seed}
        for arm in ("grpo", "sgpo")
        for seed in SEEDS
        for step in (40, 10)
    ]
    table = verdicts(steps=steps, drift=pd.DataFrame(rows))
    assert table.loc["sgpo-waste", "value"] == pytest.approx(-10) and table.loc["sgpo-waste", "verdict"] == SAME
    assert table.loc["sgpo-proxy-sgpo", "value"] == pytest.approx(0.4)
    assert table.loc["sgpo-proxy-sgpo", "verdict"] == OPPOSITE
    assert table.loc["sgpo-proxy-corrected-grpo", "verdict"] == SAME
    assert table.loc["sgpo-classes-sgpo", "value"] == pytest.approx(40)
    assert table.loc["sgpo-classes-sgpo", "verdict"] == OPPOSITE
    assert table.loc["sgpo-sizes-grpo", "verdict"] == SAME  # within five points
    assert table.loc["sgpo-moves-grpo", "verdict"] == OPPOSITE


def test_the_rule_takes_the_verdicts_of_the_theory_notebook_by_id():
    shares = {"rule-mean-advantage": 0.111, "rule-informative-groups": 0.639, "rule-greatest-advantage": 0.991}
    rows = frame(at_least(id, 0.95, share, (share, share)) for id, share in shares.items())
    theory = rows.assign(group="group_size")
    table = verdicts(theory=theory)
    expected = {
        "sgpo-rule-mean-advantage": (0.111, OPPOSITE),
        "sgpo-rule-informative": (0.639, OPPOSITE),
        "sgpo-rule-greatest-advantage": (0.991, SAME),
    }
    for id, (share, verdict) in expected.items():
        assert table.loc[id, ["value", "low", "high", "reference", "verdict"]].tolist() == [share] * 3 + [0.95, verdict]
    elsewhere = Study(SimpleNamespace(all_arms=ARMS, statistics=STATISTICS), theory=theory.assign(group="sgd"))
    with pytest.raises(Untestable, match="claim rule-informative-groups of theory group_size"):
        by.theory(elsewhere, "group_size", "rule-informative-groups")


def test_the_rule_is_right_at_the_share_that_the_theory_notebook_asks_for(tmp_path):
    cells = run_cells("group_size", tmp_path, n_groups=10, n_queries=10, n_trials=2)
    claims = {claim.id: claim for claim in CLAIMS}
    assert claims["sgpo-rule-informative"].expected.reference == cells["RIGHT"]
    theory = frame(cells["of_rule"]).assign(group="group_size")
    assert verdicts(theory=theory).loc["sgpo-rule-informative", "value"] == pytest.approx(0.639, abs=1e-3)


def test_the_theory_claims_that_are_named_exist():
    joined = [claim.measure["theory"] for claim in CLAIMS if "theory" in claim.measure]
    assert len(joined) == 3
    for place in joined:
        assert place["id"] in words(place["group"])


def test_an_arm_that_never_gets_there_is_no_saving():
    base, own = evaluations("grpo", [0.2, 0.7], [0, 100]), evaluations("sgpo", [0.2, 0.6], [0, 10])
    table = verdicts(evaluations=pd.concat([base, own]))
    assert math.isinf(table.loc["sgpo-flops", "value"]) and table.loc["sgpo-flops", "verdict"] == NOTHING
    assert np.isfinite(table.loc["sgpo-flops-near", "low"])
