"""Rows of a run's tables, by hand: what was selected, how often, how useful it was."""

import numpy as np
import pytest
from tiny_run import new_trainer, parity, reward_with, run

from repro.engine.checkpoint import Checkpoints
from repro.methods.rollouts import Rollouts
from repro.protocol.log import describe_selection, rollout_rows, selection_rows
from repro.protocol.streams import stream_seed
from repro.tasks.queries import Query

QUERIES = [Query(f"{n}+1=", str(n + 1), f"family {n % 2}", {}) for n in range(5)]


def batch() -> Rollouts:
    """Three groups of two: with a signal, without, with one rollout whose advantage is zero."""
    return Rollouts.from_batch(
        group_N=[0, 0, 1, 1, 2, 2],
        rewards_N=[1, 0, 1, 1, 0.5, 0.25],
        advantages_N=[1.0, -1.0, 0.0, 0.0, 0.0, 2.0],
        prompt_tokens_N=[2, 2, 3, 3, 4, 4],
        response_tokens_N=[1, 2, 3, 1, 2, 2],
        entropy_N_T=[[0.5, 0, 0], [0.1, 0.3, 0], [0.3, 0.6, 0.9], [0, 0, 0], [1.0, 0.5, 0], [0.2, 0.2, 0]],
    )


@pytest.mark.parametrize(
    ("rows", "useful"),
    [
        ([0, 1, 2, 3, 4, 5], 2 / 3),  # D³S counts groups, and two of three have an advantage
        ([0, 1, 2, 4], 1 / 3),  # of the third only the rollout without an advantage is left
        ([0, 0, 1, 5], 1.0),
        ([5, 5, 5, 2], 1 / 2),
        ([2, 3], 0.0),
    ],
)
def test_usefulness_by_hand(rows, useful):
    assert describe_selection(batch().take(rows))["usefulness"] == pytest.approx(useful)


def test_a_selection_in_numbers_by_hand():
    found = describe_selection(batch().take([0, 4, 4, 1], [3.0, 1.0, 1.0, 0.5]))
    assert found == {
        "usefulness": 0.5,  # groups 0 and 2; the rollout of group 2 has no advantage
        "selected_rollouts": 4,
        "distinct_rollouts": 3,
        "selected_tokens": 3 + 6 + 6 + 4,
        "effective_sample_size": pytest.approx(5.5**2 / (9 + 1 + 1 + 0.25)),
        "largest_weight": 3.0,
    }


def test_every_rollout_has_a_row_that_says_how_often_and_with_what_weight_it_trained():
    chain = batch().take([1, 4, 4, 5], [2.0, 0.5, 0.5, 3.0]).take([3, 1, 2])  # rows 5, 4, 4 are left
    query_N = np.array([3, 3, 1, 1, 4, 4])
    rows = selection_rows({"seed": 7, "step": 8}, query_N, QUERIES, batch(), chain)
    assert [(row["times_trained"], row["weight"]) for row in rows] == [(0, 0.0)] * 4 + [(2, 0.5), (1, 3.0)]
    assert rows[1] == {
        "seed": 7,
        "step": 8,
        "query": 3,
        "family": "family 1",
        "reward": 0.0,
        "advantage": -1.0,
        "cost": 4,
        "response_tokens": 2,
        "entropy": pytest.approx(0.2),
        "times_trained": 0,
        "weight": 0.0,
    }
    assert [row["entropy"] for row in rows] == pytest.approx([0.5, 0.2, 0.6, 0.0, 0.75, 0.2])
    assert [row["query"] for row in rows] == query_N.tolist() and rows[4]["family"] == "family 0"


def test_texts_go_with_the_first_rows():
    rows = selection_rows({"seed": 0, "step": 2}, np.array([2, 2, 0, 0, 1, 1]), QUERIES, batch(), batch())
    read = rollout_rows(rows, ["a", "b", "c"], QUERIES)
    assert [(row["prompt"], row["response"], row["reward"]) for row in read] == [
        ("2+1=", "a", 1.0),
        ("2+1=", "b", 0.0),
        ("0+1=", "c", 1.0),
    ]
    assert read[2]["step"] == 2 and read[2]["times_trained"] == 1 and read[2]["cost"] == 6


@pytest.mark.parametrize("seed", [0, 3])
def test_the_rows_are_the_samplers_own_draw(tmp_path, monkeypatch, seed):
    """The draw made once more from the logged advantages and costs and the run's own stream."""
    reward_with(monkeypatch, parity)
    log = run(new_trainer("cost-aware", seed=seed, learning_rate=1e-4), Checkpoints(tmp_path, "a"))
    assert [row["skipped"] for row in log["steps"]] == [False] * 5
    assert {row["step"] for row in log["selection"]} == {0, 2, 4}
    for step in (0, 2, 4):
        rows = [row for row in log["selection"] if row["step"] == step]
        signal_N = np.array([abs(row["advantage"]) / np.sqrt(row["cost"]) for row in rows])
        p_N = signal_N / signal_N.sum()
        rng = np.random.default_rng(stream_seed(seed, step, "sample"))
        drawn_M = rng.choice(len(rows), size=len(rows), p=p_N)
        times_N = np.bincount(drawn_M, minlength=len(rows))
        assert [row["times_trained"] for row in rows] == times_N.tolist()
        weight_N = np.where(times_N > 0, 1 / (np.count_nonzero(p_N) * np.where(p_N > 0, p_N, 1)), 0)
        assert [row["weight"] for row in rows] == pytest.approx(weight_N.tolist())
