"""What the training sees of a verdict, and which groups count: exactly, from the raw reward."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from tiny_run import ROLLOUTS, STEPS, new_trainer, parity, reward_with, run

from repro.engine.checkpoint import Checkpoints
from repro.methods.advantages.centred import centred
from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.filters.zero_variance import zero_variance as filter
from repro.methods.rewards.coin_flip import coin_flip
from repro.methods.rollouts import Rollouts
from repro.methods.samplers.zero_variance import zero_variance as sampler

graded = st.lists(st.tuples(st.integers(0, 4), st.integers(-16, 16)), min_size=1, max_size=20)


def rollouts(rewards_N, group_N, advantages_N) -> Rollouts:
    ones_N = np.ones(len(rewards_N), int)
    return Rollouts.from_batch(
        group_N=group_N,
        rewards_N=rewards_N,
        advantages_N=advantages_N,
        prompt_tokens_N=ones_N,
        response_tokens_N=ones_N,
    )


@pytest.mark.parametrize(
    ("rewards_N", "keep"),
    [
        ([0.1 + 0.2, 0.3], True),  # 2⁻⁵⁴ apart
        ([0.1] * 10, False),  # their float mean is not 0.1, their float variance not 0
        ([1e9, 1e9 + 1e-6], True),
        ([1e300, -1e300], True),  # whose variance overflows
    ],
)
def test_zero_variance_of_float_rewards(rewards_N, keep):
    assert filter(np.array(rewards_N), np.zeros(len(rewards_N))).tolist() == [keep]
    beside = filter(np.array([*rewards_N, 0.0, 1.0]), np.array([*[3] * len(rewards_N), -1, -1]))
    assert beside.tolist() == [True, keep]  # groups in sorted order, each by itself


@given(graded, st.integers(-64, 64), st.sampled_from([0.125, 1.0, 4.0]))
@settings(deadline=None)
def test_neither_a_constant_shift_nor_the_scale_matters(pairs, shift, scale):
    """In eighths, which floats hold exactly; a shift that rounds two rewards to one does make them equal."""
    group_N, rewards_N = np.array([group for group, _ in pairs]), np.array([reward for _, reward in pairs]) / 8
    keep_Q = filter(rewards_N, group_N)
    assert keep_Q.tolist() == [len(set(rewards_N[group_N == group])) > 1 for group in sorted(set(group_N))]
    assert filter(scale * (rewards_N + shift), group_N).tolist() == keep_Q.tolist()
    assert filter(np.array([0.1 + 0.2, 0.3]) + 1e3, np.zeros(2)).tolist() == [False]


@given(graded, st.randoms())
@settings(deadline=None)
def test_filter_and_sampler_agree_whatever_the_advantages_say(pairs, random):
    group_N, rewards_N = np.array([group for group, _ in pairs]), np.array([reward for _, reward in pairs]) / 8
    keep_Q = filter(rewards_N, group_N)
    assume(keep_Q.any())
    advantages_N = np.array([random.choice([-1.0, 0.0, 2.0]) for _ in pairs])
    kept = sampler(rollouts(rewards_N, group_N, advantages_N), 0.0, np.random.default_rng(0)).row_N
    index_N = np.unique(group_N, return_inverse=True)[1]
    assert kept.tolist() == np.flatnonzero(keep_Q[index_N]).tolist()


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_a_coin_flip_knows_nothing_of_the_response(probability):
    n = 20_000
    verdicts_N = np.random.default_rng(1).integers(0, 2, n).astype(float)
    flips_N, ones_N, zeros_N = (
        coin_flip(given, np.random.default_rng(2), probability=probability)
        for given in (verdicts_N, np.ones(n), np.zeros(n))
    )
    assert flips_N.tolist() == ones_N.tolist() == zeros_N.tolist() and set(flips_N) == {0.0, 1.0}
    assert stats.binomtest(int(flips_N.sum()), n, probability).pvalue > 1e-3
    table = np.histogram2d(verdicts_N, flips_N, bins=2)[0]
    assert stats.chi2_contingency(table).pvalue > 1e-3
    other_N = coin_flip(verdicts_N, np.random.default_rng(3), probability=probability)
    assert other_N.tolist() != flips_N.tolist()


@pytest.mark.parametrize("verdict", [0.0, 1.0])
def test_training_on_coin_flips_leaves_verdicts_and_evaluation_alone(tmp_path, monkeypatch, verdict):
    reward_with(monkeypatch, lambda texts, *_: np.full(len(texts), verdict))
    trainer = new_trainer("random-reward", learning_rate=1e-4)
    log = run(trainer, Checkpoints(tmp_path, "a"))
    assert all(row["accuracy"] == verdict and 0 < row["reward"] < 1 for row in log["steps"])
    assert all(row["accuracy"] == verdict for row in log["evaluations"])
    assert all(row["successes"] == verdict * row["samples"] for row in log["questions"])
    for step in (0, 2, 4):
        rewards_N = [row["reward"] for row in log["selection"] if row["step"] == step]
        assert rewards_N == coin_flip(np.zeros(ROLLOUTS), trainer.rng(step, "reward")).tolist()
    assert log["steps"][-1]["updates"] == 2 * STEPS  # it does train on them


def test_until_the_first_update_it_is_the_baseline(tmp_path, monkeypatch):
    reward_with(monkeypatch, parity)
    flips, grpo = (run(new_trainer(arm), Checkpoints(tmp_path / arm, "a")) for arm in ("random-reward", "grpo"))
    assert flips["evaluations"][0] == grpo["evaluations"][0]
    for name in ("accuracy", "entropy", "response_tokens", "generated_tokens", "prompt_tokens"):
        assert flips["steps"][0][name] == grpo["steps"][0][name]
    assert flips["steps"][0]["reward"] != grpo["steps"][0]["reward"] == grpo["steps"][0]["accuracy"]
    assert flips["evaluations"][-1] != grpo["evaluations"][-1]


@pytest.mark.parametrize("advantage", [centred, group_normalised])
def test_a_reward_at_the_mean_of_its_group_is_no_signal(advantage):
    """0.2 is the mean of 0.1, 0.2 and 0.3, but for its rounding."""
    advantages_N = advantage(np.array([0.1, 0.2, 0.3, 0.3, 0.7, 1.1]), np.repeat([0, 1], 3))
    assert advantages_N[[1, 4]].tolist() == [0.0, 0.0] and (advantages_N[[0, 2, 3, 5]] != 0).all()
    least = advantage(np.array([1.0, 1.0, 1.0 + 1e-12]), np.zeros(3, int))
    assert (least != 0).all()  # a small difference is a signal all the same
