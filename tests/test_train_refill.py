"""Filtered groups and refill: full batches, all generation paid for, the plan in order, nothing passing survived."""

import numpy as np
import pytest
import torch
from tiny_run import GROUP, ROLLOUTS, STEPS, new_trainer, parity, pools, reward_with, run, weights

from repro.engine.batch import Groups
from repro.engine.checkpoint import Checkpoints
from repro.engine.generate import Responses
from repro.methods.plans import PlannedGroup, PlanStream, Queries
from repro.protocol.collect import join
from repro.protocol.streams import stream_seed

BATCH = ROLLOUTS // GROUP  # groups that fill a batch
QUERIES = [query.prompt for query in pools().train]


@pytest.fixture(autouse=True)
def score_parity(monkeypatch):
    reward_with(monkeypatch, parity)


def mixed_only(monkeypatch, passing: set[int]) -> None:
    """Every second response to the queries `passing` is right; to the others, all of an odd query's and none else."""

    def score(texts, valid_N, queries_N):
        index_N = np.array([QUERIES.index(query.prompt) if query.prompt in QUERIES else 0 for query in queries_N])
        return np.where(np.isin(index_N, list(passing)), np.arange(len(texts)) % 2, index_N % 2).astype(float)

    reward_with(monkeypatch, score)


def planned_order(trainer, count: int) -> list[int]:
    """The queries of the first `count` groups of the run's plan."""
    rng = np.random.default_rng(stream_seed(trainer.seed, 0, "plan"))
    stream = PlanStream(trainer.method.plan(Queries(np.ones(len(QUERIES), int)), ROLLOUTS, rng))
    return [stream.fill_step(GROUP)[0].query for _ in range(count)]


def watch(trainer) -> list[list[int]]:
    """The queries of each round of generation, as they come."""
    rounds, generate = [], trainer._generate

    def watched(planned, *rest):
        rounds.append([group.query for group in planned])
        return generate(planned, *rest)

    trainer._generate = watched
    return rounds


def expected_rounds(order: list[int], passing: set[int], limit: int) -> tuple[list[list[list[int]]], list[list[int]]]:
    """(rounds of each step, queries kept in each step), simulated group by group."""
    waiting, rounds, kept = iter(order), [], []
    for _ in range(STEPS):
        batch, taken = [], []
        while len(batch) < BATCH and len(taken) < limit:
            taken.append([next(waiting) for _ in range(BATCH - len(batch))])
            batch += [query for query in taken[-1] if query in passing]
        rounds.append(taken)
        kept.append(batch)
    return rounds, kept


@pytest.mark.parametrize("passing", [{0, 1, 2, 3, 4, 5, 6}, {1, 2, 5}, {4}], ids=["all", "some", "one"])
@pytest.mark.parametrize("limit", [1, 2, 10])
def test_a_batch_is_full_or_the_rounds_are_used_up(tmp_path, monkeypatch, passing, limit):
    mixed_only(monkeypatch, passing)
    trainer = new_trainer("zvf", refill_rounds=limit)
    rounds = watch(trainer)
    log = run(trainer, Checkpoints(tmp_path, "a"))
    order = planned_order(trainer, STEPS * BATCH * limit)
    expected, kept = expected_rounds(order, passing, limit)
    assert rounds == [taken for step in expected for taken in step]
    visited = [query for taken in rounds for query in taken]
    assert visited == order[: len(visited)] and trainer.plan.taken == len(visited)  # none lost, none twice, in order

    seen = 0
    for row, taken, batch in zip(log["steps"], expected, kept, strict=True):
        groups = [query for part in taken for query in part]
        seen += len(groups)
        assert len(batch) == BATCH or row["refill_rounds"] == limit - 1
        assert row["refill_rounds"] == len(taken) - 1
        assert (row["queries"], row["rollouts"]) == (seen, seen * GROUP)  # paid for, kept or not
        silent = sum(query not in passing for query in groups)
        assert row["groups_without_signal"] == pytest.approx(silent / len(groups))
        assert row["skipped"] == (not batch)
        assert row["selected_rollouts"] == (len(batch) * GROUP if batch else None)
        assert row["usefulness"] == (1.0 if batch else None)
    tokens = np.diff([0, *(row["generated_tokens"] for row in log["steps"])])
    made = np.diff([0, *(row["rollouts"] for row in log["steps"])])
    assert tokens == pytest.approx(made * [row["response_tokens"] for row in log["steps"]])
    trained = [row["paper_tokens"] for row in log["steps"]]
    assert np.diff([0, *trained]).tolist() == [row["selected_tokens"] or 0 for row in log["steps"]]


def test_what_is_kept_are_the_passing_groups_and_their_rewards_are_mixed(tmp_path, monkeypatch):
    mixed_only(monkeypatch, {1, 2, 5})
    trainer = new_trainer("zvf", refill_rounds=3)
    log = run(trainer, Checkpoints(tmp_path, "a"))
    _, kept = expected_rounds(planned_order(trainer, 99), {1, 2, 5}, 3)
    for step in (0, 2, 4):
        rows = [row for row in log["selection"] if row["step"] == step]
        assert [row["query"] for row in rows] == np.repeat(kept[step], GROUP).tolist()
        for group in np.split(np.array(rows), len(kept[step])):
            assert [row["reward"] for row in group] == [0, 1] * (GROUP // 2)
            assert [row["advantage"] for row in group] == pytest.approx([-1, 1] * (GROUP // 2), abs=1e-5)
            assert all(row["times_trained"] == 1 and row["weight"] == 1.0 for row in group)
        texts = [row for row in log["rollouts"] if row["step"] == step]
        assert [row["prompt"] for row in texts] == [QUERIES[row["query"]] for row in rows]


@pytest.mark.parametrize("reward", [0.0, 0.1 + 0.2, 1.0])
@pytest.mark.parametrize("arm", ["zvf", "zvf cost-aware"])
def test_a_step_in_which_no_group_ever_passes_is_paid_for_and_skipped(tmp_path, monkeypatch, arm, reward):
    reward_with(monkeypatch, lambda texts, *_: np.full(len(texts), reward))
    trainer = new_trainer("zvf", refill_rounds=3)
    if arm != "zvf":
        trainer.method.samplers.extend(new_trainer("cost-aware").method.samplers)
    before = weights(trainer)
    log = run(trainer, Checkpoints(tmp_path, "a"))
    assert [row["skipped"] for row in log["steps"]] == [True] * STEPS
    assert [row["refill_rounds"] for row in log["steps"]] == [2] * STEPS
    assert [row["rollouts"] for row in log["steps"]] == [3 * ROLLOUTS * (step + 1) for step in range(STEPS)]
    assert all(row["groups_without_signal"] == 1.0 and row["entropy"] > 0 for row in log["steps"])
    unknown = ("kl", "usefulness", "loss", "gradient_norm", "selected_tokens", "effective_sample_size")
    assert all(row[name] is None for row in log["steps"] for name in unknown)
    assert log["steps"][-1]["updates"] == log["steps"][-1]["trained_tokens"] == 0
    assert weights(trainer) == before and log["selection"] == log["rollouts"] == []
    assert [row["step"] for row in log["evaluations"]] == [0, 2, 4, STEPS]


def test_a_run_with_refill_goes_on_with_the_same_bits_wherever_it_stops(tmp_path, monkeypatch):
    mixed_only(monkeypatch, {1, 4, 5})
    whole = new_trainer("zvf", refill_rounds=4)
    log = run(whole, Checkpoints(tmp_path / "whole", "a"))
    assert len({row["refill_rounds"] for row in log["steps"]}) > 1
    for stop_at in (1, 3, 4, STEPS):
        checkpoints = Checkpoints(tmp_path / f"cut-{stop_at}", "a")
        with pytest.raises(KeyboardInterrupt):
            run(new_trainer("zvf", refill_rounds=4), checkpoints, stop_at)
        resumed = new_trainer("zvf", refill_rounds=4)
        assert run(resumed, checkpoints) == log, stop_at
        assert weights(resumed) == weights(whole) and resumed.plan.taken == whole.plan.taken


def test_a_filter_goes_by_the_raw_reward_and_not_by_the_advantages(tmp_path, monkeypatch):
    """Rewards a rounding apart pass, whatever the advantage makes of them; equal ones do not."""
    reward_with(monkeypatch, lambda texts, *_: np.resize([0.1 + 0.2, 0.3], len(texts)))
    trainer = new_trainer("zvf", steps=1)
    object.__setattr__(trainer.method, "advantage", lambda rewards_N, group_N: np.zeros(len(rewards_N)))
    log = run(trainer, Checkpoints(tmp_path / "apart", "a"))
    assert (log["steps"][0]["refill_rounds"], log["steps"][0]["groups_without_signal"]) == (0, 0.0)
    assert log["steps"][0]["skipped"] and len(log["selection"]) == ROLLOUTS  # kept, then without an advantage

    reward_with(monkeypatch, lambda texts, *_: np.full(len(texts), 0.1 + 0.2))
    trainer = new_trainer("zvf", steps=1, refill_rounds=2)
    object.__setattr__(trainer.method, "advantage", lambda rewards_N, group_N: np.resize([-1.0, 1.0], len(rewards_N)))
    log = run(trainer, Checkpoints(tmp_path / "equal", "a"))
    assert (log["steps"][0]["refill_rounds"], log["steps"][0]["groups_without_signal"]) == (1, 1.0)
    assert log["steps"][0]["skipped"] and log["selection"] == []


def groups(first: int, query: int, size: int, width: int) -> Groups:
    """One group; its rollouts are numbered from `first`, and every array says which rollout and token it is of."""
    row_N_1 = torch.arange(first, first + size)[:, None]
    tokens_N = 1 + torch.arange(size) % width
    mask_N_T = torch.arange(width) < tokens_N[:, None]
    value_N_T = torch.where(mask_N_T, row_N_1 + torch.arange(width) / 10, 0.0)
    responses = Responses(
        (value_N_T * 10).long(), -value_N_T, value_N_T / 2, mask_N_T, row_N_1[:, 0] % 2 == 0, row_N_1[:, 0] + 100
    )
    texts = [f"text {row}" for row in range(first, first + size)]
    numbers_N = np.arange(first, first + size, dtype=float)
    return Groups([PlannedGroup(query, size)], responses, texts, numbers_N, numbers_N + 0.5)


def test_rounds_of_different_widths_and_sizes_are_joined_row_by_row():
    parts = [groups(0, 5, 3, 2), groups(3, 1, 2, 4), groups(5, 5, 4, 3)]
    whole = join(parts)
    assert whole.group_N.tolist() == [0] * 3 + [1] * 2 + [2] * 4  # the same query twice is two groups
    assert whole.query_N.tolist() == [5] * 3 + [1] * 2 + [5] * 4
    kept = whole.keep(np.array([False, True, True]))
    assert kept.group_N.tolist() == [0, 0, 1, 1, 1, 1] and kept.query_N.tolist() == [1, 1, 5, 5, 5, 5]
    assert kept.texts == [f"text {row}" for row in range(3, 9)]
    assert kept.verdicts_N.tolist() == list(range(3, 9)) and kept.rewards_N.tolist() == [n + 0.5 for n in range(3, 9)]
    for selected, rows in ((whole, range(9)), (kept, range(3, 9))):
        responses = selected.responses
        assert responses.prompt_tokens_N.tolist() == [100 + row for row in rows]
        assert responses.finished_N.tolist() == [row % 2 == 0 for row in rows]
        for at, row in enumerate(rows):
            part = parts[0 if row < 3 else 1 if row < 5 else 2].responses
            own, width = row - (0 if row < 3 else 3 if row < 5 else 5), part.mask_N_T.shape[1]
            for name in ("ids_N_T", "logprob_N_T", "entropy_N_T", "mask_N_T"):
                line_T = getattr(responses, name)[at]
                assert torch.equal(line_T[:width], getattr(part, name)[own]) and not line_T[width:].any(), name
    assert whole.keep(np.zeros(3, bool)).rewards_N.shape == (0,)
    lengths_N = [1, 2, 1, 1, 2, 1, 2, 3, 1]
    assert whole.describe()["response_tokens"] == pytest.approx(np.mean(lengths_N))
    assert whole.describe()["truncated"] == pytest.approx(4 / 9)


def test_the_joined_batch_is_the_one_that_was_sampled(tmp_path, monkeypatch):
    """Before the first update the policy is the reference, so the KL between kept and fresh log-probabilities is 0."""
    mixed_only(monkeypatch, {1, 2, 5})
    log = run(new_trainer("zvf", kl_probe=ROLLOUTS), Checkpoints(tmp_path, "a"))
    assert log["steps"][0]["refill_rounds"] > 0
    assert log["steps"][0]["kl"] == pytest.approx(0.0, abs=1e-9) and log["steps"][-1]["kl"] > 1e-6
