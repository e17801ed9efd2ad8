"""A memory: which groups train again, at what ratio, for what price; and after a resume."""

import copy

import numpy as np
import pytest
import torch
from tiny_run import GROUP, ROLLOUTS, STEPS, Arm, new_trainer, pools, reward_with, run, weights

from repro.arms import build
from repro.engine.checkpoint import Checkpoints
from repro.engine.log_probabilities import log_probabilities
from repro.methods.guard import MethodError
from repro.methods.memories import Remembered
from repro.methods.memories.informative import informative
from repro.runs.key import parts_of

PROMPTS = [query.prompt for query in pools().train]
REPLAY = Arm(title="replay", about="", group="", memory={"informative": {"oldest": 3}})


@pytest.fixture(autouse=True)
def mixed_for_some(monkeypatch):
    """Every second response to the queries 1, 2 and 5 is right, and none to the others."""

    def score(texts, valid_N, queries_N):
        index_N = np.array([PROMPTS.index(query.prompt) if query.prompt in PROMPTS else 0 for query in queries_N])
        return np.where(np.isin(index_N, [1, 2, 5]), np.arange(len(texts)) % 2, 0).astype(float)

    reward_with(monkeypatch, score)


def watched(trainer) -> list[dict]:
    """Of each step its ages, batch and selection, and the policies of all steps so far."""
    steps, policies = [], []
    recall, update = trainer.memory.recall, trainer._update

    def recalling(*arguments):
        policies.append(copy.deepcopy(trainer.model))
        groups, age_N = recall(*arguments)
        steps.append({"age_N": age_N, "policies": list(policies)})
        return groups, age_N

    def updating(step, batch, selected):
        steps[-1] |= {"batch": batch, "selected": selected}
        return update(step, batch, selected)

    trainer.memory.recall, trainer._update = recalling, updating
    return steps


def test_what_trains_again_keeps_the_log_probabilities_of_the_policy_that_drew_it(tmp_path):
    trainer = new_trainer(REPLAY)
    steps, oldest = watched(trainer), 0
    log = run(trainer, Checkpoints(tmp_path, "a"))
    pad, temperature = trainer.tokenizer.pad_token_id, trainer.engine.temperature
    for row, of in zip(log["steps"], steps, strict=True):
        assert row["replayed_rollouts"] == (of["age_N"] > 0).sum() and row["age"] == of["age_N"].mean()
        if "batch" not in of:
            continue
        old_N_T, mask_N_T = of["batch"].responses.logprob_N_T, of["batch"].responses.mask_N_T
        now = len(of["policies"]) - 1
        for age in np.unique(of["age_N"]):
            rows, oldest = np.flatnonzero(of["age_N"] == age), max(oldest, age)
            then, here = (
                log_probabilities(of["policies"][at], of["batch"], rows, pad, temperature).detach()
                for at in (now - age, now)
            )
            mask, width = mask_N_T[rows][:, : here.shape[1]], here.shape[1]
            old = old_N_T[rows][:, :width]
            assert (then - old)[mask].abs().max() < 1e-4  # ρ = 1 at the policy that drew it
            assert ((here - old)[mask].abs().max() > 1e-3) == (age > 0)  # and not at one that has moved since
    assert oldest == 2  # held for less than three steps


def test_the_ratio_of_an_old_rollout_is_clipped_by_how_far_the_policy_has_moved(tmp_path):
    """GRPO's token loss: its gradient is −ρA, and 0 once ρ has left the clip in the direction of A."""
    trainer = new_trainer(REPLAY, learning_rate=5e-2)
    steps = watched(trainer)
    run(trainer, Checkpoints(tmp_path, "a"))
    clipped = 0
    for of in (of for of in steps if "batch" in of and of["age_N"].any()):
        rows = np.flatnonzero(of["age_N"] > 0)
        now = log_probabilities(of["policies"][-1], of["batch"], rows, trainer.tokenizer.pad_token_id, 1.0).detach()
        old_N_T = of["batch"].responses.logprob_N_T[rows][:, : now.shape[1]]
        mask_N_T = of["batch"].responses.mask_N_T[rows][:, : now.shape[1]]
        now.requires_grad_()
        advantages_N = torch.as_tensor(of["selected"].advantages_N[rows], dtype=torch.float32)
        loss = trainer.method.token_loss(0, now, old_N_T, advantages_N, mask_N_T).loss_N_T
        [gradient] = torch.autograd.grad((loss * mask_N_T).sum(), [now])
        ratio, advantage = (now - old_N_T).detach().exp(), advantages_N[:, None]
        outside = ((advantage > 0) & (ratio > 1.28)) | ((advantage < 0) & (ratio < 0.8))
        assert torch.allclose(gradient, torch.where(outside | ~mask_N_T, 0.0, -ratio * advantage), atol=1e-5)
        clipped += int((outside & mask_N_T).sum())
    assert clipped > 0


def test_only_what_is_generated_is_charged_as_generated_and_all_that_is_read_as_read(tmp_path):
    log = run(new_trainer(REPLAY), Checkpoints(tmp_path, "a"))
    again = [row["replayed_rollouts"] for row in log["steps"]]
    assert sum(again) > 0 and all(count % GROUP == 0 for count in again)
    assert [row["rollouts"] for row in log["steps"]] == [ROLLOUTS * (step + 1) for step in range(STEPS)]
    trained = np.diff([0, *(row["paper_tokens"] for row in log["steps"])])
    assert trained.tolist() == [row["selected_tokens"] or 0 for row in log["steps"]]
    assert all(row["scored_tokens"] == 0 and row["selected_rollouts"] in (None, ROLLOUTS) for row in log["steps"])
    for step in (0, 2, 4):
        rewards = [row["reward"] for row in log["selection"] if row["step"] == step]
        mixed = sum(np.ptp(group) > 0 for group in np.split(np.array(rewards), len(rewards) // GROUP))
        assert len(rewards) == ROLLOUTS and mixed >= again[step] // GROUP  # what is replayed has a signal


def test_a_run_with_a_memory_goes_on_with_the_same_bits(tmp_path):
    whole = new_trainer(REPLAY)
    log = run(whole, Checkpoints(tmp_path / "whole", "a"))
    with pytest.raises(KeyboardInterrupt):
        run(new_trainer(REPLAY), Checkpoints(tmp_path / "cut", "a"), 3)
    resumed = new_trainer(REPLAY)
    assert run(resumed, Checkpoints(tmp_path / "cut", "a")) == log and weights(resumed) == weights(whole)
    assert resumed.memory.drawn_Q == whole.memory.drawn_Q and resumed.memory.held.texts == whole.memory.held.texts


def test_informative_replaces_silent_groups_by_their_spread():
    rewards_Q = [[0, 0, 0, 0], [0, 1, 0, 1], [1, 1, 1, 1], [0, 0, 0, 1], [0, 1, 1, 0], [0, 0, 0, 0]]
    rewards_N, group_N = np.concatenate(rewards_Q).astype(float), np.repeat(np.arange(6), 4)
    age_Q, rng = np.array([0, 0, 0, 1, 2, 3]), np.random.default_rng(0)
    found = informative(rewards_N, group_N, age_Q, rng, capacity=2, oldest=3)
    assert found.train_Q.tolist() == [False, True, False, True, True, False]  # both held ones with a signal
    assert found.hold_Q.tolist() == [False, True, False, False, True, False]  # spreads 2 and 2 before 1.5
    assert informative(rewards_N, group_N, age_Q, rng, oldest=2).hold_Q.tolist() == [0, 1, 0, 1, 0, 0]
    one = np.r_[rewards_N[4:8], rewards_N[8:]], np.repeat(np.arange(5), 4), age_Q[1:]  # a single silent group
    drawn = [informative(*one, np.random.default_rng(seed)).train_Q for seed in range(2000)]
    assert np.mean(drawn, 0) == pytest.approx([1, 0, 1.5 / 3.5, 2 / 3.5, 0], abs=0.03)


def test_an_arm_without_a_memory_keeps_its_key():
    assert "memory" not in parts_of(Arm(title="t", about="", group=""))
    assert parts_of(REPLAY)["memory"] == ["informative", {"oldest": 3}]


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (None, "returned None; it should return Remembered"),
        (Remembered(np.ones(2, bool), np.ones(3, bool)), "train_Q and hold_Q with one entry per group"),
        (Remembered(np.ones(5000, bool), np.ones(5000, bool)), "holds 5000 groups; hold at most 4096"),
    ],
)
def test_a_memory_that_returns_something_else_is_told(found, sentence):
    method = build("own", Arm(title="own", about="", group="", memory=lambda rewards_N, group_N, age_Q, rng: found))
    groups = 5000 if "5000" in sentence else 3
    with pytest.raises(MethodError, match=f"step 2: memory <lambda> .*{sentence}"):
        method.remembered(2, np.zeros(groups), np.arange(groups), np.zeros(groups, int), np.random.default_rng(0))
