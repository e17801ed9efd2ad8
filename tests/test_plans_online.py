"""Plans that learn: told of every group, again after a resume; what each makes of it, in closed form."""

from itertools import islice, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_run import GROUP, STEPS, Arm, new_trainer, pools, reward_with, run, weights

from repro import arms
from repro.arms import build
from repro.engine.checkpoint import Checkpoints
from repro.methods.filters.pass_rate import pass_rate
from repro.methods.guard import MethodError
from repro.methods.plans import PlannedGroup, PlanStream, Queries
from repro.methods.plans.bots import bots
from repro.methods.plans.greso import greso
from repro.methods.plans.knapsack import knapsack
from repro.methods.plans.mopps import mopps
from repro.methods.plans.retirement import retirement
from repro.methods.plans.uniform import uniform
from repro.settings import SettingsError, load

PLANS = {
    "greso": {"plan": "greso", "filter": "zero_variance"},
    "mopps": {"plan": "mopps"},
    "knapsack": {"plan": {"knapsack": {"group_size": 4, "largest": 8}}},
    "retirement": {"plan": "retirement", "filter": "pass_rate"},
}
PROMPTS = [query.prompt for query in pools().train]
NONE, ALL, HALF = np.zeros(4), np.ones(4), np.array([1.0, 1.0, 0.0, 0.0])
COSTS = np.full(4, 9)


def pool(n: int) -> Queries:
    return Queries(np.ones(n, int))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(autouse=True)
def solved_by_query(monkeypatch):
    """Of a group of query q the first q responses are right: none of the first query's, seven of the last's."""

    def score(texts, valid_N, queries_N):
        index_N = np.array([PROMPTS.index(query.prompt) if query.prompt in PROMPTS else 0 for query in queries_N])
        return (np.arange(len(texts)) % GROUP < index_N + (index_N == 6) * 2).astype(float)

    reward_with(monkeypatch, score)


def arm(name: str) -> Arm:
    return Arm(title=name, about="", group="", **PLANS[name])


def watched(trainer) -> list[tuple]:
    """(query, rewards, costs) as the plan is told of them."""
    seen, tell = [], trainer.plan._tell

    def telling(query, rewards_G, costs_G):
        seen.append((query, rewards_G.sum(), len(costs_G), (costs_G > rewards_G).all()))
        tell(query, rewards_G, costs_G)

    trainer.plan._tell = telling
    return seen


def test_a_plan_is_told_of_every_group_that_is_paid_for(tmp_path):
    trainer = new_trainer(arm("retirement"), refill_rounds=3)
    seen = watched(trainer)
    log = run(trainer, Checkpoints(tmp_path, "a"))
    assert len(seen) == log["steps"][-1]["queries"] == trainer.plan.taken > 2 * STEPS  # filtered ones too
    assert {query: solved for query, solved, _, _ in seen} == {q: q + 2 * (q == 6) for q, *_ in seen}
    assert all(size == GROUP and above for _, _, size, above in seen)
    last = [query for query, *_ in seen].index(6)
    assert 6 not in [query for query, *_ in seen][last + 1 :]  # solved as a whole, and retired


@pytest.mark.parametrize("name", PLANS)
def test_a_run_that_learns_goes_on_with_the_same_bits_wherever_it_stops(tmp_path, name):
    whole = new_trainer(arm(name), refill_rounds=3)
    log = run(whole, Checkpoints(tmp_path / "whole", "a"))
    plain = new_trainer("zvf" if "filter" in PLANS[name] else "grpo", refill_rounds=3)
    assert run(plain, Checkpoints(tmp_path / "plain", "a"))["selection"] != log["selection"]  # it did learn
    for stop_at in (3, STEPS):
        checkpoints = Checkpoints(tmp_path / f"cut-{stop_at}", "a")
        with pytest.raises(KeyboardInterrupt):
            run(new_trainer(arm(name), refill_rounds=3), checkpoints, stop_at)
        resumed = new_trainer(arm(name), refill_rounds=3)
        assert run(resumed, checkpoints) == log and weights(resumed) == weights(whole)
        assert resumed.plan.observed == whole.plan.observed


def test_a_resumed_plan_draws_and_observes_in_the_same_order():
    """Sizes that do not fill a step: the group that did not fit was drawn before what was observed then."""

    class Growing:
        def __init__(self):
            self.size = 3

        def __iter__(self):
            while True:
                yield PlannedGroup(self.size, self.size)

        def observe(self, query, rewards_G, costs_G):
            self.size += 1

    def stream():
        plan = Growing()
        return PlanStream(iter(plan), plan.observe)

    whole, sizes = stream(), []
    for _ in range(3):
        groups = whole.fill_step(8)
        sizes.append([group.size for group in groups])
        for group in groups:
            whole.observe(group.query, np.zeros(group.size), np.ones(group.size, int))
    assert sizes == [[3, 3], [3, 5], [7]]  # the second step's first was drawn in the first, which had room for two more
    resumed = stream()
    resumed.skip(whole.taken, whole.observed)
    assert resumed.observed == whole.observed and resumed.fill_step(8) == whole.fill_step(8)


def test_greso_skips_by_the_run_of_equal_groups_and_adapts_to_its_targets():
    plan = greso(pool(4), 8, rng(), group_size=4, exploration=0.5, target=0.3, change=0.1)
    assert [plan.kept(query) for query in range(4)] == [1.0] * 4
    plan.observe(0, NONE, COSTS)
    plan.observe(1, ALL, COSTS)  # a batch of two: half easy, half hard, above 0.1 and 0.2
    assert plan.exploration_K.tolist() == pytest.approx([0.4, 0.4])
    plan.observe(0, NONE, COSTS)
    plan.observe(2, HALF, COSTS)  # no easy one, and hard ones above their target
    assert plan.exploration_K.tolist() == pytest.approx([0.5, 0.3])
    assert [plan.kept(query) for query in range(4)] == pytest.approx([0.3**2, 0.5, 1.0, 1.0])
    plan.observe(0, HALF, COSTS)
    assert plan.kept(0) == 1.0


def test_greso_s_epochs_are_uniform_s_less_what_is_skipped():
    plan, plain = greso(pool(30), 8, rng(), group_size=4), uniform(pool(30), 8, rng(), group_size=4)
    groups = iter(plan)
    assert [next(groups) for _ in range(60)] == [next(plain) for _ in range(60)]
    for query in range(15):
        plan.equal_Q[query] = 2
    taken = [next(groups).query for _ in range(30 * 100)]
    assert np.mean(np.array(taken) < 15) == pytest.approx(0.25 / 1.25, abs=0.02)  # of half a quarter
    plan.equal_Q[:] = 2000  # each is skipped, but not for ever
    assert len({next(groups).query for _ in range(60)}) == 30


def test_mopps_asks_for_the_queries_nearest_its_target():
    plan = mopps(pool(3), 4, rng(), group_size=4, memory=1.0)
    for _ in range(100):
        plan.observe(0, NONE, COSTS), plan.observe(1, HALF, COSTS), plan.observe(2, ALL, COSTS)
    assert plan.counts_Q_2.tolist() == [[1, 401], [201, 201], [401, 1]]
    groups = iter(plan)
    assert {next(groups) for _ in range(50)} == {PlannedGroup(1, 4)}
    short = mopps(pool(1), 4, rng(), group_size=4, memory=0.5)
    for _ in range(60):
        short.observe(0, HALF, COSTS)
    assert short.counts_Q_2[0].tolist() == pytest.approx([5, 5])  # the fixed point of x/2 + 1/2 + 2


@given(st.lists(st.sampled_from([0, 0.1, 0.25, 0.5, 0.6, 0.9, 1]), min_size=3, max_size=3), st.integers(2, 6))
@settings(deadline=None)
def test_knapsack_is_worth_most_of_all_divisions_and_spends_all(rates, size):
    plan = knapsack(pool(3), 3 * size, rng(), group_size=size, largest=9, confidence=1 - 1e-12)  # needs all there is
    plan.rate_Q[:] = rates
    found = plan.sizes(np.arange(3)).tolist()

    def worth(sizes):
        return sum((1 - p**g - (1 - p) ** g) * p * (1 - p) ** 2 for p, g in zip(rates, sizes, strict=True))

    best = max(worth(sizes) for sizes in product(range(2, 10), repeat=3) if sum(sizes) <= 3 * size)
    assert worth(found) == pytest.approx(best, abs=1e-12) and sum(found) == 3 * size


def test_knapsack_gives_what_is_not_needed_to_the_unsolved_and_new_queries_their_size():
    plan = knapsack(pool(4), 32, rng(), group_size=8)
    assert [group.size for group in islice(plan, 4)] == [8] * 4
    for query, outcome in enumerate((NONE, HALF, ALL, NONE)):
        plan.observe(query, outcome, COSTS)
    assert plan.sizes(np.arange(4)).tolist() == [13, 5, 2, 12]  # ln 0.1 / ln 0.5 is 3.3: three beyond the smallest
    with pytest.raises(ValueError, match="knapsack: groups from 2 to 4 leave out 8, of new queries"):
        knapsack(pool(4), 32, rng(), largest=4)


def test_bots_learns_of_all_queries_from_the_batch_and_forgets():
    known = Queries(np.ones(4, int), np.array([0, 2, 4, 8]), np.full(4, 8))
    plan = bots(known, 8, rng(), group_size=4, forget=0.25, implicit=0.5)
    plan.observe(0, HALF, COSTS)
    assert plan.counts_Q_2.tolist() == [[1, 1]] * 4  # a batch has two groups
    plan.observe(1, ALL, COSTS)
    ability = (0.5 + 0.75) / (1 + 0.75)
    inferred = [0.5, 1.0, 0.5 + ability / 2, 1.0]
    expected = [[1 + share * rate, 1 + share * (1 - rate)] for rate, share in zip(inferred, [4, 4, 2, 2], strict=True)]
    assert plan.counts_Q_2.ravel() == pytest.approx(np.ravel(expected))
    plan.observe(0, NONE, COSTS), plan.observe(1, ALL, COSTS)
    assert plan.ability == pytest.approx(0.9 * ability + 0.1 * 0.75 / 1.75)
    sharp = bots(Queries(np.ones(3, int), np.array([0, 4, 8]), np.full(3, 8)), 4, rng(), group_size=4, forget=0.0)
    sharp.counts_Q_2 = np.array([[1.0, 401.0], [201.0, 201.0], [401.0, 1.0]])
    assert {group for group in islice(sharp, 50)} == {PlannedGroup(1, 4)}
    with pytest.raises(ValueError, match="this plan needs a profile of the training queries"):
        bots(pool(4), 8, rng())


def test_a_retired_query_comes_back_when_too_few_are_left():
    plan = retirement(pool(3), 8, rng(), group_size=4)
    plan.observe(0, ALL, COSTS)
    groups = iter(plan)
    assert {next(groups).query for _ in range(20)} == {1, 2}
    plan.observe(1, ALL, COSTS)  # one is left, and a step has two groups
    assert {next(groups).query for _ in range(20)} == {0, 1, 2}


def test_a_band_of_pass_rates_holds_its_bounds():
    rewards_N = np.concatenate([np.arange(5) < solved for solved in range(6)]).astype(float)
    group_N = np.repeat(np.arange(6), 5)
    assert pass_rate(rewards_N, group_N).tolist() == [False, True, True, True, True, False]
    assert pass_rate(rewards_N, group_N, low=0.5, high=1.0).tolist() == [False] * 3 + [True] * 3


class Global:
    drawn = 0

    def __init__(self, queries, rollouts_per_step, rng): ...

    def __iter__(self):
        while True:
            Global.drawn += 1
            yield PlannedGroup(Global.drawn % 5, 8)

    def observe(self, query, rewards_G, costs_G): ...


class Broken(Global):
    def observe(self, query, rewards_G, costs_G):
        rewards_G[0] = 2


def test_a_plan_that_could_not_be_resumed_is_refused_before_it_trains():
    smoke = load(scale="smoke")
    with pytest.raises(SettingsError, match="plan Global yields other groups the second time, after the same"):
        arms.check(smoke.with_arms({"own": {"plan": Global}}))
    with pytest.raises(SettingsError, match=r"plan Broken\.observe: ValueError: .*it must not write to what"):
        arms.check(smoke.with_arms({"own": {"plan": Broken}}))
    hidden = Arm(title="own", about="", group="", plan=lambda queries, budget, rng: Global(queries, budget, rng))
    with pytest.raises(MethodError, match="step 3: plan <lambda> returns what observes outcomes: give the"):
        build("own", hidden).made_plan(3, pool(4), 8, rng())
