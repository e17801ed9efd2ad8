"""Aggregation group-mean: GRPO's mean over queries of 1/G Σ over the group, whatever sizes and mini-batches."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine_update import case, gradient  # noqa: F401  (a fixture)

from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.objectives.aggregate import token_coefficients
from repro.methods.objectives.grpo import grpo
from repro.methods.rollouts import Rollouts
from repro.methods.samplers.cost_aware import cost_aware, probabilities


def batch(sizes_Q, seed: int = 0) -> Rollouts:
    rng, n = np.random.default_rng(seed), int(np.sum(sizes_Q))
    group_N = rng.permutation(np.repeat(7 * np.arange(len(sizes_Q)), sizes_Q))  # labels and order do not matter
    rewards_N = rng.integers(0, 2, n)
    return Rollouts.from_batch(
        group_N=group_N,
        rewards_N=rewards_N,
        advantages_N=group_normalised(rewards_N, group_N),
        prompt_tokens_N=np.ones(n, int),
        response_tokens_N=rng.integers(1, 9, n),
    )


def coefficients(rollouts: Rollouts, aggregation: str = "group-mean") -> np.ndarray:
    return token_coefficients(rollouts.response_mask_N_T, aggregation, None, rollouts.group_weight_N)


def test_weights_by_hand():
    weights_N = Rollouts.from_batch(
        group_N=[4, 1, 4, 4, 1, 9],
        rewards_N=[0] * 6,
        advantages_N=[0] * 6,
        prompt_tokens_N=[1] * 6,
        response_tokens_N=[1] * 6,
    ).group_weight_N
    assert weights_N == pytest.approx([2 / 3, 1, 2 / 3, 2 / 3, 1, 2])  # a mean size of 2 over sizes 3, 2, 1


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 99))
@settings(deadline=None)
def test_every_group_has_the_same_share_and_every_sequence_of_it(sizes_Q, seed):
    rollouts = batch(sizes_Q, seed)
    share_N = coefficients(rollouts).sum(1)
    for group in set(rollouts.group_N.tolist()):
        own = rollouts.group_N == group
        assert share_N[own] == pytest.approx(1 / len(sizes_Q) / own.sum())
    assert rollouts.group_weight_N.mean() == pytest.approx(1.0)


@pytest.mark.parametrize(("groups", "size"), [(20, 8), (7, 3), (1, 5), (6, 1)])
def test_with_groups_of_one_size_it_is_sequence_mean_to_the_last_bit(groups, size):
    rollouts = batch([size] * groups)
    assert (rollouts.group_weight_N == 1.0).all()
    for part in (rollouts, rollouts.take(np.arange(0, len(rollouts), 2))):
        assert (coefficients(part) == coefficients(part, "sequence-mean")).all()


def test_the_gradient_is_the_mean_over_queries_of_grpos_objective_in_closed_form():
    rollouts = batch([2, 8, 3, 5])
    rng = torch.Generator().manual_seed(0)
    mask_N_T = torch.as_tensor(rollouts.response_mask_N_T)
    old_N_T = -torch.rand(mask_N_T.shape, generator=rng, dtype=torch.float64)
    new_N_T = (old_N_T + 0.3 * torch.randn(mask_N_T.shape, generator=rng, dtype=torch.float64)).requires_grad_()
    losses = grpo(new_N_T, old_N_T, torch.as_tensor(rollouts.advantages_N), mask_N_T).loss_N_T
    (losses * torch.as_tensor(coefficients(rollouts))).sum().backward()
    ratio_N_T, advantages_N_1 = (new_N_T - old_N_T).exp().detach().numpy(), rollouts.advantages_N[:, None]
    # d min(rA, clip(r)A) / d log π is rA where the free term is the smaller, else 0.
    free_N_T = np.where(advantages_N_1 > 0, ratio_N_T <= 1.28, ratio_N_T >= 0.8)
    slope_N_T = -np.where(free_N_T, ratio_N_T * advantages_N_1, 0.0) * rollouts.response_mask_N_T
    size_N = np.array([(rollouts.group_N == group).sum() for group in rollouts.group_N])
    expected_N_T = slope_N_T / rollouts.response_tokens_N[:, None] / size_N[:, None] / 4
    assert new_N_T.grad.numpy() == pytest.approx(expected_N_T)


def unequal(case) -> Rollouts:  # noqa: F811
    """The engine's sixteen rollouts as groups of 2, 6, 5 and 3."""
    plain = case.rollouts
    group_N = np.repeat(np.arange(4), [2, 6, 5, 3])
    return Rollouts.from_batch(
        group_N=group_N,
        rewards_N=plain.rewards_N,
        advantages_N=np.random.default_rng(3).normal(size=16),
        prompt_tokens_N=plain.prompt_tokens_N,
        response_tokens_N=plain.response_tokens_N,
        response_mask_N_T=plain.response_mask_N_T,
    )


@pytest.mark.parametrize("kl", [0.0, 0.3])
def test_the_engines_gradient_is_the_mean_over_queries_also_of_groups_split_over_mini_batches(case, kl):  # noqa: F811
    rollouts = unequal(case)
    of_query = [gradient(case, rollouts.take(rollouts.group_N == group), kl=kl)[0] for group in range(4)]
    expected = torch.stack(of_query).mean(0)
    torch.testing.assert_close(gradient(case, rollouts, "group-mean", kl=kl)[0], expected, rtol=1e-4, atol=1e-6)
    order = np.random.default_rng(4).permutation(16)
    parts = [gradient(case, rollouts.take(rows), "group-mean", kl=kl)[0] for rows in np.array_split(order, 4)]
    torch.testing.assert_close(torch.stack(parts).mean(0), expected, rtol=1e-4, atol=1e-6)
    per_rollout = gradient(case, rollouts, kl=kl)[0]
    assert float((per_rollout - expected).norm() / expected.norm()) > 0.05  # it is another gradient


def test_weighted_draws_estimate_the_same_mean_over_queries():
    rollouts, rng = batch([2, 8, 3, 5], seed=2), np.random.default_rng(0)
    losses_N, share_N = rng.normal(size=18), coefficients(rollouts).sum(1)
    p_N = probabilities(rollouts)
    drawn = [cost_aware(rollouts, 0.0, rng) for _ in range(4000)]
    found = [each.weights_N * coefficients(each).sum(1) @ losses_N[each.row_N] for each in drawn]
    expected = (share_N * losses_N)[p_N > 0].sum() * 18 / np.count_nonzero(p_N)
    assert np.mean(found) == pytest.approx(expected, abs=4 * np.std(found) / np.sqrt(len(found)))


def test_without_weights_it_is_refused():
    with pytest.raises(ValueError, match="give group_weight_N"):
        token_coefficients(np.ones((2, 3), bool), "group-mean")
