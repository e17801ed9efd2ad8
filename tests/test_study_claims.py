"""Paper says / we measured: the rule on constructed intervals, the measures on frames computed by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from repro.experiments.claims import CLAIMS, Study, claims_markdown, claims_table, tally
from repro.experiments.claims import measures as by
from repro.experiments.claims.claim import Claim
from repro.experiments.claims.paper_tables import TABLE_1_ROW, pass_gain, peak_gain
from repro.experiments.claims.per_seed import (
    BEST,
    EARLY,
    FINAL,
    SILENCE_OF_SHORT,
    change_over,
    jitter,
    mean_over,
    solved,
    spent,
    summed,
)
from repro.experiments.claims.study import Untestable
from repro.experiments.claims.verdicts import NOTHING, OPPOSITE, SAME, SAME_SIZE, UNTESTED, Expectation, verdict
from repro.settings import Statistics

INF, NAN = math.inf, math.nan
SEEDS = range(5)
STATISTICS = Statistics(levels=[0.5, 1.0], resamples=1000, confidence=0.95, seed=0)


def study(arms=("grpo", "arm"), **tables) -> Study:
    return Study(SimpleNamespace(arms=dict.fromkeys(arms), statistics=STATISTICS), **tables)


def evaluations(arm, accuracies_S_E, costs=(0, 100, 200)):
    """One row per seed and evaluation; steps 0, 8, 16 …"""
    return pd.DataFrame(
        [
            {"arm": arm, "seed": seed, "step": 8 * e, "accuracy": accuracy, "trained_tokens": cost}
            for seed, accuracies_E in enumerate(accuracies_S_E)
            for e, (accuracy, cost) in enumerate(zip(accuracies_E, costs, strict=True))
        ]
    )


HIGHER, LOWER = Expectation("higher", (2.0, 3.0)), Expectation("lower", -4.0)
RATIO = Expectation("lower", 0.5, "ratio")
EQUAL = Expectation("equal", margin=1.0)


@pytest.mark.parametrize(
    ("figure", "expected", "answer"),
    [
        ((1.0, 0.1, 2.5), HIGHER, SAME_SIZE),  # the interval meets the paper's range
        ((1.1, 0.9, 1.2), HIGHER, SAME_SIZE),  # below it, but 2 ≤ 2 · 1.1
        ((0.9, 0.8, 1.2), HIGHER, SAME),  # 2 > 2 · 0.9
        ((5.9, 5.0, 7.0), HIGHER, SAME_SIZE),  # 3 ≥ 5.9/2
        ((6.1, 5.0, 7.0), HIGHER, SAME),
        ((1.0, -0.1, 2.5), HIGHER, NOTHING),  # the paper's size lies in it, and so does 0
        ((1.0, 0.0, 2.0), HIGHER, NOTHING),  # 0 is in a closed interval
        ((-1.0, -2.0, -0.1), HIGHER, OPPOSITE),
        ((1.0, 0.5, 1.5), Expectation("higher"), SAME),  # no size to compare
        ((-3.0, -5.0, -1.0), LOWER, SAME_SIZE),
        ((-1.0, -1.5, -0.5), LOWER, SAME),
        ((3.0, 1.0, 5.0), LOWER, OPPOSITE),
        ((0.8, 0.7, 0.9), RATIO, SAME),  # log 0.5 is 3.1 times log 0.8
        ((0.6, 0.55, 0.7), RATIO, SAME_SIZE),  # and 1.4 times log 0.6
        ((0.9, 0.4, 1.1), RATIO, NOTHING),
        ((0.9, 0.8, INF), RATIO, NOTHING),  # some resamples never get there
        ((INF, 1.1, INF), RATIO, OPPOSITE),  # it never gets there and has spent more
        ((0.0, 0.0, 0.9), Expectation("higher", 2.0, "ratio"), OPPOSITE),  # a speed-up of one that never gets there
        ((0.15, 0.1, 0.19), Expectation("lower", None, "ratio", null=0.2), SAME),
        ((0.6, 0.4, 0.8), Expectation("higher", None, "level", null=0.5), NOTHING),
        ((0.1, -0.9, 0.9), EQUAL, SAME_SIZE),
        ((0.5, 0.2, 0.9), EQUAL, SAME_SIZE),  # a difference within the margin
        ((0.1, -0.9, 1.1), EQUAL, NOTHING),
        ((0.9, 0.2, 1.1), EQUAL, OPPOSITE),
        ((1.0, 0.85, 1.2), Expectation("equal", kind="ratio", margin=1.25), SAME_SIZE),
        ((1.0, 0.79, 1.2), Expectation("equal", kind="ratio", margin=1.25), NOTHING),
        ((0.0, -0.9, 0.5), Expectation("not lower", margin=1.0), SAME),
        ((0.0, -1.1, 0.5), Expectation("not lower", margin=1.0), NOTHING),
        ((-2.0, -3.0, -0.5), Expectation("not lower", margin=1.0), OPPOSITE),
        ((8 / 9, 8 / 9, 8 / 9), Expectation("not lower", kind="level", null=1.0), OPPOSITE),
        ((2.0, 2.0, 2.0), Expectation("not higher", kind="level", null=4.0), SAME),
        ((5.0, 5.0, 5.0), Expectation("not higher", kind="level", null=4.0), OPPOSITE),
        ((1.0, NAN, NAN), HIGHER, UNTESTED),
        ((NAN, NAN, NAN), EQUAL, UNTESTED),
    ],
)
def test_the_rule(figure, expected, answer):
    assert verdict(*figure, expected) == answer


def test_differences_are_paired_by_seed_and_in_points():
    base = [[0.2, 0.4 + 0.1 * s, 0.3 + 0.1 * s] for s in SEEDS]
    arm = [[0.2, 0.5 + 0.1 * s, 0.35 + 0.1 * s] for s in SEEDS]  # 10 and 5 points more in every seed
    tables = study(evaluations=pd.concat([evaluations("grpo", base), evaluations("arm", arm)]))
    assert by.difference(FINAL, "arm", "grpo")(tables) == pytest.approx((5, 5, 5))
    assert by.difference(BEST, "arm", "grpo")(tables) == pytest.approx((10, 10, 10))
    assert by.difference(EARLY, "arm", "grpo")(tables) == pytest.approx((10, 10, 10))  # step 8 of 16 alone
    assert by.difference(FINAL, ("arm", "grpo"), "grpo")(tables) == pytest.approx((2.5, 2.5, 2.5))
    halves = by.least(by.difference(FINAL, "arm", "grpo"), by.difference(BEST, "arm", "grpo"))
    assert halves(tables)[0] == pytest.approx(5)


def test_costs_by_hand_and_their_inverse():
    base = evaluations("grpo", [[0.2, 0.6, 0.7]] * 5)
    arm = evaluations("arm", [[0.2, 0.5, 0.9]] * 5, (0, 30, 90))
    tables = study(evaluations=pd.concat([base, arm]))
    # 0.7 lies halfway between 0.5 at 30 tokens and 0.9 at 90; the baseline is there after 200
    assert by.cost("arm", "grpo")(tables) == pytest.approx((60 / 200,) * 3)
    assert by.cost("arm", "grpo", "step")(tables) == pytest.approx((12 / 16,) * 3)
    # half of the baseline's rise, 0.45: at 62.5 tokens, and at 25
    assert by.cost("arm", "grpo", share=0.5)(tables) == pytest.approx((25 / 62.5,) * 3)
    assert by.speedup("arm", "grpo", "trained_tokens")(tables) == pytest.approx((200 / 60,) * 3)
    # of the arm's own peak the baseline never sees anything
    assert by.speedup("grpo", "arm", "trained_tokens")(tables) == (0, 0, pytest.approx(90 / 200))


def test_an_arm_that_never_arrives_is_not_cheap():
    base = evaluations("grpo", [[0.2, 0.6, 0.7]] * 5)
    arm = evaluations("arm", [[0.2, 0.4, 0.5]] * 5, (0, 10, 20))  # a tenth of the tokens, never at 0.7
    tables = study(evaluations=pd.concat([base, arm]))
    assert by.cost("arm", "grpo")(tables) == (INF, pytest.approx(0.1), INF)
    assert verdict(*by.cost("arm", "grpo")(tables), RATIO) == NOTHING
    assert by.cost("arm", "grpo", "step")(tables) == (INF, pytest.approx(1.0), INF)
    # one seed lifts the mean to 0.708: it gets there, but a third of the resamples lack that seed and do not
    lucky = evaluations("arm", [[0.2, 0.4, 0.9], *[[0.2, 0.4, 0.66]] * 4], (0, 10, 20))
    value, _, high = by.cost("arm", "grpo")(study(evaluations=pd.concat([base, lucky])))
    assert value < 1 and high == INF
    flat = study(evaluations=evaluations("grpo", [[0.5, 0.4, 0.3]] * 5))
    with pytest.raises(Untestable, match="no higher than the start"):
        by.cost("grpo", "grpo")(flat)


def test_ratios_are_those_of_means_and_totals_are_the_last_evaluations():
    base = evaluations("grpo", [[0.2, 0.3, 0.4]] * 5)
    arm = evaluations("arm", [[0.2, 0.3, 0.4]] * 5, (0, 50, 100))
    tables = study(evaluations=pd.concat([base, arm]))
    assert by.ratio(spent("trained_tokens"), "arm", "grpo")(tables) == pytest.approx((0.5, 0.5, 0.5))
    tokens = [1, 1, 1, 1, 6, 2, 2, 2, 2, 2]
    steps = pd.DataFrame({"arm": ["grpo"] * 5 + ["arm"] * 5, "seed": [*SEEDS] * 2, "loss_tokens": tokens})
    value, low, high = by.ratio(summed("loss_tokens"), "arm", "grpo")(study(steps=steps))
    assert value == pytest.approx(1.0) and (low, high) == pytest.approx((0.5, 2.0))  # 2/4 with the 6 thrice, 2/1
    steps["loss_tokens"] = 0
    assert np.isnan(by.ratio(summed("loss_tokens"), "arm", "grpo")(study(steps=steps))).all()


def test_statistics_of_the_steps_by_hand():
    steps = pd.DataFrame({"seed": 0, "step": range(10), "kl": [NAN, 1, 2, 3, 4, 5, 6, 7, 8, 11.0]})
    assert mean_over("kl", 0.0, 0.3).of(steps)[0] == pytest.approx((1 + 2) / 2)  # steps 0, 1 and 2; 0 was skipped
    assert mean_over("kl", 0.8).of(steps)[0] == pytest.approx((8 + 11) / 2)
    assert change_over("kl", 0.2).of(steps)[0] == pytest.approx((8 + 11) / 2 - 1)
    assert jitter("kl").of(steps)[0] == pytest.approx((7 * 1 + 3) / 8)


def test_pass_at_k_and_the_silence_of_short_responses_by_hand():
    questions = pd.DataFrame({"seed": [0, 0, 1, 1], "samples": 4, "successes": [1, 0, 4, 2]})
    # two of four samples: 1 − C(3,2)/C(4,2) = 1/2; 0; 1; 1 − C(2,2)/C(4,2) = 5/6
    assert solved(2).of(questions).tolist() == pytest.approx([1 / 4, (1 + 5 / 6) / 2])
    with pytest.raises(Untestable, match="pass@8 needs 8 samples"):
        solved(8).of(questions)
    selection = pd.DataFrame({"seed": 0, "response_tokens": [1, 2, 3, 9], "advantage": [0.0, 0.0, 0.0, -1.0]})
    assert SILENCE_OF_SHORT.of(selection)[0] == pytest.approx(1 - 0.5)


def test_fidelity_is_a_mean_over_checkpoints_and_compares_proxies():
    rows = [
        {"arm": "grpo", "seed": seed, "step": step, "proxy": name, "pearson": value + step / 10, "chi2": 2 * value}
        for seed in SEEDS
        for step in (0, 2)
        for name, value in (("advantage", 0.6), ("constant", 0.1))
    ]
    tables = study(fidelity=pd.DataFrame(rows))
    assert by.proxy("grpo", "pearson", "advantage")(tables) == pytest.approx((0.7, 0.7, 0.7))
    assert by.proxy("grpo", "chi2", "advantage", minus="constant")(tables) == pytest.approx((1.0, 1.0, 1.0))
    with pytest.raises(Untestable, match="no proxy oracle"):
        by.proxy("grpo", "pearson", "oracle")(tables)


def reasons(tables: Study, *claims: Claim) -> list[str]:
    frame = claims_table(tables, list(claims))
    assert (frame["verdict"] == UNTESTED).all()
    return frame["reason"].tolist()


def claim(measure, expected=HIGHER, **parts) -> Claim:
    return Claim("x", "D³S", "Table 1", "Some |A|.", "7B", expected, measure, **parts)


def test_what_is_missing_is_the_reason():
    two = evaluations("grpo", [[0.1, 0.2, 0.3]] * 2)
    frame = pd.concat([evaluations("grpo", [[0.1, 0.2, 0.3]] * 5), evaluations("arm", [[0.1, 0.2, 0.3]] * 4)])
    final, kl = claim(by.difference(FINAL, "arm", "grpo")), claim(by.level(mean_over("kl"), "grpo"))
    assert reasons(study(arms=["grpo"], evaluations=frame), final) == ["no arm arm"]
    assert reasons(study(), final, kl) == ["no table evaluations", "no table steps"]
    assert reasons(study(evaluations=two), final) == ["no evaluations of arm arm"]
    assert reasons(study(steps=two), kl) == ["no column kl in steps"]
    assert reasons(study(evaluations=two), claim(by.level(FINAL, "grpo"))) == ["no interval from fewer than 5 seeds"]
    assert "seeds" in reasons(study(evaluations=frame), final)[0]
    undefined = study(steps=pd.DataFrame({"arm": "grpo", "seed": SEEDS, "step": 0, "kl": NAN}))
    assert reasons(undefined, kl) == ["the figure is undefined"]
    with pytest.raises(ValueError, match="claim x: give measure and expected, or else a reason"):
        claim(None)


def test_the_sizes_come_from_the_papers_tables():
    assert peak_gain("GRPO", "p") == (2.8, 4.3) and peak_gain("ZVF", "none", base="GRPO") == (-3.2, -0.6)
    assert pass_gain("D3S", "GRPO", 8, "Qwen2.5-Math-7B") == (3.7, 3.7)  # as the abstract has it
    assert pass_gain("D3S", "PODS", 1) == (0.2, 3.1) and pass_gain("D3S", "GRPO", 16) == (0.9, 8.6)
    by_id = {entry.id: entry for entry in CLAIMS}
    assert len(by_id) == len(CLAIMS)
    assert by_id["cal-tokens"].expected.size == pytest.approx(0.72)
    assert by_id["d3s-grpo-pass-1"].expected.size == (0.5, 4.5)
    assert {entry.id for entry in CLAIMS if entry.timed} == {"cal-zvf-time", "d3s-speed-grpo", "d3s-speed-gspo"}


def test_mathematics_needs_no_runs_and_the_rest_is_said_to_be_missing():
    frame = claims_table(study(arms=())).set_index("id")
    exact = frame[frame["setting"] == "mathematics"]
    assert exact["verdict"].to_dict() == {
        "d3s-lemma-1": OPPOSITE,
        "d3s-proposition-1": SAME,
        "d3s-proposition-2": OPPOSITE,
        "d3s-proposition-2-selected": SAME,
        "d3s-largest-advantage": SAME_SIZE,
        "d3s-table-1-average": OPPOSITE,
    }
    assert exact.loc["d3s-lemma-1", "value"] == pytest.approx(8 / 9)
    assert exact.loc["d3s-proposition-1", "value"] == pytest.approx(2.0)
    assert exact.loc["d3s-table-1-average", "value"] == pytest.approx(sum(TABLE_1_ROW) / 7)
    rest = frame.drop(exact.index)
    assert (rest["verdict"] == UNTESTED).all() and rest["reason"].str.len().gt(0).all()
    assert rest.loc["d3s-late-d1s", "reason"] == "no arm d1s"


def test_the_table_as_markdown_and_as_a_sentence():
    base, arm = [[0.2, 0.4, 0.5]] * 5, [[0.2, 0.4, 0.525]] * 5
    tables = study(evaluations=pd.concat([evaluations("grpo", base), evaluations("arm", arm, (0, 10, 20))]))
    frame = claims_table(
        tables,
        [
            claim(by.difference(FINAL, "arm", "grpo")),
            claim(by.cost("grpo", "arm"), RATIO),
            claim(None, None, reason="needs a 7B model"),
        ],
    )
    assert frame["we_measured"].tolist() == ["+2.50 points", "not reached, at least 10.00×", ""]
    assert frame["verdict"].tolist() == [SAME_SIZE, OPPOSITE, UNTESTED]
    lines = claims_markdown(frame).splitlines()
    assert lines[4] == (
        "| Some \\|A\\|. | Table 1; 7B | +2.00 to +3.00 points | +2.50 points | **same direction and size** |"
    )
    assert lines[6].endswith("| **cannot be tested here**: needs a 7B model |")
    assert tally(frame) == (
        "Of 3 claims (D³S 3): 1 same direction and size, 0 same direction, 0 no difference seen, 1 opposite, "
        "and 1 cannot be tested here."
    )
