"""Training on a profile: what it is charged, when it is taken again, and that a resumed run knows the same."""

import numpy as np
import pytest
from tiny_run import new_trainer, parity, pools, reward_with, run, weights

from repro.engine.checkpoint import Checkpoints
from repro.engine.measure import measure_profile
from repro.policy.flops import FlopCounter
from repro.protocol.profile import Source
from repro.settings import Arm

SOURCE = Source("a policy", "queries", 1.0, 8, seed=3)
K = 4


@pytest.fixture(autouse=True)
def score_parity(monkeypatch):
    reward_with(monkeypatch, parity)


def arm(again: int) -> Arm:
    plan = {"sgpo": {"smallest": 2, "largest": 8}}
    return Arm(title="t", about="", group="g", plan=plan, profile={"samples": K, "again": again})


def profile():
    trainer = new_trainer()
    return measure_profile(trainer.model, trainer.tokenizer, pools().train, SOURCE, samples=K, batch_rollouts=8)


def test_a_profile_is_charged_before_the_first_step_and_its_seconds_are_told(tmp_path):
    known = profile()
    assert 0 < known.successes_Q.sum() < K * len(pools().train)
    trainer = new_trainer(arm(again=0), profile=known)
    log = trainer.train(Checkpoints(tmp_path, "a"), lambda *_: None)
    first, last = log.evaluations[0], log.evaluations[-1]
    tokens_N = known.response_tokens_Q_K.reshape(-1)
    prompt_N = np.repeat(known.prompt_tokens_Q, K)
    flops = FlopCounter.of(trainer.model)
    spent = flops.forward(known.prompt_tokens_Q) + flops.forward(tokens_N - 1, prompt_N)
    assert first["profile_tokens"] == first["generated_tokens"] == tokens_N.sum() == last["profile_tokens"]
    assert first["flops_profile"] == first["flops_generate"] == first["flops"] == spent == last["flops_profile"]
    assert (first["queries"], first["rollouts"]) == (7, 7 * K) and last["generated_tokens"] > tokens_N.sum()
    assert [row for row in log.seconds if row["phase"] == "profile"] == [
        {"seed": 0, "step": 0, "phase": "profile", "seconds": 1.5}
    ]


@pytest.mark.parametrize(("again", "steps"), [(0, set()), (1, {2}), (3, {1, 2, 4}), (9, {1, 2, 3, 4})])
def test_profiles_taken_again_are_spread_over_the_run(again, steps):
    assert new_trainer(arm(again), profile=profile()).profile_steps == steps


def test_a_plan_made_anew_is_of_what_the_policy_does_then(tmp_path):
    trainer = new_trainer(arm(again=1), profile=profile(), learning_rate=1e-2)
    before = trainer.known
    log = trainer.train(Checkpoints(tmp_path, "a"), lambda *_: None)
    assert trainer.since == 2 and (trainer.known.samples_Q == K).all()
    assert (trainer.known.successes_Q != before.successes_Q).any()
    spent = [row["profile_tokens"] for row in log.steps]
    assert spent[0] == spent[1] < spent[2] == spent[-1]
    assert {row["step"] for row in log.seconds if row["phase"] == "profile"} == {0, 2}


def test_a_resumed_run_plans_with_the_same_profile_wherever_it_stops(tmp_path):
    known = profile()
    whole = new_trainer(arm(again=1), profile=known)
    log = run(whole, Checkpoints(tmp_path / "whole", "a"))
    for stop_at in (1, 3, 4):
        checkpoints = Checkpoints(tmp_path / f"cut-{stop_at}", "a")
        with pytest.raises(KeyboardInterrupt):
            run(new_trainer(arm(again=1), profile=known), checkpoints, stop_at)
        resumed = new_trainer(arm(again=1), profile=known)
        assert run(resumed, checkpoints) == log and weights(resumed) == weights(whole), stop_at
