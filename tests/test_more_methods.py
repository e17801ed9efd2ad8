"""Advantages and samplers of other papers: by hand, by closed forms, by verl's own functions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.methods.advantages.batch_normalised import batch_normalised
from repro.methods.advantages.centred import centred
from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.advantages.rloo import rloo
from repro.methods.objectives.grpo import grpo
from repro.methods.rollouts import NoSignal, Rollouts
from repro.methods.samplers.advantage_tokens import advantage_tokens
from repro.methods.samplers.clip_cov import clip_cov
from repro.methods.samplers.d1s_c import d1s_c
from repro.methods.samplers.entropy_tokens import entropy_tokens
from repro.methods.samplers.pass_rate_band import pass_rate_band
from repro.methods.samplers.snr import snr
from repro.methods.samplers.top_tokens import top_tokens
from repro.methods.samplers.zero_variance import zero_variance

RNG = np.random.default_rng


def batch(rewards_Q_G, **arrays) -> Rollouts:
    """Groups of one size with GRPO's advantages; responses of 4, 5, … tokens."""
    rewards_Q_G = np.asarray(rewards_Q_G, float)
    group_N = np.repeat(np.arange(len(rewards_Q_G)), rewards_Q_G.shape[1])
    n = len(group_N)
    return Rollouts.from_batch(
        group_N=group_N,
        rewards_N=rewards_Q_G.ravel(),
        advantages_N=group_normalised(rewards_Q_G.ravel(), group_N),
        prompt_tokens_N=np.ones(n, int),
        response_tokens_N=4 + np.arange(n) % 3,
        **arrays,
    )


# Advantages


groups = st.lists(st.tuples(st.integers(0, 3), st.integers(-16, 16)), min_size=2, max_size=20)


@given(groups)
@settings(deadline=None)
def test_leave_one_out_is_a_loop_over_the_others_and_the_batch_has_one_scale(pairs):
    group_N, rewards_N = (np.array(column) for column in zip(*pairs, strict=True))
    for row, (group, reward) in enumerate(zip(group_N, rewards_N, strict=True)):
        others = np.delete(rewards_N, row)[np.delete(group_N, row) == group]
        expected = reward - others.mean() if len(others) else 0.0
        assert rloo(rewards_N, group_N)[row] == pytest.approx(expected)
    centred_N = centred(rewards_N, group_N)
    scaled_N = batch_normalised(rewards_N, group_N, delta=0)
    assert scaled_N == pytest.approx(centred_N / (centred_N.std() or 1)) and abs(scaled_N.mean()) < 1e-12
    assert (scaled_N[centred_N == 0] == 0).all()


# Which groups


def test_the_fewest_groups_that_hold_the_share_of_variance():
    """Variances 0, 3/16, 1/4, 3/16, 0, 1/4 of 14/16: shares 4/14, 8/14, 11/14, 1 in falling order."""
    rewards = [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [0, 1, 0, 1]]
    kept = {
        mass: np.unique(snr(batch(rewards), 0.0, RNG(0), mass=mass).group_N).tolist()
        for mass in (0.01, 4 / 14, 0.3, 8 / 14, 0.6, 0.9, 1.0)
    }
    assert kept[0.01] == kept[4 / 14] == [2] and kept[0.3] == kept[8 / 14] == [2, 5]
    assert kept[0.6] == [1, 2, 5] and kept[0.9] == kept[1.0] == [1, 2, 3, 5]
    all_N = zero_variance(batch(rewards), 0.0, RNG(0)).row_N
    assert snr(batch(rewards), 0.0, RNG(0), mass=1.0).row_N.tolist() == all_N.tolist()


def test_a_band_of_pass_rates_has_its_ends():
    rewards = [np.arange(5) < right for right in range(6)]
    for low, high, groups in ((0.2, 0.8, [1, 2, 3, 4]), (0.21, 0.79, [2, 3]), (0.0, 0.4, [0, 1, 2]), (0.4, 0.4, [2])):
        chosen = pass_rate_band(batch(rewards), 0.0, RNG(0), low=low, high=high)
        assert np.unique(chosen.group_N).tolist() == groups and (chosen.weights_N == 1).all()
    with pytest.raises(ValueError, match=r"low 0\.9 is above high 0\.1"):
        pass_rate_band(batch(rewards), 0.0, RNG(0), low=0.9, high=0.1)
    for sampler in (snr, pass_rate_band):
        with pytest.raises(NoSignal):
            sampler(batch([[1, 1], [0, 0]]), 0.0, RNG(0))


# Which tokens


def test_entropy_alone_and_advantage_alone_are_the_two_halves_of_the_product():
    mask_N_T = np.arange(6) < (4 + np.arange(16) % 3)[:, None]
    entropy_N_T = RNG(1).random(mask_N_T.shape) * mask_N_T
    whole = batch(RNG(2).random((2, 8)), entropy_N_T=entropy_N_T)
    alike = replace(whole, advantages_N=np.where(np.arange(16) % 2, 1.0, -1.0))
    flat = replace(whole, entropy_N_T=np.where(mask_N_T, 0.5, 0.0))
    how = {"tokens": 0.3, "least": 0}
    by_entropy = entropy_tokens(alike, 0.0, RNG(0), **how).response_mask_N_T
    assert (by_entropy == top_tokens(alike, 0.0, RNG(0), **how).response_mask_N_T).all()
    edge = np.sort(entropy_N_T[mask_N_T])[-by_entropy.sum()]
    assert (by_entropy == ((entropy_N_T >= edge) & mask_N_T)).all()
    by_advantage, product = (f(flat, 0.0, RNG(0), **how).response_mask_N_T for f in (advantage_tokens, top_tokens))
    assert by_advantage.sum() == product.sum() == round(0.3 * mask_N_T.sum())
    cut = by_advantage.any(1) & (by_advantage.sum(1) < mask_N_T.sum(1))
    assert cut.sum() <= 1 and np.array_equal(by_advantage.sum(1), product.sum(1))  # whole rollouts, but the last


def test_at_the_edge_every_token_of_equal_advantage_is_equally_likely():
    even = batch([[1, 0]] * 2, entropy_N_T=np.zeros((4, 6)))
    draws = 4000
    counts_N_T = sum(
        advantage_tokens(even, 0.0, RNG(seed), tokens=0.25, least=0).response_mask_N_T.astype(int)
        for seed in range(draws)
    )
    n = even.response_mask_N_T.sum()
    share = round(0.25 * n) / n
    error = np.abs(counts_N_T[even.response_mask_N_T] / draws - share).max()
    assert error < 4.5 * np.sqrt(share * (1 - share) / draws) and not counts_N_T[~even.response_mask_N_T].any()


def test_after_d1s_c_the_ablations_keep_as_many_tokens_as_d2s():
    whole = batch(RNG(3).integers(0, 2, (6, 8)), entropy_N_T=RNG(4).random((48, 6)))
    chosen = d1s_c(whole, 0.0, RNG(0))
    how = {"tokens": 0.05, "least": 4}
    kept = {f: f(chosen, 0.0, RNG(0), **how) for f in (top_tokens, entropy_tokens, advantage_tokens)}
    assert len({selected.response_mask_N_T.sum() for selected in kept.values()}) == 1


@pytest.mark.parametrize("share", [2e-4, 0.02, 1.0])
def test_clip_cov_leaves_out_a_share_of_the_tokens_of_large_covariance(share):
    whole, left_out = batch(RNG(5).integers(0, 2, (8, 8)), logprob_N_T=-4 * RNG(6).random((64, 6))), set()
    mask_N_T = whole.response_mask_N_T
    logprob_K = whole.logprob_N_T[mask_N_T]
    advantages_K = np.broadcast_to(whole.advantages_N[:, None], mask_N_T.shape)[mask_N_T]
    covariance_K = (logprob_K - logprob_K.mean()) * (advantages_K - advantages_K.mean())
    large_K = (covariance_K > 1) & (covariance_K < 5)
    for seed in range(50):
        kept_K = clip_cov(whole, 0.0, RNG(seed), share=share).response_mask_N_T[mask_N_T]
        assert large_K[~kept_K].all() and (~kept_K).sum() == min(max(int(share * mask_N_T.sum()), 1), large_K.sum())
        left_out |= set(np.flatnonzero(~kept_K))
    assert len(left_out) > 20  # not always the same
    assert clip_cov(whole, 0.0, RNG(0), low=50.0, high=60.0).response_mask_N_T.sum() == mask_N_T.sum()


@pytest.fixture(scope="module")
def core_algos():
    reason = "verl is not installed here: `make extra-verl` installs it, then `pytest -m verl`"
    return pytest.importorskip("verl.trainer.ppo.core_algos", reason=reason, exc_type=ImportError)


@pytest.mark.verl
def test_verl_has_the_gradient_of_clip_cov_on_policy_where_no_draw_decides(core_algos):
    """With a share of 1 all tokens of large covariance go, and verl's loss is that of the others over all tokens."""
    from verl.workers.config import ActorConfig, PolicyLossConfig

    policy_loss = PolicyLossConfig(loss_mode="clip_cov", clip_cov_ratio=1.0, clip_cov_lb=1.0, clip_cov_ub=5.0)
    clips = {"clip_ratio_low": 1.0, "clip_ratio_high": 1.0}
    config = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, policy_loss=policy_loss, **clips)
    whole = batch(RNG(5).integers(0, 2, (8, 8)), logprob_N_T=-4 * RNG(6).random((64, 6)))
    kept_N_T = torch.as_tensor(clip_cov(whole, 0.0, RNG(0), share=1.0).response_mask_N_T)
    mask_N_T, old_N_T = (torch.as_tensor(values) for values in (whole.response_mask_N_T, whole.logprob_N_T))
    logprob_N_T, advantages_N = old_N_T.clone().requires_grad_(), torch.as_tensor(whole.advantages_N)
    ours_N_T, _ = grpo(logprob_N_T, old_N_T, advantages_N, kept_N_T, clip_low=1.0, clip_high=1.0)
    verl_loss, _ = core_algos.get_policy_loss_fn("clip_cov")(
        old_log_prob=old_N_T,
        log_prob=logprob_N_T,
        advantages=advantages_N[:, None].expand_as(old_N_T),
        response_mask=mask_N_T.double(),
        loss_agg_mode="token-mean",
        config=config,
    )
    losses = (ours_N_T * kept_N_T).sum() / mask_N_T.sum(), verl_loss
    torch.testing.assert_close(*(torch.autograd.grad(loss, logprob_N_T)[0] for loss in losses), rtol=1e-6, atol=1e-9)
    assert kept_N_T.sum() < mask_N_T.sum()


@pytest.mark.verl
def test_verl_has_the_same_leave_one_out_and_batch_normalised_advantages(core_algos):
    """Its batch normalisation runs over tokens and divides by one less: here every response has one token."""
    group_N, rewards_N = np.repeat(np.arange(8), 4), RNG(0).integers(0, 2, 32).astype(float)
    given = torch.as_tensor(rewards_N)[:, None], torch.ones(32, 1, dtype=torch.float64), group_N
    verl_N_1, _ = core_algos.compute_rloo_outcome_advantage(*given)
    assert rloo(rewards_N, group_N) == pytest.approx(verl_N_1[:, 0].numpy())
    verl_N_1, _ = core_algos.compute_reinforce_plus_plus_baseline_outcome_advantage(given[0].clone(), *given[1:])
    assert batch_normalised(rewards_N, group_N) * np.sqrt(31 / 32) == pytest.approx(verl_N_1[:, 0].numpy(), rel=1e-5)
