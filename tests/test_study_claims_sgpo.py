"""The claims of sGPO: every figure by hand from tables that are small enough, and what is missing is said."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from theory_cells import run_cells

from repro.experiments.claims import CLAIMS, Study, claims_table, sgpo
from repro.experiments.claims import measures as by
from repro.experiments.claims.verdicts import NOTHING, OPPOSITE, SAME, SAME_SIZE, UNTESTED
from repro.settings import Statistics, load
from repro.stats.verdicts import frame as verdict_rows
from repro.stats.verdicts import with_words

SEEDS = range(5)
STATISTICS = Statistics(levels=[0.9, 1.0], resamples=200, confidence=0.95, seed=0)
ARMS = load(scale="smoke").arms


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
        }
        for seed in SEEDS
        for place, (accuracy, spent) in enumerate(zip(accuracies, flops, strict=True))
    ]
    return pd.DataFrame(rows)


def verdicts(**tables) -> pd.DataFrame:
    study = Study(SimpleNamespace(arms=ARMS, statistics=STATISTICS), **tables)
    return claims_table(study, sgpo.CLAIMS).set_index("id")


def test_ids_are_new_arms_exist_and_without_tables_nothing_is_tested():
    assert {claim.id for claim in sgpo.CLAIMS} <= {claim.id for claim in CLAIMS}
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    frame = verdicts()
    assert (frame["verdict"] == UNTESTED).all() and frame["reason"].str.startswith("no table").all()


def test_compute_and_accuracy_by_hand():
    base = evaluations("grpo", [0.2, 0.6, 0.7], [0, 100, 200])
    own = evaluations("sgpo", [0.2, 0.8, 0.81], [10, 70, 130], profile=10.0)
    longer = evaluations("grpo-longer", [0.2, 0.6, 0.7, 0.82], [0, 100, 200, 210])
    frame = verdicts(evaluations=pd.concat([base, own, longer]))
    # 0.7 lies at 5/6 of the way from 0.2 at 10 FLOPs to 0.8 at 70; GRPO is there after 200
    assert frame.loc["sgpo-flops", "value"] == pytest.approx(60 / 200)
    assert frame.loc["sgpo-tokens", "value"] == pytest.approx(60 / 200)
    assert frame.loc["sgpo-training-flops", "value"] == pytest.approx(0.75 * 50 / (0.75 * 200))
    # nine tenths of GRPO's rise, 0.65: at 10 + 60 · 0.75, and at 150
    assert frame.loc["sgpo-flops-near", "value"] == pytest.approx(55 / 150)
    assert frame.loc["sgpo-flops", "verdict"] == SAME_SIZE
    assert frame.loc["sgpo-profile-share", "value"] == pytest.approx(10 / 130)
    assert frame.loc["sgpo-profile-share", "verdict"] == SAME
    assert frame.loc["sgpo-final", "value"] == pytest.approx(11) and frame.loc["sgpo-final", "verdict"] == SAME
    assert frame.loc["sgpo-equal-total", "value"] == pytest.approx(-1)
    assert frame.loc["sgpo-equal-total", "verdict"] == OPPOSITE
    assert frame.loc["sgpo-filter-alone", "reason"] == "no evaluations of arm sgpo-filter"


def test_parts_are_held_against_sgpo_without_them_and_one_profile_against_several():
    arms = {"grpo": 0.5, "sgpo": 0.7, "sgpo-filter-allocation": 0.6, "sgpo-curriculum": 0.5, "sgpo-again-1": 0.705}
    parts = [evaluations(arm, [0.2, end], [0, 100]) for arm, end in arms.items()]
    frame = verdicts(evaluations=pd.concat(parts))
    assert frame.loc["sgpo-curriculum-ablated", "value"] == pytest.approx(10)
    assert frame.loc["sgpo-curriculum-alone", "verdict"] == NOTHING
    assert frame.loc["sgpo-curriculum-flops", "value"] == pytest.approx(0.4 / 0.5)
    assert frame.loc["sgpo-again-1-final", "value"] == pytest.approx(0.5)
    assert frame.loc["sgpo-again-1-final", "verdict"] == SAME  # within a point
    assert frame.loc["sgpo-again-1-flops", "value"] == pytest.approx(0.5 / 0.505)


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
    frame = verdicts(steps=steps, drift=pd.DataFrame(rows))
    assert frame.loc["sgpo-waste", "value"] == pytest.approx(-10) and frame.loc["sgpo-waste", "verdict"] == SAME
    assert frame.loc["sgpo-proxy-sgpo", "value"] == pytest.approx(0.4)
    assert frame.loc["sgpo-proxy-sgpo", "verdict"] == OPPOSITE
    assert frame.loc["sgpo-proxy-corrected-grpo", "verdict"] == SAME
    assert frame.loc["sgpo-classes-sgpo", "value"] == pytest.approx(40)
    assert frame.loc["sgpo-classes-sgpo", "verdict"] == OPPOSITE
    assert frame.loc["sgpo-sizes-grpo", "verdict"] == SAME  # within five points
    assert frame.loc["sgpo-moves-grpo", "verdict"] == OPPOSITE


def test_the_rule_is_judged_by_the_theory_notebooks_own_claims(tmp_path):
    cells = run_cells("group_size", tmp_path, n_groups=10, n_queries=10, n_trials=2)
    judged = with_words(verdict_rows(cells["of_rule"]), "group_size")
    found = judged.assign(group="group_size", measured=judged["value"])
    frame = verdicts(theory=found)
    rows = frame[frame.index.str.startswith("sgpo-rule-")]
    assert rows["verdict"].to_dict() == {
        "sgpo-rule-mean-advantage": OPPOSITE,
        "sgpo-rule-informative": OPPOSITE,
        "sgpo-rule-greatest-advantage": SAME,
    }
    assert cells["RIGHT"] == sgpo.RIGHT
    assert rows.loc["sgpo-rule-informative", "value"] == pytest.approx(0.639, abs=1e-3)
    missing = Study(SimpleNamespace(arms=ARMS, statistics=STATISTICS), theory=found.iloc[:0])
    with pytest.raises(by.Untestable, match="0 claims of theory group_size begin with 'x'"):
        by.theory("group_size", "x")(missing)


def test_an_arm_that_never_gets_there_is_no_saving():
    base, own = evaluations("grpo", [0.2, 0.7], [0, 100]), evaluations("sgpo", [0.2, 0.6], [0, 10])
    frame = verdicts(evaluations=pd.concat([base, own]))
    assert math.isinf(frame.loc["sgpo-flops", "value"]) and frame.loc["sgpo-flops", "verdict"] == NOTHING
    assert np.isfinite(frame.loc["sgpo-flops-near", "low"])
