"""sGPO's group size: closed forms by hand and over every outcome, allocations against brute force, plans by drawing.
`cells` are the variables of notebooks/theory/group_size.ipynb after a small run."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import roots_jacobi
from theory_cells import run_cells

from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.group_sizes import posterior as profile
from repro.methods.group_sizes import rule
from repro.methods.group_sizes.allocation import allocate, allocate_profile, frontier, sizes_at_price
from repro.stats.verdicts import words
from repro.theory.group_size import Plan, Population, compare, informative, over_sizes, plans

SMALL = Population(
    alpha=0.5, beta=0.8, samples=4, uniform=6, smallest=2, largest=12,
    unsolvable_share=0.25, passes=4, profile_price=0.25,
)  # fmt: skip
GAINS = ("informative", "advantage", "greatest")
inside = st.floats(1e-3, 1 - 1e-3)
parameters = st.floats(0.2, 20.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("group_size")


@pytest.fixture(scope="module")
def cells(folder) -> SimpleNamespace:
    return SimpleNamespace(**run_cells("group_size", folder, n_groups=4000, n_queries=200, n_trials=100))


def gains_of(posteriors_Q, sizes_G) -> np.ndarray:
    return profile.gain_table(*np.array(posteriors_Q).T, sizes_G)


def total(gains_Q_G, sizes_G, sizes_Q) -> float:
    return sum(row[list(sizes_G).index(size)] for row, size in zip(gains_Q_G, sizes_Q, strict=True) if size)


def test_two_and_three_rollouts_by_hand(cells):
    # p = 1/2, G = 2: half the groups are mixed, with advantages +1 and −1.
    for value in (informative, cells.mean_advantage, cells.best_advantage, cells.one_success):
        assert value(0.5, 2) == pytest.approx(0.5)
    # p = 1/3, G = 3: one success (4/9) has √2, two (2/9) have 1/√2; the mean |A| is 2√2/3 in both.
    assert informative(1 / 3, 3) == pytest.approx(6 / 9)
    assert cells.one_success(1 / 3, 3) == pytest.approx(4 / 9)
    assert cells.mean_advantage(1 / 3, 3) == pytest.approx(6 / 9 * 2 * np.sqrt(2) / 3)
    assert cells.best_advantage(1 / 3, 3) == pytest.approx(4 / 9 * np.sqrt(2) + 2 / 9 / np.sqrt(2))
    assert cells.readings(0.1)["net_of_price"][1](1 / 3, 3) == pytest.approx(6 / 9 - 0.3)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_outcome_of_a_group_as_training_normalises_it(cells, size):
    p, expected = 0.3, np.zeros(4)
    for rewards in itertools.product((0, 1), repeat=size):
        A_G = group_normalised(np.array(rewards), np.zeros(size, int), delta=0.0)
        chance = p ** sum(rewards) * (1 - p) ** (size - sum(rewards))
        expected += chance * np.array([A_G.any(), np.abs(A_G).mean(), A_G.max(), sum(rewards) == 1])
    values = (informative, cells.mean_advantage, cells.best_advantage, cells.one_success)
    assert [float(value(p, size)) for value in values] == pytest.approx(expected)


def test_the_rule_rounds_up_and_stays_within_its_bounds():
    assert (rule.rule_size(np.arange(1, 50) / 49) == [-(-49 // s) if s < 25 else 2 for s in range(1, 50)]).all()
    assert rule.rule_size([0.0, 0.01, 1 / 3, 1.0], 2, 32).tolist() == [32, 32, 3, 2]


@given(inside)
@settings(deadline=None)
def test_what_each_reading_asks_for_at_any_p(cells, p):
    sizes_G = range(2, 40)
    mean_G = over_sizes(cells.mean_advantage, p, sizes_G)
    assert (np.diff(mean_G) > 0).all() and mean_G[-1] < 2 * np.sqrt(p * (1 - p))
    rate_G = over_sizes(informative, p, sizes_G) / sizes_G
    assert rate_G[:2] == pytest.approx([p * (1 - p)] * 2) and (rate_G <= rate_G[0] * (1 + 1e-9)).all()
    lone_G = over_sizes(cells.one_success, p, range(1, int(1 / p) + 3))
    assert lone_G[int(1 / p + 1e-9) - 1] == pytest.approx(lone_G.max())
    assert informative(p, 7) == pytest.approx(informative(1 - p, 7))  # the rule is not so even-handed
    assert cells.one_success([0.0, 1.0], 3) == pytest.approx([0, 0])


def test_at_a_price_the_rule_is_right_at_one_p_alone(cells):
    sizes_G = np.arange(2, 800)
    for price in (0.002, 0.01):
        p_P = np.array([0.9 * price, np.e * price, 8 * price])
        best_P = sizes_G[(over_sizes(informative, p_P, sizes_G) - price * sizes_G).argmax(axis=1)]
        assert best_P[1] == pytest.approx(1 / p_P[1], rel=0.05) and best_P[2] > 1.5 / p_P[2]
        assert cells.priced_size(p_P, price) == pytest.approx([0, 1 / p_P[1], np.log(8) / p_P[2]])
        assert (informative(p_P[0], sizes_G[0]) - price * sizes_G[0]) < 0


def test_what_one_and_two_samples_say():
    assert [float(x) for x in profile.posterior(1, 4, 0.5, 2.0)] == [1.5, 5.0]
    assert profile.beta_binomial(1.0, 1.0, 3) == pytest.approx([1 / 4] * 4)  # p uniform: every count as likely
    # K = 2, p = 1/2: s = 1 twice as likely as s = 2, so E[1/p̂ | s > 0] = 5/3; E[3/(s+1)] = 7/4.
    assert profile.inverse_ratio(0.5, 2) == pytest.approx(5 / 6)
    assert profile.add_one_ratio(0.5, 2) == pytest.approx(7 / 8)
    # One sample, p uniform: half solved; of these p < 0.9 with probability 0.81.
    found = profile.misfiled(1, 1.0, 1.0, 0.1)
    assert list(found.values()) == pytest.approx([0.5, 0.405, 0.5, 0.405])


@given(parameters, parameters, st.integers(0, 30))
@settings(deadline=None, max_examples=30)
def test_expectations_over_a_posterior_are_integrals(cells, a, b, size):
    # All three are polynomials of degree G in p, for which 20 nodes are exact up to degree 39.
    x_P, weights_P = roots_jacobi(20, b - 1, a - 1)
    for expected, value in (
        (profile.expected_informative, informative),
        (profile.expected_mean_advantage, cells.mean_advantage),
        (profile.expected_best_advantage, cells.best_advantage),
    ):
        mean = weights_P @ value((1 + x_P) / 2, size) / weights_P.sum()
        assert expected(a, b, size) == pytest.approx(mean, rel=1e-6, abs=1e-9)


def test_a_profile_gives_its_population_back():
    rng = np.random.default_rng(0)
    success_Q = rng.binomial(8, rng.beta(0.6, 1.4, 20_000))
    assert profile.fit_population(success_Q, 8) == pytest.approx((0.6, 1.4), rel=0.1)


@given(st.lists(st.tuples(parameters, parameters), min_size=1, max_size=4), st.integers(2, 3), st.integers(0, 16))
@settings(deadline=None, max_examples=40)
def test_allocations_against_all_there_are(posteriors_Q, smallest, budget):
    sizes_G = range(smallest, 7)
    gains_Q_G = gains_of(posteriors_Q, sizes_G)
    kept_budget = max(budget, smallest * len(posteriors_Q))
    for drop, limit in ((True, budget), (False, kept_budget)):
        choices = ([0] if drop else []) + list(sizes_G)
        every = [q for q in itertools.product(choices, repeat=len(posteriors_Q)) if sum(q) <= limit]
        best = max(total(gains_Q_G, sizes_G, sizes_Q) for sizes_Q in every)
        sizes_Q = allocate(gains_Q_G, sizes_G, limit, drop=drop)
        reached = total(gains_Q_G, sizes_G, sizes_Q)
        assert sizes_Q.sum() <= limit and set(sizes_Q) <= set(choices)
        assert reached <= best + 1e-12
        if drop:
            assert reached >= best - gains_Q_G[:, 0].max()
            curve = frontier(gains_Q_G, sizes_G, np.ones(len(posteriors_Q)))
            assert best <= curve.gain(limit) + 1e-9
        else:
            assert reached == pytest.approx(best)


def test_an_allocation_gives_the_even_query_most_and_the_hopeless_nothing():
    gains_Q_G = gains_of([(50, 50), (1, 200), (5, 15), (200, 1)], range(2, 33))
    sizes_Q = allocate(gains_Q_G, range(2, 33), 14)
    assert sizes_Q.sum() == 14 and sizes_Q[1] == sizes_Q[3] == 0 < sizes_Q[0] <= sizes_Q[2]
    price = frontier(gains_Q_G, range(2, 33), np.ones(4)).price(13.5)
    assert sizes_at_price(gains_Q_G, range(2, 33), price * (1 - 1e-9)).tolist() == sizes_Q.tolist()


def test_a_profile_is_enough_to_allocate():
    success_Q = np.repeat(np.arange(9), 40)
    given = allocate_profile(success_Q, 8, range(2, 17), 1000, population=(1.0, 1.0))
    assert given.sum() == 1000 and given[success_Q == 4].min() >= given[success_Q == 8].max()
    fitted = allocate_profile(success_Q, 8, range(2, 17), 1000)  # as many queries of every count: nearly uniform p
    assert np.abs(fitted - given).mean() < 0.1
    assert allocate_profile(success_Q, 8, range(2, 17), 1000, drop=False).min() >= 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: informative(1.2, 4), r"p = 1\.2"),
        (lambda: rule.rule_size(0.0), "give the largest group size"),
        (lambda: profile.posterior(5, 4, 1, 1), r"5\.0 successes"),
        (lambda: allocate([[0.1, 0.2]], [2, 4], 4), "consecutive"),
        (lambda: allocate([[0.1, 0.1]], [2, 3], 1, drop=False), "exceed the budget of 1"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_plans_say_what_the_method_says():
    found = plans(SMALL)
    assert found["sgpo"].sizes_S.tolist() == [12, 4, 2, 2, 2]
    assert found["sgpo"].kept_S.tolist() == [0.25, 1, 1, 1, 0]
    assert found["strict"].kept_S.tolist() == [0, 1, 1, 1, 0]
    assert found["shrunken"].sizes_S.tolist() == [5, 3, 2, 2, 2]
    assert found["uniform"].kept_S.tolist() == [1] * 5 and not found["uniform"].profiled
    weights_S = profile.beta_binomial(0.5, 0.8, 4)
    row = compare(SMALL).loc["sgpo"]
    assert row["rollouts"] == pytest.approx(weights_S @ [3, 4, 2, 2, 0])
    assert row["saving_pass"] == pytest.approx(6 / (row["rollouts"] + 4 * 0.25 / 4))


@given(st.lists(st.sampled_from([0, 2, 3, 5, 8, 12]), min_size=5, max_size=5), st.lists(inside, min_size=5, max_size=5))
@settings(deadline=None, max_examples=40)
def test_no_plan_brings_more_than_the_best_does(sizes_S, kept_S):
    plan = Plan("any", np.array(sizes_S), np.array(kept_S))
    weights_S = SMALL.weights_S * plan.kept_S
    groups_S = [
        profile.expected_informative(a, b, size) for a, b, size in zip(*SMALL.posterior_S, sizes_S, strict=True)
    ]
    assert weights_S @ groups_S <= SMALL.best.gain(weights_S @ plan.sizes_S) + 1e-9
    assert SMALL.best.gain(3.0) <= SMALL.known.gain(3.0) * 1.001  # 400 probabilities stand for the population
    assert SMALL.unprofiled.gain(3.0) <= SMALL.best.gain(3.0)


def test_drawn_groups_and_profiles_agree_with_the_closed_forms(cells):
    groups, profiles = cells.simulate_groups(4000, 1), cells.simulate_profiles(SMALL, 20_000, 0.05, 1)
    assert (len(groups), len(profiles)) == (120, 16)
    for table in (groups, profiles):
        assert cells.deviation("some", table).outcome == "holds"
    assert cells.deviation("some", groups.assign(exact=groups["exact"] * 1.1)).outcome == "refuted"


def test_drawn_plans_agree_with_their_expectations(cells):
    compared, trials = compare(SMALL), cells.simulate_plans(SMALL, 300, 100, 0)
    mean = trials.groupby("plan")[["rollouts", *GAINS]].mean() / 300
    error = trials.groupby("plan")[["rollouts", *GAINS]].std() / 300 / np.sqrt(100)
    for plan, row in compared.iterrows():
        spent = row["rollouts"]
        expected = {"informative": row["informative"], "advantage": row["advantage"] * spent}
        expected |= {"rollouts": spent + row["profile"], "greatest": row["greatest"] * spent}
        for name, value in expected.items():
            assert abs(mean.loc[plan, name] - value) <= 4.5 * error.loc[plan, name] + 1e-9, (plan, name)
    ratio, (low, high) = cells.saving(trials, "informative", "sgpo", "uniform", 0)
    assert low < ratio < high and low < compared.loc["sgpo", "saving_rate"] < high
    again = cells.simulate_plans(SMALL, 300, 100, 0)
    assert again.equals(trials) and not cells.simulate_plans(SMALL, 300, 100, 1).equals(trials)


def test_the_rule_is_right_for_one_reading_and_wrong_for_another(cells):
    outcome = {verdict.id: verdict.outcome for verdict in cells.verdicts}
    assert outcome["rule-greatest-advantage"] == outcome["priced-size"] == "holds"
    assert outcome["rule-mean-advantage"] == outcome["rule-informative-groups"] == "refuted"
    least = {verdict.id: verdict.value for verdict in cells.verdicts}
    assert least["rule-informative-groups"] == pytest.approx(0.639, abs=1e-3)
    table = cells.against_rule(cells.success_grid(21), price=0.05)
    best = table.pivot(index="criterion", columns="p", values="best_size")
    assert best.loc["informative", 0.1] == 2 and best.loc["mean_advantage", 0.1] == 200
    assert best.loc["one_success", 0.1] in (9, 10)
    assert best.loc["best_advantage", 0.01] == 86


def test_savings_over_other_samples_baselines_and_difficulties(cells):
    uniform = cells.by_baseline(SMALL, (4, 6))
    assert dict(uniform.loc[6]) == pytest.approx(dict(compare(SMALL).loc["bayes", cells.SAVINGS]))
    difficulty = cells.by_difficulty(SMALL, (0.3, 0.6), (1.0,))
    assert difficulty["of_best"].max() <= 1 and difficulty[cells.SAVINGS].notna().all(axis=None)
    other = compare(replace(SMALL, alpha=0.3, beta=0.7)).loc["sgpo", "saving_rate"]
    chosen = difficulty[(difficulty["plan"] == "sgpo") & (difficulty["mean"] == 0.3)]
    assert chosen["saving_rate"].item() == pytest.approx(other)
    samples = cells.by_samples(SMALL, (2, 4), 0.05)
    assert samples.loc[4, "unsolvable"] == pytest.approx(profile.misfiled(4, 0.5, 0.8, 0.05)["unsolvable"])
    assert (samples["known"] <= 1.001).all()  # 400 probabilities stand for the population


def test_a_factor_of_three_depends_on_the_baseline_and_on_the_queries(cells):
    outcome = {verdict.id: verdict.outcome for verdict in cells.verdicts}
    three = {id.removeprefix("saving-three-"): found for id, found in outcome.items() if id.startswith("saving-three")}
    reached = ["uniform-32-informative", "uniform-32-greatest"]
    reached += ["best-population-uniform-8", "best-population-uniform-32"]
    reached += [f"inverse-{name}" for name in reached]
    assert set(three.values()) == {"reached", "not reached"}
    assert sorted(id for id, found in three.items() if found == "reached") == sorted(reached) and len(three) == 20
    rates = {plan: table.loc[[8, 32], "saving_rate"].tolist() for plan, table in cells.baselines.items()}
    assert rates == {
        "bayes": pytest.approx([1.25, 3.79], abs=0.005),
        "sgpo": pytest.approx([1.02, 3.10], abs=0.005),
    }
    assert cells.three_times.groupby("uniform").sum().to_dict() == {8: 3, 32: 37}
    held = [id for id, found in outcome.items() if found == "refuted"]
    assert held == ["rule-mean-advantage", "rule-informative-groups"]  # at every p, whatever the population


def test_files_every_verdict_has_words_and_every_figure_is_drawn(cells, folder):
    verdicts = pd.read_parquet(folder / "verdicts.parquet")
    assert list(verdicts["id"]) == list(words("group_size")) and len(list(folder.iterdir())) == 9
    assert pd.read_parquet(folder / "by_samples.parquet")["samples"].tolist() == [2, 4, 8, 16, 32]
    shown = replace(SMALL, alpha=1.0, beta=1.0, samples=8)  # what the sliders draw
    figures = [cells.draw_readings(0.1, 0.05, cells.groups), cells.draw_frontiers(shown), cells.figure]
    assert all(ax.has_data() for figure in figures for ax in figure.axes)
