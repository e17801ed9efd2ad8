"""A gradient that is not finite ends training, not the run: the update is not made, evaluations go on and say so."""

from dataclasses import replace

import pytest
import torch
from tiny_run import ROLLOUTS, STEPS, new_trainer, parity, reward_with, run, weights

from repro.engine.checkpoint import Checkpoints
from repro.methods.objectives.aggregate import TokenLoss

MADE = 5  # of them, before the first that fails: two steps and half of the third


@pytest.fixture(autouse=True)
def score_parity(monkeypatch):
    reward_with(monkeypatch, parity)


def sick_trainer(bad: float = float("nan"), arm: str = "grpo", **options):
    """A Trainer whose loss turns `bad` once MADE updates are made; `seen` keeps the weights before each update."""
    trainer = new_trainer(arm, learning_rate=1e-4, **options)
    healthy, seen = trainer.method.objective, {}

    def objective(logprob_N_T, old_N_T, advantages_N, mask_N_T):
        made = trainer.ledger.updates
        seen[made] = weights(trainer)
        loss = healthy(logprob_N_T, old_N_T, advantages_N, mask_N_T)
        return TokenLoss(loss.loss_N_T * (bad if made >= MADE else 1.0), loss.clipped_N_T)

    trainer.method = replace(trainer.method, objective=objective)
    return trainer, seen


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_the_update_is_not_made_and_the_run_goes_on_to_its_evaluations(tmp_path, bad):
    trainer, seen = sick_trainer(bad)
    log = run(trainer, Checkpoints(tmp_path, "a"))
    assert trainer.diverged and max(seen) == MADE
    assert weights(trainer) == seen[MADE] != seen[MADE - 1]
    assert all(torch.isfinite(parameter).all() for parameter in trainer.model.parameters())
    assert [(row["step"], row["samples"], row["diverged"]) for row in log["evaluations"]] == [
        (0, 2, False),
        (2, 2, False),
        (4, 2, True),
        (STEPS, 3, True),
    ]
    assert all(0 <= row["accuracy"] <= 1 for row in log["evaluations"]) and len(log["questions"]) == 7


def test_nothing_is_generated_or_charged_after_it(tmp_path):
    trainer, _ = sick_trainer()
    log = run(trainer, Checkpoints(tmp_path, "a"))
    assert [row["step"] for row in log["steps"]] == [0, 1, 2]
    last = log["steps"][-1]
    assert last["rollouts"] == 3 * ROLLOUTS and not last["skipped"]
    assert last["loss"] is None and last["gradient_norm"] is None and last["selected_rollouts"] == ROLLOUTS
    # The pass that failed was made and is paid for, although it led to no update.
    assert last["paper_tokens"] == sum(row["selected_tokens"] for row in log["steps"])
    assert last["updates"] == MADE
    assert {row["flops"] for row in log["evaluations"][2:]} == {last["flops"]}


def test_a_resumed_run_remembers_wherever_it_stopped(tmp_path):
    whole, _ = sick_trainer()
    log = run(whole, Checkpoints(tmp_path / "whole", "a"))
    for stop_at in (3, 4, STEPS):
        checkpoints = Checkpoints(tmp_path / f"cut-{stop_at}", "a")
        with pytest.raises(KeyboardInterrupt):
            run(sick_trainer()[0], checkpoints, stop_at)
        # Once it is saved that it diverged, at step 4, even a healthy objective may not train on.
        resumed = new_trainer(learning_rate=1e-4) if stop_at >= 4 else sick_trainer()[0]
        assert run(resumed, checkpoints) == log and resumed.diverged, stop_at
        assert weights(resumed) == weights(whole)


def test_a_diverged_arm_with_refill_stops_generating_too(tmp_path):
    trainer, _ = sick_trainer(arm="zvf", refill_rounds=3)
    log = run(trainer, Checkpoints(tmp_path, "a"))
    assert trainer.diverged and log["evaluations"][-1]["rollouts"] == log["steps"][-1]["rollouts"]
    assert trainer.plan.taken == log["steps"][-1]["queries"]


def test_the_optimiser_is_left_as_it_was(tmp_path, monkeypatch):
    """AdamW's moments too: an update that is not made leaves no trace but its cost."""
    trainer, _ = sick_trainer()
    made = []
    monkeypatch.setattr(trainer.optimiser, "step", lambda: made.append(trainer.ledger.updates))
    run(trainer, Checkpoints(tmp_path, "a"))
    assert len(made) == MADE


def test_a_policy_that_is_not_finite_has_diverged_and_solves_nothing(tmp_path):
    trainer = new_trainer()
    made = trainer.step

    def step(number):
        if number == 2:
            with torch.no_grad():
                next(trainer.model.parameters()).fill_(float("nan"))
        made(number)

    trainer.step = step
    log = run(trainer, Checkpoints(tmp_path, "a"))
    assert trainer.diverged and [row["step"] for row in log["steps"]] == [0, 1]
    assert [(row["step"], row["diverged"]) for row in log["evaluations"]][-1] == (STEPS, True)
    assert log["evaluations"][-1]["accuracy"] == 0.0 and len(log["questions"]) == 7
    assert {question["successes"] for question in log["questions"]} == {0}
