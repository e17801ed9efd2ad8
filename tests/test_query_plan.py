"""The table of a plan agrees with the plan, and its prediction with the posterior."""

from itertools import chain

import numpy as np
import pandas as pd
import pytest

from repro.engine.query_plan import by_class, plan_table, predicted
from repro.methods.group_sizes.posterior import beta_binomial, fit_population
from repro.methods.plans import PlanStream
from repro.methods.plans.sgpo import sgpo
from repro.protocol.profile import Profile, Source
from repro.tasks.queries import Query

K, BUDGET, UNIFORM = 4, 16, 8
SUCCESSES_Q = np.array([4, 0, 1, 2, 0, 3, 0, 4, 0])  # sizes 2, 8, 4, 2, 8, 2, 8, 2, 8 where `largest` is 8
QUERIES = [Query(f"{index}+1=", str(index + 1), "sum-2" if index < 5 else "sum-3", {}) for index in range(9)]


def profile(successes_Q=SUCCESSES_Q) -> Profile:
    correct_Q_K = np.arange(K) < np.asarray(successes_Q)[:, None]
    source = Source("policy", "queries", 1.0, 96, 0)
    return Profile(source, correct_Q_K, np.full(correct_Q_K.shape, 9), np.full(len(correct_Q_K), 5))


def table(steps: int = 8, **parameters) -> pd.DataFrame:
    return plan_table(profile(), QUERIES, {"largest": 8, **parameters}, BUDGET, steps, np.random.default_rng(0))


def test_a_row_says_what_becomes_of_its_query():
    """Four unsolvable, of which one is kept: 3/4, 2/4, 1/4, 0 with 2, 2, 4 and 8 rollouts fill the first step."""
    found = table(steps=1, unsolvable_share=0.25)
    assert found["class"].tolist() == ["trivial" if s == 4 else "learnable" if s else "unsolvable" for s in SUCCESSES_Q]
    assert found["rate"].tolist() == (SUCCESSES_Q / K).tolist() and set(found["samples"]) == {K}
    [lot] = found.index[found["kept"] & (found["successes"] == 0)]
    for place, (query, size) in enumerate([(5, 2), (3, 2), (2, 4), (lot, 8)]):
        row = found.loc[query]
        assert (row["place"], row["group_size"], row["step"], row["visits"]) == (place, size, 0, 1) and row["kept"]
    left = found[~found["kept"]]
    assert len(left) == 5 and left["place"].isna().all() and left["step"].isna().all()
    assert left["group_size"].eq(0).all() and left["visits"].eq(0).all()
    assert found["family"].tolist() == ["sum-2"] * 5 + ["sum-3"] * 4 and found["prompt"][0] == "0+1="


def test_steps_and_visits_are_those_of_the_plan():
    found = table(unsolvable_share=0.5)
    known, parameters = profile().known(), {"largest": 8, "unsolvable_share": 0.5}
    stream = PlanStream(sgpo(known, BUDGET, np.random.default_rng(0), **parameters))
    steps = [[group.query for group in stream.fill_step(BUDGET)] for _ in range(8)]
    visits = list(chain(*steps))
    for query, row in found.iterrows():
        assert row["visits"] == visits.count(query)
        first = next((step for step, groups in enumerate(steps) if query in groups), None)
        assert row["step"] == first if first is not None else pd.isna(row["step"])
    later = found[
        (found["step"] > 1) & ~found["kept"]
    ]  # an epoch of 24 rollouts ends in step 1: these are lots of others
    assert later["group_size"].eq(8).all() and found[found["kept"]]["step"].max() == 1


def test_accounts_add_up():
    found = table(unsolvable_share=0.5)
    classes = by_class(found)
    assert classes["queries"].to_dict() == {"trivial": 2, "learnable": 3, "unsolvable": 4, "all": 9}
    assert classes["rollouts"].to_dict() == {"trivial": 0, "learnable": 8, "unsolvable": 16, "all": 24}
    assert classes.loc["unsolvable", "share"] == pytest.approx(2 / 3) and np.isnan(classes.loc["trivial", "per_100"])
    assert classes["informative"][:3].sum() == pytest.approx(classes.loc["all", "informative"])


def test_the_prediction_is_the_posterior_s_and_the_best_is_best():
    found = predicted(table(unsolvable_share=0.5), UNIFORM)
    alpha, beta = fit_population(SUCCESSES_Q, K)

    def informative(successes, size):  # by the distribution of a group's successes: neither none nor all
        return 1 - beta_binomial(alpha + successes, beta + K - successes, size)[[0, -1]].sum()

    plan = sum(informative(successes, size) for successes, size in [(3, 2), (2, 2), (1, 4), (0, 8), (0, 8)])
    uniform = sum(informative(successes, UNIFORM) for successes in SUCCESSES_Q)
    assert found["informative"][["plan", "uniform"]].tolist() == pytest.approx([plan, uniform])
    assert found["rollouts"].to_dict() == {"plan": 24, "uniform": 72, "best": 24}
    assert found.loc["plan", "ratio"] == pytest.approx(plan / 24 / (uniform / 72))
    assert found.loc["best", "informative"] > plan and found.loc["uniform", "ratio"] == 1


def test_steps_that_end_within_the_epoch_leave_its_queries_without_a_step():
    short = table(steps=1, unsolvable_share=1.0)
    kept = short[short["kept"]]
    assert len(kept) == 7 and kept["group_size"].sum() == 40 and kept["step"].notna().sum() == 4


def test_one_sample_of_each_query_is_read_under_a_uniform_prior():
    single = plan_table(profile().first(1), QUERIES, {"largest": 8}, BUDGET, 1, np.random.default_rng(0))
    expected = sum(1 - beta_binomial(1 + s, 2 - s, UNIFORM)[[0, -1]].sum() for s in single["successes"])
    assert predicted(single, UNIFORM).loc["uniform", "informative"] == pytest.approx(expected)
