"""Paper says / we measured: the rule on constructed intervals, the measures on frames computed by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from repro.experiments.claims import (
    Claim,
    Study,
    Untestable,
    claims_table,
    load,
    other_verdicts,
    tally,
    with_words,
)
from repro.experiments.claims import measures as by
from repro.experiments.claims import per_seed as of
from repro.experiments.claims.papers import Gain, Tables
from repro.settings import Statistics
from repro.stats.saturation import curve as saturating
from repro.stats.verdicts import (
    NOTHING,
    OPPOSITE,
    SAME,
    SAME_SIZE,
    UNMEASURED,
    UNTESTED,
    Expectation,
    at_least,
    at_most,
    reaches,
    verdict,
    within,
)

INF, NAN = math.inf, math.nan
SEEDS = range(5)
STATISTICS = Statistics(levels=[0.5, 1.0], resamples=1000, confidence=0.95, seed=0)


def study(arms=("grpo", "arm"), **tables) -> Study:
    return Study(SimpleNamespace(all_arms=arms, statistics=STATISTICS), **tables)


def evaluations(arm, accuracies_S_E, costs=(0, 100, 200)):
    """One row per seed and evaluation; steps 0, 8, 16 …"""
    return pd.DataFrame(
        [
            {"arm": arm, "seed": seed, "step": 8 * e, "accuracy": accuracy, "trained_tokens": cost, "diverged": False}
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
        ((0.9, 0.8, 1.2), HIGHER, SAME),  # 2 > 2 · 0.9
        ((1.0, -0.1, 2.5), HIGHER, NOTHING),  # the paper's size lies in it, and so does 0
        ((-1.0, -2.0, -0.1), HIGHER, OPPOSITE),
        ((1.0, 0.5, 1.5), Expectation("higher"), SAME),  # no size to compare
        ((-1.0, -1.5, -0.5), LOWER, SAME),
        ((0.8, 0.7, 0.9), RATIO, SAME),  # log 0.5 is 3.1 times log 0.8
        ((0.6, 0.55, 0.7), RATIO, SAME_SIZE),  # and 1.4 times log 0.6
        ((0.9, 0.8, INF), RATIO, NOTHING),  # some resamples never get there
        ((INF, 1.1, INF), RATIO, OPPOSITE),  # it never gets there and has spent more
        ((0.0, 0.0, 0.9), Expectation("higher", 2.0, "ratio"), OPPOSITE),  # a speed-up of one that never gets there
        ((0.1, -0.9, 0.9), EQUAL, SAME_SIZE),
        ((0.5, 0.2, 0.9), EQUAL, SAME_SIZE),  # a difference within the margin
        ((0.1, -0.9, 1.1), EQUAL, NOTHING),
        ((0.9, 0.2, 1.1), EQUAL, NOTHING),
        ((1.4, 1.1, 1.7), EQUAL, OPPOSITE),
        ((1.0, 0.85, 1.2), Expectation("equal", kind="ratio", margin=1.25), SAME_SIZE),
        ((1.0, 0.79, 1.2), Expectation("equal", kind="ratio", margin=1.25), NOTHING),
        ((0.0, -0.9, 0.5), Expectation("not lower", margin=1.0), SAME),
        ((-2.0, -3.0, -0.5), Expectation("not lower", margin=1.0), NOTHING),
        ((-0.5, -0.9, -0.1), Expectation("not lower", margin=1.0), SAME),  # lower, by less than the margin
        ((-2.0, -3.0, -1.1), Expectation("not lower", margin=1.0), OPPOSITE),
        ((8 / 9, 8 / 9, 8 / 9), Expectation("not lower", kind="level", reference=1.0), OPPOSITE),
        ((5.0, 5.0, 5.0), Expectation("not higher", kind="level", reference=4.0), OPPOSITE),
        ((1.0, NAN, NAN), HIGHER, UNTESTED),
        ((NAN, NAN, NAN), EQUAL, UNTESTED),
    ],
)
def test_the_rule(figure, expected, answer):
    assert verdict(*figure, expected) == answer


ENDS = st.tuples(*[st.integers(-12, 12)] * 2).map(lambda pair: [end / 4 for end in sorted(pair)])
MARGINS = st.tuples(*[st.integers(0, 12)] * 2).map(lambda pair: [end / 4 + 1 / 8 for end in sorted(pair)])  # no ties
MIRRORED = {"higher": "lower", "lower": "higher", "not lower": "not higher", "not higher": "not lower"}


@given(ENDS, MARGINS, st.sampled_from(["higher", "lower", "not lower", "not higher", "equal"]), st.booleans())
def test_the_rule_is_even_handed_and_a_wider_margin_only_protects(ends, margins, direction, as_ratio):
    """Turning every sign (for a ratio: the inverse) turns nothing; a margin protects a claim; and a theorem's rule is
    the same one: at most, at least and within say what their expectation says."""
    low, high = ends
    bounded = direction not in ("higher", "lower")
    kind, figure = ("ratio", np.exp) if as_ratio else ("level", np.float64)

    def answer(least, most, direction, margin):
        expected = Expectation(direction, None, kind, margin=float(figure(margin)) if bounded else None)
        return verdict(*map(float, figure(np.array([(least + most) / 2, least, most]))), expected)

    answers = [answer(low, high, direction, margin) for margin in margins]
    assert answers == [answer(-high, -low, MIRRORED.get(direction, direction), margin) for margin in margins]
    order = [OPPOSITE, NOTHING, SAME, SAME_SIZE]
    assert order.index(answers[1]) >= order.index(answers[0])
    wider = answer(low - 1, high + 1, direction, margins[0])
    assert wider in (answers[0], NOTHING)  # a wider interval decides nothing that a narrower one did not
    if bounded and not as_ratio:
        margin = margins[0]
        theorem = {
            "not lower": at_least("x", -margin, 0.0, (low, high)),
            "not higher": at_most("x", margin, 0.0, (low, high)),
            "equal": within("x", 1.0, 1.0, (1 + low, 1 + high), margin),
        }[direction]
        said = {"holds": (SAME, SAME_SIZE), "refuted": (OPPOSITE,), "not shown": (NOTHING,)}[theorem.outcome]
        assert answers[0] in said


def test_what_rests_on_assumptions_is_reached_or_not_and_a_direction_has_no_margin():
    for interval, outcome in (((3.0, 3.2), "reached"), ((2.9, 3.1), "not shown"), ((1.0, 2.9), "not reached")):
        assert reaches("x", 3.0, 3.0, interval).outcome == outcome
    with pytest.raises(ValueError, match="a claim of 'higher' has no margin"):
        Expectation("higher", margin=1.0)


def test_differences_are_paired_by_seed_and_in_points():
    base = [[0.2, 0.4 + 0.1 * s, 0.3 + 0.1 * s] for s in SEEDS]
    arm = [[0.2, 0.5 + 0.1 * s, 0.35 + 0.1 * s] for s in SEEDS]  # 10 and 5 points more in every seed
    tables = study(evaluations=pd.concat([evaluations("grpo", base), evaluations("arm", arm)]))
    assert by.difference(tables, of.final(), "arm", "grpo") == pytest.approx((5, 5, 5))
    assert by.difference(tables, of.best(), "arm", "grpo") == pytest.approx((10, 10, 10))
    assert by.difference(tables, of.early(), "arm", "grpo") == pytest.approx(
        (10 * 4.5 / 8,) * 3
    )  # 0 at step 0, 10 at 8
    assert by.difference(tables, of.final(), ["arm", "grpo"], "grpo") == pytest.approx((2.5, 2.5, 2.5))
    two = [{"difference": {"statistic": name, "arm": "arm", "base": "grpo"}} for name in ("best", "final")]
    assert by.least(tables, two)[0] == pytest.approx(5)


TENTHS_E = np.linspace(0, 200, 11)
RISE_E = saturating(TENTHS_E, 0.2, 0.8, 100, 1)  # to 0.6


def test_costs_by_hand_and_their_inverse():
    base = evaluations("grpo", [RISE_E] * 5, TENTHS_E)
    arm = evaluations("arm", [saturating(TENTHS_E, 0.2, 1.0, 100, 1)] * 5, 0.45 * TENTHS_E)
    tables = study(evaluations=pd.concat([base, arm]))
    # the arm is at 0.6 halfway to its asymptote, at 45 tokens and step 40; the baseline after 200, at step 80
    assert by.cost(tables, "arm", "grpo", "trained_tokens") == pytest.approx((45 / 200,) * 3, rel=1e-4)
    assert by.cost(tables, "arm", "grpo", "step") == pytest.approx((40 / 80,) * 3, rel=1e-4)
    # half of the baseline's rise, 0.4: a third of the baseline's way, at 50 tokens, and a quarter of the arm's, at 15
    assert by.cost(tables, "arm", "grpo", "trained_tokens", share=0.5) == pytest.approx((15 / 50,) * 3, rel=1e-4)
    assert by.speedup(tables, "arm", "grpo", "trained_tokens") == pytest.approx((200 / 45,) * 3, rel=1e-4)
    # of where the arm ends the baseline never sees anything
    assert by.speedup(tables, "grpo", "arm", "trained_tokens") == (0, 0, pytest.approx(90 / 200))


def test_an_arm_that_never_arrives_is_not_cheap():
    base, low_E = evaluations("grpo", [RISE_E] * 5, TENTHS_E), saturating(TENTHS_E, 0.2, 0.5, 100, 1)
    arm = evaluations("arm", [low_E] * 5, TENTHS_E / 10)  # a tenth of the tokens, never at 0.6
    tables = study(evaluations=pd.concat([base, arm]))
    assert by.cost(tables, "arm", "grpo", "trained_tokens") == (INF, pytest.approx(0.1), INF)
    assert verdict(*by.cost(tables, "arm", "grpo", "trained_tokens"), RATIO) == NOTHING
    assert by.cost(tables, "arm", "grpo", "step") == (INF, pytest.approx(1.0), INF)
    # one seed lifts the mean to 0.61: it gets there, but without that seed it does not
    lucky_E = saturating(TENTHS_E, 0.2, 0.95, 100, 1)
    lucky = evaluations("arm", [lucky_E, *[saturating(TENTHS_E, 0.2, 0.78, 100, 1)] * 4], TENTHS_E / 10)
    value, _, high = by.cost(study(evaluations=pd.concat([base, lucky])), "arm", "grpo", "trained_tokens")
    assert value < 1 and high == INF
    flat = study(evaluations=evaluations("grpo", [[0.5, 0.4, 0.3]] * 5))
    with pytest.raises(Untestable, match="an accuracy of grpo above its start"):
        by.cost(flat, "grpo", "grpo", "trained_tokens")


def test_ratios_are_those_of_means_and_totals_are_the_last_evaluations():
    base = evaluations("grpo", [[0.2, 0.3, 0.4]] * 5)
    arm = evaluations("arm", [[0.2, 0.3, 0.4]] * 5, (0, 50, 100))
    tables = study(evaluations=pd.concat([base, arm]))
    assert by.ratio(tables, of.spent("trained_tokens"), "arm", "grpo") == pytest.approx((0.5, 0.5, 0.5))
    tokens = [1, 1, 1, 1, 6, 2, 2, 2, 2, 2]
    steps = pd.DataFrame({"arm": ["grpo"] * 5 + ["arm"] * 5, "seed": [*SEEDS] * 2, "loss_tokens": tokens})
    value, low, high = by.ratio(study(steps=steps), of.total("loss_tokens"), "arm", "grpo")
    # 2/2; without a seed 2.25/2 four times, and without the 6 it is 1/2: the jackknife of the logarithms
    half = t.ppf(0.975, 4) * np.sqrt(4 * np.log([1.125] * 4 + [0.5]).var())
    assert (value, low, high) == pytest.approx((1.0, np.exp(-half), np.exp(half)))
    steps["loss_tokens"] = 0
    assert np.isnan(by.ratio(study(steps=steps), of.total("loss_tokens"), "arm", "grpo")).all()


def test_statistics_of_the_steps_by_hand():
    steps = pd.DataFrame({"seed": 0, "step": range(10), "kl": [NAN, 1, 2, 3, 4, 5, 6, 7, 8, 11.0]})
    assert of.mean("kl", 0.0, 0.3).of(steps)[0] == pytest.approx((1 + 2) / 2)  # steps 0, 1 and 2; 0 was skipped
    assert of.mean("kl", 0.8).of(steps)[0] == pytest.approx((8 + 11) / 2)
    assert of.change("kl", 0.2).of(steps)[0] == pytest.approx((8 + 11) / 2 - 1)
    assert of.jitter("kl").of(steps)[0] == pytest.approx((7 * 1 + 3) / 8)


def test_pass_at_k_and_the_silence_of_short_responses_by_hand():
    questions = pd.DataFrame({"seed": [0, 0, 1, 1], "samples": 4, "successes": [1, 0, 4, 2]})
    # two of four samples: 1 − C(3,2)/C(4,2) = 1/2; 0; 1; 1 − C(2,2)/C(4,2) = 5/6
    assert of.pass_at(2).of(questions).tolist() == pytest.approx([1 / 4, (1 + 5 / 6) / 2])
    with pytest.raises(Untestable, match="8 samples of each question, there are 4"):
        of.pass_at(8).of(questions)
    selection = pd.DataFrame({"seed": 0, "response_tokens": [1, 2, 3, 9], "advantage": [0.0, 0.0, 0.0, -1.0]})
    assert of.silence_of_short().of(selection)[0] == pytest.approx(1 - 0.5)


def test_fidelity_is_a_mean_over_checkpoints_and_compares_proxies():
    rows = [
        {"arm": "grpo", "seed": seed, "step": step, "proxy": name, "pearson": value + step / 10, "chi2": 2 * value}
        for seed in SEEDS
        for step in (0, 2)
        for name, value in (("advantage", 0.6), ("constant", 0.1))
    ]
    tables = study(fidelity=pd.DataFrame(rows))
    assert by.proxy(tables, "grpo", "pearson", "advantage") == pytest.approx((0.7, 0.7, 0.7))
    assert by.proxy(tables, "grpo", "chi2", "advantage", minus="constant") == pytest.approx((1.0, 1.0, 1.0))
    with pytest.raises(Untestable, match="proxy oracle in fidelity"):
        by.proxy(tables, "grpo", "pearson", "oracle")


FINAL = {"difference": {"statistic": "final", "arm": "arm", "base": "grpo"}}
KL = {"level": {"statistic": {"mean": {"column": "kl"}}, "arm": "grpo"}}
BOTH = {"direction": "higher", "size": [2.0, 3.0]}


def claim(measure, expected=BOTH, **parts) -> Claim:
    words = {"id": "x", "paper": "D³S", "place": "Table 1", "claim": "Some |A|.", "setting": "7B"}
    return Claim(**(words | {"expected": expected, "measure": measure} | parts))


def missing(tables: Study, *claims: Claim, verdict: str = UNTESTED) -> list[str]:
    table = claims_table(tables, list(claims))
    assert (table["verdict"] == verdict).all()
    return table["missing"].tolist()


def test_what_is_missing_is_named():
    two = evaluations("grpo", [[0.1, 0.2, 0.3]] * 2)
    both = pd.concat([evaluations("grpo", [[0.1, 0.2, 0.3]] * 5), evaluations("arm", [[0.1, 0.2, 0.3]] * 4)])
    final, kl = claim(FINAL), claim(KL)
    assert missing(study(arms=["grpo"], evaluations=both), final, verdict=UNMEASURED) == ["arm arm"]
    assert missing(study(), final, kl) == ["table evaluations", "table steps"]
    assert missing(study(evaluations=two), final, verdict=UNMEASURED) == ["evaluations of arm arm"]
    assert missing(study(steps=two), kl) == ["column kl in steps"]
    level = claim({"level": {"statistic": "final", "arm": "grpo"}})
    assert missing(study(evaluations=two), level) == ["3 seeds"]
    seeds = "the same seeds of arm and grpo, which have [0, 1, 2, 3] and [0, 1, 2, 3, 4]"
    assert missing(study(evaluations=both), final) == [seeds]
    undefined = study(steps=pd.DataFrame({"arm": "grpo", "seed": SEEDS, "step": 0, "kl": NAN}))
    assert missing(undefined, kl) == ["a defined figure"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("expected: {direction: higher}, reason: none", "x: give measure and expected, or else a reason"),
        ("expected: {direction: up}, measure: {exact: {figure: lemma_1}}", "x: expected.direction: Input should be"),
        ("reason: none, sort: 1", "x: sort: Extra inputs are not permitted"),
    ],
)
def test_a_claim_that_is_wrong_is_named_when_the_file_is_read(tmp_path, entry, message):
    head = "paper: P\nsetting: 7B\nplace: §1\nclaim: C\nclaims:\n"
    (tmp_path / "p.yaml").write_text(f"{head}- {{id: x, {entry}}}\n")
    with pytest.raises(ValueError, match=f"p.yaml: claim {message}"):
        load(tmp_path)


BY_AIME = Tables(scales=["paper-qwen2-5-math-1-5b-instruct"], sources=["aime-1983-2024", "average"])


def gain(of, over, tables=BY_AIME, **more) -> tuple[float, float]:
    return Gain(of=of, over=over, **more).range(tables)


def test_the_sizes_come_from_the_papers_tables():
    assert gain("GRPO, p", "GRPO") == (2.8, 4.3)
    assert gain("GRPO, p", "GRPO", also=5.0) == (2.8, 5.0)
    assert gain("ZVF", "GRPO") == (-3.2, -0.6)
    smoothed = [f"GRPO, smoothed{which}" for which in ("", ", second β", ", third β")]
    assert gain(smoothed, "GRPO") == (1.3, 4.3)
    d3s = {"of": "GRPO + D³S", "tables": Tables()}
    only = ["paper-qwen2-5-math-7b"]
    assert gain(**d3s, over="GRPO", metric="pass@8", only=only) == (3.7, 3.7)  # as the abstract has it
    assert gain(**d3s, over="GRPO + PODS") == (0.2, 3.1) and gain(**d3s, over="GRPO", metric="pass@16") == (0.9, 8.6)
    with pytest.raises(ValueError, match="no paper's table has pass@16 of both GRPO \\+ D³S and GSPO"):
        gain(**d3s, over="GSPO", metric="pass@16")
    by_id = {entry.id: entry for entry in load()}
    assert len(by_id) == len(load()) == 156 + 8  # those on trained tokens are there in both counts
    assert by_id["cal-tokens"].expectation.size == pytest.approx(0.72)
    assert by_id["d3s-grpo-pass-1"].expectation.size == (0.5, 4.5)
    parts = [gain(**d3s, over=f"GRPO + {part}", only=only)[0] for part in ("D¹S", "D¹S-C", "D²S")]
    assert by_id["d3s-best-of-parts"].expectation.size == min(parts) == 0.2


def test_mathematics_needs_no_runs_and_the_rest_is_missing():
    table = claims_table(study(arms=())).set_index("id")
    exact = table[[entry.setting == "mathematics" for entry in load()]]
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
    assert exact.loc["d3s-table-1-average", "value"] == pytest.approx(243.9 / 7)
    rest = table.drop(exact.index)
    assert (rest["verdict"] == np.where(rest["missing"].str.startswith("arm "), UNMEASURED, UNTESTED)).all()
    untestable = {entry.id for entry in load() if entry.reason}
    assert set(rest.index[rest["missing"] == ""]) == untestable and len(untestable) == 13
    assert rest.loc["d3s-late-d1s", "missing"] == "arm d1s"


def test_rows_hold_figures_and_the_words_join_them_by_id():
    base, arm = [[0.2, 0.4, 0.5]] * 5, [[0.2, 0.4, 0.525]] * 5
    tables = study(evaluations=pd.concat([evaluations("grpo", base), evaluations("arm", arm, (0, 10, 20))]))
    claims = [
        claim(FINAL),
        claim(
            {"cost": {"arm": "grpo", "base": "arm", "axis": "trained_tokens"}},
            {"direction": "lower", "size": 0.5, "kind": "ratio"},
            id="y",
        ),
        claim(None, None, reason="needs a 7B model", id="z"),
    ]
    table = claims_table(tables, claims)
    assert table["verdict"].tolist() == [SAME_SIZE, OPPOSITE, UNTESTED]
    rule = ["direction", "kind", "reference", "size_low", "size_high"]
    assert table.loc[:1, rule].values.tolist() == [["higher", "points", 0, 2, 3], ["lower", "ratio", 1, 0.5, 0.5]]
    words = with_words(table.iloc[::-1], claims).loc[["x", "y", "z"]]
    assert words["paper says"].tolist() == ["+2.00 to +3.00 points", "0.50×", ""]
    assert words["we measured"].tolist() == ["+2.50 points", "not reached, not before 10.00×", ""]
    assert words.loc["x", ["claim", "where"]].tolist() == ["Some |A|.", "Table 1; 7B"]
    assert words["verdict"].tolist() == [SAME_SIZE, OPPOSITE, f"{UNTESTED}: needs a 7B model"]


def test_a_claim_on_tokens_is_held_against_both_counts_and_tallied_once(tmp_path):
    """The arm draws 100 tokens where GRPO has 200, and of GRPO's only 80 have a gradient: half by the papers' count,
    more by the other."""
    cost = "{cost: {arm: arm, base: grpo, axis: [generated_tokens, tokens], share: 0.5}}"
    entry = "place: §1, claim: C, expected: {direction: lower, kind: ratio}"
    (tmp_path / "p.yaml").write_text(
        f"paper: P\nsetting: 7B\nclaims:\n- {{id: x, {entry}, measure: {cost}}}\n"
        f"- {{id: y, {entry}, measure: {cost.replace('tokens]', 'flops]')}}}\n"
    )
    claims = load(tmp_path)
    assert [(entry.id, entry.count) for entry in claims] == [("x", "papers"), ("x-computed", "computed"), ("y", "")]
    base = evaluations("grpo", [RISE_E] * 5, 0.4 * TENTHS_E).assign(
        paper_tokens=lambda rows: rows["trained_tokens"] * 2.5
    )
    arm = evaluations("arm", [RISE_E] * 5, TENTHS_E / 2).assign(paper_tokens=lambda rows: rows["trained_tokens"])
    scattered = pd.concat([base, arm]).assign(generated_tokens=0, flops=lambda rows: rows["step"])
    scattered["accuracy"] += (
        np.where(scattered["arm"] == "arm", 0.01, 0) * (scattered["seed"] - 2) * scattered["step"] / 80
    )
    table = claims_table(study(evaluations=scattered), claims)
    assert table["value"].tolist()[:2] == pytest.approx([0.5, 1.25], rel=1e-3)
    assert table["verdict"].tolist() == [SAME, OPPOSITE, NOTHING]
    counts = tally(table, claims).loc["P"]
    assert (counts[SAME], counts[OPPOSITE], counts[NOTHING], counts["another verdict as computed"]) == (1, 0, 1, 1)
    assert other_verdicts(table).values.tolist() == [["x", SAME, OPPOSITE]]
    assert with_words(table, claims)["trained tokens"].tolist() == ["as the papers count", "as computed", "–"]


def test_halves_of_the_seeds_lie_on_the_side_of_the_verdict_or_not():
    arms = {
        "grpo": [(0.3, 0.5, 0.5)] * 6,
        "up": [(0.3, 0.5, 0.6 + 0.001 * seed) for seed in range(6)],
        "even": [(0.3, 0.5, 0.6 if seed % 2 == 0 else 0.49) for seed in range(6)],
    }
    frames = pd.concat([evaluations(arm, rows) for arm, rows in arms.items()])
    of = {"statistic": "final", "base": "grpo"}
    made = [
        claim({"difference": of | {"arm": arm}}, {"direction": direction}, id=f"{arm}-{direction}")
        for arm, direction in (("up", "higher"), ("up", "lower"), ("even", "higher"))
    ]
    table = claims_table(study(tuple(arms), evaluations=frames), made).set_index("id")
    assert table["verdict"].tolist() == [SAME, OPPOSITE, NOTHING]
    assert table.loc["up-higher", ["first", "second"]].tolist() == pytest.approx([10.2, 10.3])
    assert table["alike"].tolist() == ["yes", "yes", ""]
    assert with_words(table.reset_index(), made)["halves alike"].tolist() == [
        "yes: +10.20, +10.30",
        "yes: +10.20, +10.30",
        "+10.00, -1.00",
    ]
