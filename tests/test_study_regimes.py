"""The regimes: correlations of a mix, arms at equal tokens, pooled intervals, agreement of rankings. By hand."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from repro import settings as settings_module
from repro.experiments.regimes import summary as regimes
from repro.experiments.regimes.mixes import advantage_length, length_difficulty, spearman
from repro.experiments.regimes.plot import differences
from repro.experiments.regimes.summary import agreement, at_equal_tokens, kendall, outcomes, paired
from repro.settings import Statistics
from repro.stats.tables import ratio

STATISTICS = Statistics(levels=[0.9], resamples=500, confidence=0.95, seed=0)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 3)), min_size=3, max_size=12))
def test_weighted_spearman_is_scipys_on_repeated_entries(rows):
    x, y, times = np.array(rows).T
    repeated = np.repeat(x, times), np.repeat(y, times)
    rho = spearman(x.astype(float), y.astype(float), times[None, :].astype(float))[0]
    if times.sum() < 2 or min(len(np.unique(part)) for part in repeated) < 2:
        assert np.isnan(rho)
    else:
        assert rho == pytest.approx(stats.spearmanr(*repeated).statistic, abs=1e-12)


def rollouts(correct, lengths):
    """Queries of one group each."""
    rows = [
        {"query": q, "group": 0, "correct": float(c), "response_tokens": t}
        for q, (right, tokens) in enumerate(zip(correct, lengths, strict=True))
        for c, t in zip(right, tokens, strict=True)
    ]
    return pd.DataFrame(rows)


def test_difficulty_and_length_come_from_different_samples_of_a_query():
    # Even samples: success 1, 0.5, 0 and length 9, 5, 1; odd ones: success 0, 0.5, 1 and length 1, 5, 9. Within a half
    # the easy are the long ones (ρ = 1); of success in one half and length in the other the reverse is true.
    table = rollouts(
        [[1, 0, 1, 0], [1, 1, 0, 0], [0, 1, 0, 1]],
        [[9, 1, 9, 1], [5, 5, 5, 5], [1, 9, 1, 9]],
    )
    assert length_difficulty(table, np.ones((1, 3)))[0] == pytest.approx(-1.0)


def test_advantage_and_length_leave_groups_without_signal_out():
    # One right of four: |A| = √3 for it and 1/√3 for the others; its length is the greatest of the four.
    table = rollouts([[1, 0, 0, 0], [1, 1, 1, 1]], [[8, 2, 3, 4], [90, 91, 92, 93]])
    expected = stats.spearmanr([3, 1, 1, 1], [8, 2, 3, 4]).statistic
    assert advantage_length(table, np.ones((1, 2)))[0] == pytest.approx(expected)
    # The query without signal resampled twice, the other never: nothing to correlate.
    assert np.isnan(advantage_length(table, np.array([[0.0, 2.0]]))[0])
    silent = rollouts([[1, 1]], [[3, 4]])
    assert np.isnan(advantage_length(silent, np.ones((1, 1)))).all()


def curve(arm, seed, tokens, accuracies, mix="m", diverged=False):
    return pd.DataFrame(
        {
            "mix": mix,
            "arm": arm,
            "seed": seed,
            "step": np.arange(len(tokens)) * 10,
            "trained_tokens": tokens,
            "paper_tokens": tokens,
            "accuracy": accuracies,
            "diverged": diverged,
        }
    )


def test_equal_tokens_are_what_the_thriftiest_arm_spends_in_all():
    evaluations = pd.concat(
        [
            curve("grpo", 0, [0, 100, 200], [0.2, 0.6, 0.8]),
            curve("grpo", 1, [0, 80, 240], [0.2, 0.4, 0.6]),
            curve("thrifty", 0, [0, 30, 60], [0.2, 0.5, 0.7]),
            curve("thrifty", 1, [0, 20, 40], [0.2, 0.3, 0.5]),
        ]
    )
    accuracy_A_S, step_A, budget = at_equal_tokens(evaluations, ["thrifty", "grpo"])
    assert budget == 50.0  # the mean of 60 and 40
    # thrifty: 0.5 + 0.2 · 20/30; its other seed has spent less in all and is taken where it ended
    assert accuracy_A_S[0] == pytest.approx([0.5 + 0.2 * 2 / 3, 0.5])
    assert accuracy_A_S[1] == pytest.approx([0.2 + 0.4 * 0.5, 0.2 + 0.2 * 50 / 80])
    assert step_A == pytest.approx([20.0, 10 * 50 / 90])


def test_a_run_that_diverged_stays_with_what_it_had():
    evaluations = pd.concat(
        [
            curve("grpo", 0, [0, 100, 200], [0.2, 0.6, 0.8]),
            curve("other", 0, [0, 100], [0.2, 0.4], diverged=True),
        ]
    )
    values = outcomes(evaluations, ["grpo", "other"])
    assert values["steps"]["m"].tolist() == [[0.8], [0.4]]
    assert values["tokens"]["m"].tolist() == [[0.6], [0.4]]


def test_intervals_pool_the_scatter_of_a_pair_over_mixes():
    one = np.array([[0.5, 0.6, 0.7], [0.4, 0.4, 0.4]])  # differences 0.1, 0.2, 0.3: sum of squares 0.02
    two = np.array([[0.5, 0.5], [0.5, 0.7]])  # differences 0, −0.2: sum of squares 0.02
    pairs = paired({"one": one, "two": two}, 0.95)
    half = stats.t.ppf(0.975, 3) * np.sqrt(0.04 / 3)  # three degrees of freedom
    assert pairs["one"].mean_A_A[0, 1] == pytest.approx(0.2) == -pairs["one"].mean_A_A[1, 0]
    assert pairs["one"].low_A_A[0, 1] == pytest.approx(0.2 - half / np.sqrt(3))
    assert pairs["two"].high_A_A[0, 1] == pytest.approx(-0.1 + half / np.sqrt(2))
    assert pairs["one"].low_A_A[0, 0] == 0.0 and pairs["one"].p_A_A[0, 0] == 1.0
    alone = paired({"one": one}, 0.95)["one"]
    assert alone.p_A_A[0, 1] == pytest.approx(stats.ttest_rel(one[0], one[1]).pvalue)
    assert np.isnan(paired({"one": one[:, :1]}, 0.95)["one"].low_A_A).all()


def test_three_seeds_alike_in_sign_are_resolved_as_seldom_as_stated():
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(400):
        pairs = paired({mix: rng.normal(size=(2, 3)) for mix in "abcd"}, 0.95)
        wrong += sum(own.low_A_A[0, 1] > 0 or own.high_A_A[0, 1] < 0 for own in pairs.values())
    assert wrong / 1600 == pytest.approx(0.05, abs=0.02)


@given(st.permutations(range(5)), st.permutations(range(5)))
def test_kendall_is_scipys(x, y):
    expected = stats.kendalltau(x, y).statistic
    assert kendall(np.array([x], float), np.array([y], float))[0] == pytest.approx(expected)


def test_agreement_of_clear_opposite_and_blurred_rankings():
    clear = np.array([[0.1, 0.11, 0.12], [0.5, 0.51, 0.52], [0.9, 0.91, 0.92]])
    rng = np.random.default_rng(1)
    taus = agreement({"a": clear, "b": -clear, "c": rng.normal(size=(3, 3))}, STATISTICS).set_index(["mix", "other"])
    assert taus.loc[("a", "b"), ["tau", "resampled", "low", "high"]].tolist() == [-1.0] * 4
    assert taus.loc[("a", "a"), "resampled"] == 1.0
    assert taus.loc[("c", "c"), "resampled"] < 0.9  # noise does not agree with itself
    assert np.isnan(agreement({"a": clear[:, :1]}, STATISTICS)["low"]).all()


def test_the_comparison_ranks_and_corrects_over_all_mixes(monkeypatch):
    """Ten seeds, two mixes; `summarise` has tests of its own, so its columns are stood in for."""
    arms, seeds = ["grpo", "random-subset", "d3s"], range(10)
    settings = settings_module.load(scale="smoke")
    regimes_of = settings.regimes.model_copy(update={"arms": arms})
    settings = settings.model_copy(update={"regimes": regimes_of, "statistics": STATISTICS})
    stood_in = {"title": arms, "seeds": 10, "diverged": 0}
    stood_in |= {f"trained_tokens_ratio_90{end}": 1.0 for end in ("", "_low", "_high", "_reached", "_open")}
    monkeypatch.setattr(regimes, "summarise", lambda *_, **__: pd.DataFrame({"arm": arms, **stood_in}))
    noise = {arm: np.random.default_rng(place).normal(0, 0.005, 10) for place, arm in enumerate(arms)}
    ends = {"default": (0.6, 0.6, 0.7), "few-silent": (0.6, 0.7, 0.6)}
    evaluations = pd.concat(
        curve(arm, seed, [0, 100], [0.3, end + noise[arm][seed]], mix)
        for mix, of_mix in ends.items()
        for arm, end in zip(arms, of_mix, strict=True)
        for seed in seeds
    )
    table = regimes.compare(evaluations, evaluations[["mix"]], settings).set_index(["mix", "arm"])
    assert table.loc[("default", "d3s"), "rank_steps"] == 1 == table.loc[("few-silent", "random-subset"), "rank_tokens"]
    assert table["resolved_steps"].tolist() == ["baseline", "not resolved", "more", "baseline", "more", "not resolved"]
    expected = 0.1 + (noise["d3s"] - noise["grpo"]).mean()
    assert table.loc[("default", "d3s"), "difference_steps"] == pytest.approx(expected)
    assert (table["budget"] == 100).all() and (table["budget_step"] == 10).all()
    mixes = pd.DataFrame({"mix": list(ends), "groups_without_signal": 0.5, "length_difficulty": 0.0})
    points = differences(table.reset_index(), mixes, settings, "?").interactive["columns"]
    fills = [points["fill"]["words"][place] for place in points["fill"]["at"]]
    assert points["value"][1] == pytest.approx(expected, rel=1e-3) and fills[:4] == ["white", *[fills[1]] * 2, "white"]
    pairs = regimes.differences(evaluations, arms, 0.95)
    above = pairs[(pairs["low"] > 0) & (pairs["measure"] == "steps")]
    assert list(zip(above["mix"], above["arm"], above["other"], strict=True)) == [
        ("default", "d3s", "grpo"),
        ("default", "d3s", "random-subset"),
        ("few-silent", "random-subset", "grpo"),
        ("few-silent", "random-subset", "d3s"),
    ]
    chosen = regimes.choices(pairs)
    assert set(chosen["arm"]) == {"d3s"} and set(chosen["other"]) == {"random-subset"} and len(chosen) == 4
    assert (chosen["low"] > 0).tolist() == [True, False] * 2 and (chosen["high"] < 0).tolist() == [False, True] * 2
    turned = regimes.reversals(pairs)
    assert turned.to_dict("records") == [
        {"measure": m, "arm": "d3s", "other": "random-subset", "above": ["default"], "below": ["few-silent"]}
        for m in ("steps", "tokens")
    ]
    taus = regimes.agreements(evaluations, settings)
    headline = regimes.headline(taus, table.reset_index()).loc["at equal steps"]
    assert (headline["compared"], headline["higher"], headline["lower"]) == (4, 2, 0)
    between = taus[(taus["measure"] == "steps") & (taus["mix"] != taus["other"])]
    assert headline["tau_mean"] == headline["tau_least"] == between["tau"].item()
    reading = regimes.regimes_table(table.reset_index(), settings)
    assert reading["mix"].tolist() == [
        "the study's own mix",
        "",
        "",
        settings.regimes.mixes["few-silent"].title,
        "",
        "",
    ]
    assert reading["difference, equal steps"].tolist()[::3] == ["–", "–"]
    assert reading["difference, equal steps"][2].startswith(f"{expected:+.3f} [+0.")
    assert reading["trained tokens (computed) to 90% of the rise"].tolist()[:2] == ["1", "1.00 [1.00, ≥ 1.00]"]


def test_a_cost_that_was_not_reached_is_a_lower_bound():
    row = {"cost": 0.9, "cost_low": 0.8, "cost_high": 1.0, "cost_reached": True, "cost_open": True}
    assert ratio(pd.Series(row), "cost") == "0.90 [0.80, ≥ 1.00]"
    assert ratio(pd.Series({**row, "cost_reached": False}), "cost") == "≥ 0.90"
    assert ratio(pd.Series({**row, "cost": np.nan}), "cost") == "undefined: the baseline did not rise"


def test_quarters_are_compared_with_the_quarter_chosen_at_random():
    settings = settings_module.load(scale="smoke")
    ends = {"random-quarter": (0.5, 0.6), "d1s": (0.6, 0.8), "pods": (0.4, 0.6), "grpo": (0.9, 0.9)}
    evaluations = pd.concat(
        curve(arm, seed, [0, 100], [0.3, of_arm[seed]]) for arm, of_arm in ends.items() for seed in (0, 1)
    ).drop(columns="mix")
    table = regimes.against_chance(evaluations, settings)
    assert table["measure"].tolist() == ["steps", "steps", "tokens", "tokens"]
    assert table["arm"].tolist() == ["d1s", "pods"] * 2 and set(table["other"]) == {"random-quarter"}
    assert table["difference"].tolist() == pytest.approx([0.15, -0.05] * 2) and set(table["seeds"]) == {2}
    half = stats.t.ppf(0.975, 1) * np.std([0.1, 0.2], ddof=1) / np.sqrt(2)
    assert table.loc[0, ["low", "high"]].tolist() == pytest.approx([0.15 - half, 0.15 + half])
    without = evaluations[evaluations["arm"] != "random-quarter"]
    assert regimes.against_chance(without, settings).empty


def test_a_reversal_needs_both_signs_resolved():
    high, low = np.array([0.80, 0.81, 0.82]), np.array([0.60, 0.62, 0.61])
    last = {"one": (high, low), "two": (low, high), "three": (high, high[::-1])}
    evaluations = pd.concat(
        curve(arm, seed, [0, 100], [0.3, ends[seed]], mix)
        for mix, of_mix in last.items()
        for arm, ends in zip("xy", of_mix, strict=True)
        for seed in range(3)
    )
    expected = {"arm": "x", "other": "y", "above": ["one"], "below": ["two"]}
    turned = regimes.reversals(regimes.differences(evaluations, ["x", "y"], 0.95))
    assert turned.to_dict("records") == [{"measure": measure, **expected} for measure in ("steps", "tokens")]
    without = evaluations[evaluations["mix"] != "two"]
    assert regimes.reversals(regimes.differences(without, ["x", "y"], 0.95)).empty
