"""Advantages, the clipped objective and its gradient, and aggregation, against closed forms."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from repro.methods.advantages import groups_without_signal
from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.objectives.aggregate import token_coefficients
from repro.methods.objectives.grpo import grpo


def test_one_group_by_hand():
    # mean 1/4, population variance 3/16
    expected = np.array([0.75, -0.25, -0.25, -0.25]) / (np.sqrt(3) / 4 + 1e-6)
    assert group_normalised([1, 0, 0, 0], [5, 5, 5, 5]) == pytest.approx(expected)
    assert group_normalised([1, 0, 0, 0], [5] * 4, delta=1.0) == pytest.approx(
        np.array([0.75, -0.25, -0.25, -0.25]) / (np.sqrt(3) / 4 + 1)
    )
    assert group_normalised([1, 0], [0, 0], delta=0.0) == pytest.approx([1.0, -1.0])  # not ±1/√2, the sample's


def test_float_rewards_of_interleaved_groups_by_hand():
    # group 7: 1, 2, 3 with population std √(2/3); group -1: 0, 10 with 5
    advantages_N = group_normalised([1.0, 0.0, 2.0, 10.0, 3.0], [7, -1, 7, -1, 7], delta=0.0)
    assert advantages_N == pytest.approx([-np.sqrt(1.5), -1.0, 0.0, 1.0, np.sqrt(1.5)])


@pytest.mark.parametrize("reward", [0.1 + 0.2, 1e-300, -0.7])
def test_equal_rewards_give_exactly_zero(reward):
    for size in (1, 3, 7, 10):  # the mean of equal floats is often not that float
        assert group_normalised([reward] * size, [0] * size).tolist() == [0.0] * size
        assert groups_without_signal([reward] * size, [0] * size) == 1.0


def test_a_last_bit_is_rounding_and_more_is_a_signal_that_delta_keeps_small():
    rewards_N = [0.1 + 0.2, 0.3]  # 2⁻⁵⁴ apart: equality is exact, but each equals the mean within its rounding
    assert groups_without_signal(rewards_N, [0, 0]) == 0.0
    assert group_normalised(rewards_N, [0, 0]).tolist() == [0.0, 0.0]
    assert np.abs(group_normalised([0.3 + 1e-12, 0.3], [0, 0])) == pytest.approx([5e-7, 5e-7], rel=1e-3)


def test_share_of_groups_without_signal_by_hand():
    # groups 3: (1, 1), 4: (0, 0), 9: (1, 0), 8: (0.5)
    assert groups_without_signal([1, 0, 1, 1, 0, 0, 0.5], [3, 4, 9, 3, 4, 9, 8]) == pytest.approx(3 / 4)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-100, 100)), min_size=1, max_size=30), st.floats(0.5, 20))
@settings(deadline=None)
def test_advantages_are_standardised_within_groups_and_free_of_units(pairs, factor):
    group_N, rewards_N = np.array([group for group, _ in pairs]), np.array([reward for _, reward in pairs])
    advantages_N = group_normalised(rewards_N, group_N)
    for group in set(group_N):
        inside = advantages_N[group_N == group]
        spread = rewards_N[group_N == group].std()
        assert inside.sum() == pytest.approx(0.0, abs=1e-5)
        if spread > 1e-6:
            assert inside.std() == pytest.approx(spread / (spread + 1e-6))
        assert np.abs(inside).max() <= np.sqrt(max(len(inside) - 1, 0)) + 1e-5  # as for one success among G
    shifted_N = group_normalised(factor * rewards_N + 3.0, group_N, delta=1e-6 * factor)
    assert shifted_N == pytest.approx(advantages_N, abs=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_not_finite_is_refused(bad):
    with pytest.raises(ValueError, match=rf"rewards_N\[2\] is {bad}"):
        group_normalised([0, 1, bad], [0, 0, 0])


def test_mismatched_groups_are_refused():
    for function in (group_normalised, groups_without_signal):
        with pytest.raises(ValueError):
            function([0, 1, 1], [0, 0])


OLD_T = [-1.0, -2.0, -0.5]


def run(ratios_T, advantage, clip_low=0.2, clip_high=0.28, mask_T=(True, True, True)):
    """(loss_T, dloss/dlogprob_T, clipped_T) of one sequence whose π/π_old are `ratios_T`."""
    old_1_T = torch.tensor([OLD_T], dtype=torch.float64)
    logprob_1_T = (old_1_T + torch.tensor([ratios_T], dtype=torch.float64).log()).requires_grad_()
    advantages_1 = torch.tensor([advantage], dtype=torch.float64)
    loss = grpo(logprob_1_T, old_1_T, advantages_1, torch.tensor([mask_T]), clip_low=clip_low, clip_high=clip_high)
    loss.loss_N_T.sum().backward()
    return loss.loss_N_T[0].tolist(), logprob_1_T.grad[0].tolist(), loss.clipped_N_T[0].tolist()


@pytest.mark.parametrize(
    ("ratios_T", "advantage", "loss_T", "gradient_T", "clipped_T"),
    [
        # d(r A)/d log π = r A. A > 0: the clip holds above 1.28 and lets go below 0.8.
        ([1.0, 1.1, 1.27], 2.0, [-2.0, -2.2, -2.54], [-2.0, -2.2, -2.54], [False] * 3),
        ([1.5, 0.5, 1.29], 2.0, [-2.56, -1.0, -2.56], [0.0, -1.0, 0.0], [True, False, True]),
        # A < 0: it holds below 0.8 and lets go above 1.28.
        ([1.0, 0.81, 1.2], -3.0, [3.0, 2.43, 3.6], [3.0, 2.43, 3.6], [False] * 3),
        ([0.5, 1.5, 0.79], -3.0, [2.4, 4.5, 2.4], [0.0, 4.5, 0.0], [True, False, True]),
        # clip-higher is asymmetric: 1.25 is free above, 0.75 is held below.
        ([1.25, 1.25, 1.25], 1.0, [-1.25] * 3, [-1.25] * 3, [False] * 3),
        ([0.75, 0.75, 0.75], -1.0, [0.8] * 3, [0.0] * 3, [True] * 3),
        ([0.5, 1.0, 1.5], 0.0, [0.0] * 3, [0.0] * 3, [False] * 3),
    ],
)
def test_three_tokens_by_hand(ratios_T, advantage, loss_T, gradient_T, clipped_T):
    loss, gradient, clipped = run(ratios_T, advantage)
    assert loss == pytest.approx(loss_T) and gradient == pytest.approx(gradient_T) and clipped == clipped_T


def test_the_clips_are_those_asked_for_and_masked_tokens_are_not_counted():
    assert run([1.5, 0.5, 1.0], 1.0, clip_high=0.6)[2] == [False, False, False]
    assert run([1.5, 0.5, 1.0], -1.0, clip_low=0.6)[2] == [False, False, False]
    assert run([1.5, 1.5, 1.5], 1.0, mask_T=(False, True, False))[2] == [False, True, False]


@given(
    st.lists(st.floats(0.01, 10), min_size=3, max_size=3),
    st.floats(-5, 5).filter(lambda a: a == 0 or abs(a) > 1e-6),
    st.floats(1e-3, 1e3),
    st.floats(0, 1),
    st.floats(0, 5),
)
@settings(deadline=None)
def test_a_positive_weight_commutes_with_the_clip(ratios_T, advantage, weight, clip_low, clip_high):
    edges = (1 - clip_low, 1 + clip_high)  # on an edge, rounding decides which of two equal terms is the smaller
    assume(all(abs(ratio - edge) > 1e-9 for ratio in ratios_T for edge in edges))
    plain = run(ratios_T, advantage, clip_low, clip_high)
    weighted = run(ratios_T, weight * advantage, clip_low, clip_high)
    for part in (0, 1):
        assert weighted[part] == pytest.approx([weight * value for value in plain[part]], rel=1e-9, abs=1e-12)


def test_the_loss_of_a_batch_pairs_each_sequence_with_its_advantage():
    logprob_N_T = torch.zeros(2, 3)
    loss = grpo(logprob_N_T, logprob_N_T, torch.tensor([1.0, -2.0]), torch.ones(2, 3, dtype=torch.bool))
    assert loss.loss_N_T.tolist() == [[-1.0] * 3, [2.0] * 3]


MASK_N_T = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0]], bool)


@pytest.mark.parametrize("make", [np.array, torch.tensor], ids=["numpy", "torch"])
def test_coefficients_by_hand(make):
    sequence_mean = np.asarray(token_coefficients(make(MASK_N_T), "sequence-mean"))
    assert sequence_mean == pytest.approx(MASK_N_T / np.array([[2], [4], [1], [1]]) / 4)
    assert sequence_mean.sum() == pytest.approx(3 / 4)  # the empty sequence counts in N and adds nothing
    token_mean = np.asarray(token_coefficients(make(MASK_N_T), "token-mean"))
    assert token_mean == pytest.approx(MASK_N_T / 7)
    constant = np.asarray(token_coefficients(make(MASK_N_T), "constant-length", 10))
    assert constant == pytest.approx(MASK_N_T / (4 * 10))  # whatever the sequence holds, an empty one counts in N


@pytest.mark.parametrize("max_tokens", [None, 0])
def test_a_constant_length_must_be_given(max_tokens):
    with pytest.raises(ValueError, match="constant-length divides by max_tokens") as refusal:
        token_coefficients(MASK_N_T, "constant-length", max_tokens)
    assert "\n" not in str(refusal.value)
    for aggregation in ("sequence-mean", "token-mean"):  # which have no use for it
        found = token_coefficients(MASK_N_T, aggregation, max_tokens)
        assert found == pytest.approx(token_coefficients(MASK_N_T, aggregation, 3))


@pytest.mark.parametrize(
    ("aggregation", "share_N"),
    [("sequence-mean", [1 / 2, 1 / 6]), ("token-mean", [1 / 4, 1 / 4]), ("constant-length", [1 / 10, 1 / 10])],
)
def test_what_each_aggregation_makes_of_a_short_and_a_long_response(aggregation, share_N):
    """On policy: loss Σ share · (−A), gradient −share · A per token; A = 2 on one token, A = −1 on three, 5 allowed."""
    mask_N_T = torch.tensor([[True, False, False], [True, True, True]])
    logprob_N_T = torch.full((2, 3), -0.7, dtype=torch.float64, requires_grad=True)
    loss = grpo(logprob_N_T, logprob_N_T.detach(), torch.tensor([2.0, -1.0], dtype=torch.float64), mask_N_T)
    total = (loss.loss_N_T * token_coefficients(mask_N_T, aggregation, 5)).sum()
    total.backward()
    assert float(total.detach()) == pytest.approx(-2 * share_N[0] + 3 * share_N[1])
    expected_N_T = [[-2 * share_N[0], 0, 0], [share_N[1]] * 3]
    assert logprob_N_T.grad.numpy() == pytest.approx(np.array(expected_N_T))
