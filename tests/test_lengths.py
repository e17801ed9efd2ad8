"""What rewards and advantages make of the length of responses, by hand and in training."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_run import ENGINE, ROLLOUTS, new_trainer, parity, reward_with

from repro.methods.advantages.finished_only import finished_only
from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.advantages.shorter_better import shorter_better
from repro.methods.lengths import Lengths
from repro.methods.rewards.overlong import overlong
from repro.settings import Arm

RNG = np.random.default_rng(0)


def of_length(tokens_N, longest: int = 100) -> Lengths:
    tokens_N = np.asarray(tokens_N)
    return Lengths(tokens_N, tokens_N == longest, longest)


def test_overlong_shaping_is_dapos_but_for_scale_and_shift():
    """Eq. 13 with rewards of ±1 and a punishment of up to 1; normalised, nothing is left of the difference."""
    tokens_N = np.array([1, 80, 81, 90, 100, 100, 85, 99])
    verdicts_N = np.array([1.0, 0, 1, 0, 1, 0, 0, 1])
    ours_N = overlong(verdicts_N, RNG, of_length(tokens_N))
    punished_N = np.array([0, 0, -1 / 20, -10 / 20, -1, -1, -5 / 20, -19 / 20])
    assert ours_N == pytest.approx(verdicts_N + punished_N / 2)
    theirs_N, one = 2 * verdicts_N - 1 + punished_N, np.zeros(8, int)
    assert group_normalised(ours_N, one, delta=0) == pytest.approx(group_normalised(theirs_N, one, delta=0))
    assert overlong(verdicts_N, RNG, of_length(tokens_N), cache=1.0, penalty=2.0)[0] == 1 - 2 * 0.01


groups = st.lists(st.tuples(st.integers(0, 3), st.integers(-16, 16), st.integers(1, 60)), min_size=2, max_size=20)


def test_of_right_responses_the_shorter_is_worth_more_and_of_wrong_ones_the_long_less():
    """λ is 1/2, 1/4, 0, −1/2 of four lengths, and 0 in a group of one length."""
    rewards_N, group_N = np.array([1, 1, 0, 0, 1, 0.0]), np.array([0, 0, 0, 0, 1, 1])
    lengths = of_length([10, 20, 30, 50, 7, 7])
    shaped_N = np.array([1 + 0.5, 1 + 0.25, 0, -0.5, 1, 0])
    assert shorter_better(rewards_N, group_N, lengths, weight=1.0) == pytest.approx(group_normalised(shaped_N, group_N))
    wrong_N = shorter_better(np.zeros(3), np.zeros(3, int), of_length([10, 20, 30]))
    assert wrong_N == pytest.approx(group_normalised(np.array([0, 0, -0.25]), np.zeros(3, int)))


@given(groups)
@settings(deadline=None)
def test_what_is_right_stays_above_what_is_wrong_whatever_the_lengths(triples):
    group_N, rewards_N, tokens_N = (np.array(column) for column in zip(*triples, strict=True))
    right_N = rewards_N > 0
    advantages_N = shorter_better(right_N.astype(float), group_N, of_length(tokens_N), weight=1.99)
    for group in np.unique(group_N):
        own, other = (advantages_N[(group_N == group) & which] for which in (right_N, ~right_N))
        assert not len(own) or not len(other) or own.min() > other.max()


def test_a_response_that_was_cut_teaches_nothing_and_still_counts_in_its_group():
    rewards_N, group_N = np.array([1, 0, 0, 1.0]), np.zeros(4, int)
    found_N = finished_only(rewards_N, group_N, of_length([10, 20, 100, 30]))
    assert found_N == pytest.approx([1, -1, 0, 1], abs=1e-5) and found_N[2] == 0.0


def test_training_gives_lengths_to_what_asks_for_them_and_to_nothing_else(monkeypatch):
    """Those of the responses that were generated, in the order of the rewards; cut where the engine stopped."""
    seen = []

    def reward(verdicts_N, rng, lengths):
        seen.append(lengths)
        return verdicts_N

    def advantage(rewards_N, group_N, lengths):
        seen.append(lengths)
        return group_normalised(rewards_N, group_N)

    reward_with(monkeypatch, parity)
    trainer = new_trainer(Arm(title="t", about="", group="g", reward=reward, advantage=advantage))
    groups, _ = trainer.collect(0)
    rollouts = trainer._rollouts(groups)
    assert len(seen) == 2
    for lengths in seen:
        assert lengths.longest == ENGINE.max_new_tokens and len(lengths.tokens_N) == ROLLOUTS
        assert lengths.tokens_N.tolist() == rollouts.response_tokens_N.tolist()
        assert lengths.truncated_N.tolist() == (~groups.responses.finished_N).tolist()
    assert 0 < seen[0].truncated_N.sum() < ROLLOUTS
    assert rollouts.advantages_N.tolist() == new_trainer()._rollouts(groups).advantages_N.tolist()
