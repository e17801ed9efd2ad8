"""Groups in stages: what is drawn, paid for and trained on; and the rules that say how much."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_run import ROLLOUTS, STEPS, Arm, new_trainer, pools, reward_with, run, weights

from repro.arms import build
from repro.engine.checkpoint import Checkpoints
from repro.methods.guard import MethodError
from repro.methods.plans import PlannedGroup, Queries
from repro.methods.plans.pilot_commit import pilot_commit
from repro.methods.plans.reinforce_ada import reinforce_ada
from repro.methods.rollouts import Rollouts
from repro.methods.samplers.balanced import balanced

PROMPTS = [query.prompt for query in pools().train]
PASSING = {1, 2, 5}
ARMS = {
    "speed-rl": {"plan": {"speed_rl": {"group_size": 8}}, "filter": "zero_variance"},
    "reinforce-ada": {"plan": {"reinforce_ada": {"group_size": 4, "rounds": 2}}, "samplers": ["balanced"]},
    "pilot-commit": {"plan": {"pilot_commit": {"pilot": 2, "group_size": 4}}},
}


def pool(n: int) -> Queries:
    return Queries(np.ones(n, int))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def arm(name: str) -> Arm:
    return Arm(title=name, about="", group="", **ARMS[name])


@pytest.fixture(autouse=True)
def mixed_for_some(monkeypatch):
    """Every second response to the queries PASSING is right, and none to the others."""

    def score(texts, valid_N, queries_N):
        index_N = np.array([PROMPTS.index(query.prompt) if query.prompt in PROMPTS else 0 for query in queries_N])
        return np.where(np.isin(index_N, list(PASSING)), np.arange(len(texts)) % 2, 0).astype(float)

    reward_with(monkeypatch, score)


def test_the_screened_groups_are_drawn_to_their_end_and_all_rollouts_are_paid_for(tmp_path):
    trainer = new_trainer(arm("speed-rl"), kl_probe=ROLLOUTS)
    seen, tell = [], trainer.plan.fill_step
    trainer.plan.fill_step = lambda budget: [seen.append(group.query) or group for group in tell(budget)]
    log = run(trainer, Checkpoints(tmp_path, "a"))
    last = log["steps"][-1]
    grown = sum(query in PASSING for query in seen)
    assert last["rollouts"] == 4 * len(seen) + 4 * grown and last["queries"] == len(seen) + grown
    for step in (0, 2, 4):
        rows = [row for row in log["selection"] if row["step"] == step]
        queries = [row["query"] for row in rows[::8]]
        assert len(rows) == ROLLOUTS and set(queries) <= PASSING  # full batches, all of both stages trained on
        assert [row["query"] for row in rows] == np.repeat(queries, 8).tolist()
        assert [row["reward"] for row in rows] == [0, 1] * 8 and all(row["times_trained"] == 1 for row in rows)
    # Before the first update the policy is the reference: each response still has its own prompt and log-probabilities.
    assert log["steps"][0]["kl"] == pytest.approx(0.0, abs=1e-9) and log["steps"][-1]["kl"] > 1e-6


@pytest.mark.parametrize("name", ARMS)
def test_a_run_in_stages_goes_on_with_the_same_bits(tmp_path, name):
    whole = new_trainer(arm(name))
    log = run(whole, Checkpoints(tmp_path / "whole", "a"))
    rollouts = np.diff([0, *(row["rollouts"] for row in log["steps"])])
    assert (rollouts > ROLLOUTS - 8).all()  # a step takes groups while the largest fits
    if name != "speed-rl":
        assert rollouts.max() <= ROLLOUTS  # no filter: what is drawn is what the step has room for
    checkpoints = Checkpoints(tmp_path / "cut", "a")
    with pytest.raises(KeyboardInterrupt):
        run(new_trainer(arm(name)), checkpoints, 3)
    resumed = new_trainer(arm(name))
    assert run(resumed, checkpoints) == log and weights(resumed) == weights(whole)
    assert len(log["steps"]) == STEPS


@given(st.lists(st.booleans(), min_size=32, max_size=32), st.sampled_from(["balance", "positive"]))
def test_reinforce_ada_stops_at_the_first_round_with_enough(rewards, until):
    plan, rewards_N = reinforce_ada(pool(4), 32, rng(), until=until), np.array(rewards, float)
    drawn, room = 8, 24
    while more := plan.more([0], [rewards_N[:drawn]], room)[0]:
        assert more == 8
        drawn, room = drawn + more, room - more

    def enough(n):
        right = int(rewards_N[:n].sum())
        return min(right, n - right) >= 4 if until == "balance" else right >= 1

    assert drawn == next((n for n in (8, 16, 24) if enough(n)), 32)


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=9), min_size=1, max_size=4), st.integers(2, 6))
def test_balanced_keeps_as_many_of_either_side_as_there_are(groups, keep):
    rewards_N = np.concatenate(groups).astype(float)
    group_N = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    signs_N = 2 * rewards_N - 1
    ones_N = np.ones(len(rewards_N), int)
    batch = Rollouts.from_batch(
        group_N=group_N, rewards_N=rewards_N, advantages_N=signs_N, prompt_tokens_N=ones_N, response_tokens_N=ones_N
    )
    kept = balanced(batch, 0.0, rng(), keep=keep)
    for group, given_rewards in enumerate(groups):
        own, n, right = kept.group_N == group, len(given_rewards), sum(given_rewards)
        assert own.sum() == min(keep, n)
        least = min(range(max(0, keep - n + right), min(keep, right) + 1) or [right], key=lambda p: abs(2 * p - keep))
        assert abs((kept.advantages_N[own] > 0).sum() - least) <= (keep % 2)


def test_pilot_commit_gives_the_room_to_the_pilots_that_vary_most():
    plan = pilot_commit(pool(8), 32, rng(), group_size=8, pilot=4)
    pilots = [np.array(rewards, float) for rewards in ([0, 0, 0, 1], [0, 1, 0, 1], [0] * 4, [1] * 4)]
    assert plan.more([0, 1, 2, 3], pilots, 16) == [8, 8, 0, 0]
    assert plan.more([3, 2, 1], pilots[::-1][:3], 12) == [0, 0, 12]  # half of three, and one of the two is silent
    assert plan.more([0], [np.array([0, 1] * 6)], 3) == [0]  # committed already


class Greedy:
    wanted = 5

    def __init__(self, queries, rollouts_per_step, rng): ...

    def __iter__(self):
        while True:
            yield PlannedGroup(0, 4, 4)

    def more(self, queries_Q, rewards_Q, room):
        return self.wanted if isinstance(self.wanted, list) else [self.wanted] * len(queries_Q)


@pytest.mark.parametrize("wanted", [5, -1, 1.5, [4, 4, 0]])
def test_a_plan_that_asks_for_what_there_is_no_room_for_is_told(monkeypatch, wanted):
    monkeypatch.setattr(Greedy, "wanted", wanted)
    stream = build("own", Arm(title="own", about="", group="", plan=Greedy)).made_plan(0, pool(4), 16, rng())
    assert [group.later for group in stream.fill_step(16)] == [4, 4]
    with pytest.raises(
        MethodError, match=r"plan Greedy\.more returned .* list of 2 whole numbers.* at most 8 together"
    ):
        stream.more([0, 0], [np.zeros(4)] * 2, 8)
