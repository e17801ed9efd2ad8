"""Every arm of params.yaml trains: a tiny policy, finite weights, a ledger its rows add up to. Arms of every kind of
state resume bit by bit."""

import numpy as np
import pytest
import torch
from tiny_run import GROUP, SETTINGS, new_trainer, parity, pools, reward_with, run, weights

from repro.engine.checkpoint import Checkpoints
from repro.engine.measure import measure_profile
from repro.engine.update import UPDATED
from repro.protocol.log import SELECTED
from repro.protocol.profile import Source

ROLLOUTS = 32
LEDGER = (
    "queries",
    "rollouts",
    "prompt_tokens",
    "generated_tokens",
    "scored_tokens",
    "trained_tokens",
    "paper_tokens",
    "updates",
)


@pytest.fixture(autouse=True)
def score_parity(monkeypatch):
    reward_with(monkeypatch, parity)


def one(arm: str):
    """A run of two steps, each followed by a checkpoint; of an arm with a profile, on one of its number of samples."""
    entry, profile = SETTINGS.arms[arm], None
    if entry.profile:
        policy, samples = new_trainer(), entry.profile.samples
        source = Source("a policy", "queries", 1.0, 8, seed=0)
        profile = measure_profile(
            policy.model, policy.tokenizer, pools().train, source, samples=samples, batch_rollouts=64
        )
    sizes = dict(rollouts_per_step=ROLLOUTS, minibatch=16, steps=2, checkpoint_every=1)
    return new_trainer(entry, profile=profile, **entry.engine.given | sizes)


@pytest.mark.parametrize("arm", SETTINGS.arms)
def test_an_arm_trains(arm, tmp_path):
    trainer = one(arm)
    before = weights(trainer)
    log = run(trainer, Checkpoints(tmp_path, "a"))
    assert weights(trainer) != before and not trainer.diverged
    assert all(torch.isfinite(parameter).all() for parameter in trainer.model.parameters())
    assert [row["skipped"] for row in log["steps"]] == [False, False]
    assert all(row[name] is not None for row in log["steps"] for name in (*SELECTED, *UPDATED))

    spent = {name: log["evaluations"][0][name] for name in LEDGER}  # what was spent on a profile, if there is one
    assert (spent["rollouts"] > 0) == (SETTINGS.arms[arm].profile is not None) and spent["trained_tokens"] == 0
    for row in log["steps"]:
        if trainer.method.profile_again and row["step"] in trainer.profile_steps:
            return  # which tests/test_train_profile.py follows
        generated = row["rollouts"] - spent["rollouts"]
        if trainer.data.profile is None:
            group = trainer.method.plan.keywords["group_size"]
            assert generated == group * (row["queries"] - spent["queries"]) >= ROLLOUTS
            assert generated == ROLLOUTS or row["refill_rounds"] > 0
        assert row["generated_tokens"] - spent["generated_tokens"] == pytest.approx(generated * row["response_tokens"])
        assert row["paper_tokens"] - spent["paper_tokens"] == row["selected_tokens"]
        assert 0 < row["trained_tokens"] - spent["trained_tokens"] <= row["selected_tokens"]
        assert 0 < row["computed_rollouts"] <= row["selected_rollouts"]
        assert row["updates"] - spent["updates"] == 2
        assert (row["scored_tokens"] > 0) == (trainer.engine.kl > 0) == (arm == "grpo-kl-decay")
        assert row["flops"] == row["flops_generate"] + row["flops_score"] + row["flops_train"]
        assert 0 < row["usefulness"] <= 1 and row["distinct_rollouts"] <= min(row["selected_rollouts"], ROLLOUTS)
        assert row["effective_sample_size"] <= row["selected_rollouts"] * (1 + 1e-9)
        assert 0 < row["loss_tokens"] <= row["selected_tokens"]
        spent = {name: row[name] for name in LEDGER}
    totals = trainer.ledger.row()
    assert {name: log["steps"][-1][name] for name in totals} == totals
    assert {name: log["evaluations"][-1][name] for name in totals} == totals

    chosen = [row for row in log["selection"] if row["step"] == 0]
    first = log["steps"][0]
    assert sum(row["times_trained"] for row in chosen) == first["selected_rollouts"]
    assert sum(row["times_trained"] > 0 for row in chosen) == first["distinct_rollouts"]
    assert sum(row["times_trained"] * row["cost"] for row in chosen) == first["selected_tokens"]
    assert max(row["weight"] for row in chosen) == first["largest_weight"]
    assert all((row["weight"] > 0) == (row["times_trained"] > 0) for row in chosen)
    total = sum(row["times_trained"] * row["weight"] for row in chosen)
    square = sum(row["times_trained"] * row["weight"] ** 2 for row in chosen)
    assert first["effective_sample_size"] == pytest.approx(total**2 / square)


def kind_of(arm) -> tuple:
    """What a checkpoint must carry: the plan and what it goes by, the filter's refill, the reward's stream."""
    return arm.plan[0], arm.filter and arm.filter[0], arm.profile and arm.profile.again > 0, arm.reward[0]


KINDS = {kind_of(arm): name for name, arm in reversed(SETTINGS.arms.items())}  # the first arm of each kind


@pytest.mark.parametrize("arm", KINDS.values())
def test_an_arm_of_each_kind_stopped_after_its_first_step_ends_with_the_same_bits(arm, tmp_path):
    whole, resumed, checkpoints = one(arm), one(arm), Checkpoints(tmp_path / "resumed", "a")
    log = run(whole, Checkpoints(tmp_path / "whole", "a"))
    with pytest.raises(KeyboardInterrupt):
        run(one(arm), checkpoints, stop_at=1)
    assert run(resumed, checkpoints) == log and weights(resumed) == weights(whole)


def test_arms_that_spend_alike_start_from_the_same_rollouts(tmp_path):
    """With one seed, whatever the arm does with them: compositions and controls included."""
    texts = []
    for arm in ("grpo", "d3s-i-cost-aware", "adaptive-beta", "random-quarter", "random-reward", "dr-grpo"):
        trainer = new_trainer(SETTINGS.arm(arm), rollouts_per_step=ROLLOUTS, minibatch=16, steps=1, kept_rollouts=99)
        log = run(trainer, Checkpoints(tmp_path / arm, "a"))
        texts.append([(row["prompt"], row["response"]) for row in log["rollouts"]])
    assert len(texts[0]) == ROLLOUTS and all(other == texts[0] for other in texts)


def test_dr_grpo_divides_by_the_longest_response_allowed_and_by_no_spread(tmp_path):
    log = run(
        new_trainer(SETTINGS.arms["dr-grpo"], steps=1, minibatch=16, max_new_tokens=8), Checkpoints(tmp_path, "a")
    )
    rows = log["selection"]
    for group in np.split(np.array(rows), len(rows) // GROUP):
        rewards = np.array([row["reward"] for row in group])
        assert [row["advantage"] for row in group] == pytest.approx(rewards - rewards.mean())
    # On policy every ratio is 1: the loss is −Σ A_i T_i/(N · 8).
    expected = -sum(row["advantage"] * row["response_tokens"] for row in rows) / (len(rows) * 8)
    assert log["steps"][0]["loss"] == pytest.approx(expected, abs=1e-6)
