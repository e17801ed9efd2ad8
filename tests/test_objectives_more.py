"""GSPO, CISPO and the centred advantage: closed forms, identities, and verl's own functions on random tensors."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from repro.arms import bind
from repro.methods.advantages.centred import centred
from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.objectives.aggregate import token_coefficients
from repro.methods.objectives.cispo import cispo
from repro.methods.objectives.grpo import grpo
from repro.methods.objectives.gspo import gspo
from repro.settings import SettingsError

OLD_T = [-1.0, -2.0, -0.5]
ALL = (True, True, True)
WIDE_GSPO = partial(gspo, clip_low=0.2, clip_high=0.28)
FREE_CISPO = partial(cispo, clip_low=1.0)


def run(objective, ratios_T, advantage, mask_T=ALL):
    """(loss_T, dloss/dlogprob_T, clipped_T) of one sequence whose π/π_old are `ratios_T`, off the mask 0."""
    old_1_T = torch.tensor([OLD_T], dtype=torch.float64)
    logprob_1_T = (old_1_T + torch.tensor([ratios_T], dtype=torch.float64).log()).requires_grad_()
    mask_1_T = torch.tensor([mask_T])
    loss = objective(logprob_1_T, old_1_T, torch.tensor([advantage], dtype=torch.float64), mask_1_T)
    (loss.loss_N_T * mask_1_T).sum().backward()
    return (loss.loss_N_T * mask_1_T)[0].tolist(), logprob_1_T.grad[0].tolist(), loss.clipped_N_T[0].tolist()


def batch(seed, n=16, t=12, spread=0.3, dtype=torch.float64):
    """(logprob, old, advantages, mask) of ragged sequences; off the mask stand values that mean nothing."""
    rng = torch.Generator().manual_seed(seed)
    old_N_T = -torch.rand(n, t, generator=rng, dtype=dtype) * 4 - 0.01
    logprob_N_T = old_N_T + spread * torch.randn(n, t, generator=rng, dtype=dtype)
    lengths_N = torch.randint(1, t + 1, (n,), generator=rng)
    advantages_N = torch.randn(n, generator=rng, dtype=dtype)
    return logprob_N_T.requires_grad_(), old_N_T, advantages_N, torch.arange(t) < lengths_N[:, None]


# Advantages


def test_centred_by_hand():
    # group 7: 1, 2, 6 with mean 3; group -1: 0, 10 with mean 5; group 4: alone
    assert centred([1.0, 0.0, 2.0, 10.0, 6.0, 8.0], [7, -1, 7, -1, 7, 4]).tolist() == [-2, -5, -1, 5, 3, 0]
    assert centred([1, 0, 0, 0], [5, 5, 5, 5]).tolist() == [0.75, -0.25, -0.25, -0.25]


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-100, 100)), min_size=1, max_size=30), st.floats(-5, 5))
@settings(deadline=None)
def test_centred_is_linear_and_is_leave_one_out_shrunk(pairs, factor):
    group_N, rewards_N = np.array([group for group, _ in pairs]), np.array([reward for _, reward in pairs])
    advantages_N = centred(rewards_N, group_N)
    assert centred(factor * rewards_N + 3.0, group_N) == pytest.approx(factor * advantages_N, abs=1e-9)
    for group in set(group_N):
        inside, size = rewards_N[group_N == group], (group_N == group).sum()
        if size > 1:  # r − mean of the others = (r − mean of all) · G/(G − 1)
            others = (inside.sum() - inside) / (size - 1)
            assert advantages_N[group_N == group] == pytest.approx((size - 1) / size * (inside - others), abs=1e-9)
    spread_N = np.array([rewards_N[group_N == group].std() for group in group_N])
    assert group_normalised(rewards_N, group_N) * (spread_N + 1e-6) == pytest.approx(advantages_N, abs=1e-9)


# Three tokens by hand


@pytest.mark.parametrize(
    ("ratios_T", "advantage", "mask_T", "loss_T", "gradient_T", "clipped_T"),
    [
        # s = ∛8 = 2 for every token, whichever of them moved; A > 0 is held above 1.28, A < 0 let go
        ([8.0, 1.0, 1.0], 2.0, ALL, [-2.56] * 3, [0.0] * 3, [True] * 3),
        ([8.0, 1.0, 1.0], -3.0, ALL, [6.0] * 3, [6.0] * 3, [False] * 3),
        ([0.5, 0.5, 0.5], 2.0, ALL, [-1.0] * 3, [-1.0] * 3, [False] * 3),
        ([1.0, 0.125, 1.0], -3.0, ALL, [2.4] * 3, [0.0] * 3, [True] * 3),
        # tokens far outside the clip that cancel: GRPO would hold the first, GSPO none
        ([4.0, 0.25, 1.0], 2.0, ALL, [-2.0] * 3, [-2.0] * 3, [False] * 3),
        # a narrowed mask: √(1.44 · 1) = 1.2; with the token left out it would be ∛1440
        ([1.44, 1000.0, 1.0], 2.0, (True, False, True), [-2.4, 0.0, -2.4], [-2.4, 0.0, -2.4], [False] * 3),
        ([4.0, 1.0, 1e-9], 2.0, (True, True, False), [-2.56, -2.56, 0.0], [0.0] * 3, [True, True, False]),
        ([4.0, 1.0, 1.0], 2.0, (False, False, False), [0.0] * 3, [0.0] * 3, [False] * 3),
    ],
)
def test_gspo_by_hand(ratios_T, advantage, mask_T, loss_T, gradient_T, clipped_T):
    loss, gradient, clipped = run(WIDE_GSPO, ratios_T, advantage, mask_T)
    assert loss == pytest.approx(loss_T) and gradient == pytest.approx(gradient_T) and clipped == clipped_T


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "clipped"),
    [(3.8e-4, 1.0, False), (4.2e-4, 1.0, True), (-2.8e-4, -1.0, False), (-3.2e-4, -1.0, True), (-1.0, 1.0, False)],
)
def test_gspo_clips_at_3e_4_and_4e_4_unless_told_otherwise(log_ratio, advantage, clipped):
    assert run(gspo, [np.exp(log_ratio)] * 3, advantage)[2] == [clipped] * 3


@pytest.mark.parametrize(
    ("objective", "ratios_T", "weights_T", "clipped_T"),
    [
        (cispo, [0.5, 2.0, 8.0], [1.0, 2.0, 6.0], [True, False, True]),  # 0 and 5 mean [1, 6]
        (cispo, [1.0, 5.5, 6.0], [1.0, 5.5, 6.0], [False] * 3),  # the bound is 1 + 5, not 5 as in TRL
        (FREE_CISPO, [0.5, 1e-3, 8.0], [0.5, 1e-3, 6.0], [False, False, True]),
        (partial(cispo, clip_low=0.2, clip_high=0.28), [0.5, 1.1, 1.5], [0.8, 1.1, 1.28], [True, False, True]),
    ],
)
@pytest.mark.parametrize("advantage", [2.0, -3.0, 0.0])
def test_cispo_by_hand(objective, ratios_T, weights_T, clipped_T, advantage):
    loss, gradient, clipped = run(objective, ratios_T, advantage)
    logprob_T = np.array(OLD_T) + np.log(ratios_T)
    assert loss == pytest.approx(-np.array(weights_T) * advantage * logprob_T)
    assert gradient == pytest.approx(-np.array(weights_T) * advantage)  # d log π / d log π = 1: nothing through r
    assert clipped == (clipped_T if advantage else [False] * 3)


def test_an_arm_can_name_them_and_a_clip_beyond_its_range_is_refused():
    assert bind("a", "objectives", "gspo", {"clip_high": 0.2}).keywords == {"clip_low": 3e-4, "clip_high": 0.2}
    assert bind("a", "objectives", "cispo", {}).keywords == {"clip_low": 0.0, "clip_high": 5.0}
    assert bind("a", "advantages", "centred", {})([1, 0], [0, 0]).tolist() == [0.5, -0.5]
    with pytest.raises(SettingsError, match=r"^a: cispo\.clip_low is 5\.0"):
        bind("a", "objectives", "cispo", {"clip_low": 5.0})


# Identities


@pytest.mark.parametrize("objective", [grpo, gspo, cispo])
def test_on_policy_every_gradient_is_the_policy_gradient(objective):
    _, old_N_T, advantages_N, mask_N_T = batch(0)
    logprob_N_T = old_N_T.clone().requires_grad_()
    loss = objective(logprob_N_T, old_N_T, advantages_N, mask_N_T)
    (loss.loss_N_T * mask_N_T).sum().backward()
    torch.testing.assert_close(logprob_N_T.grad, -advantages_N[:, None] * mask_N_T)
    assert not loss.clipped_N_T.any()


def test_gspo_is_the_gradient_of_the_clipped_ratio_of_what_is_trained():
    logprob_N_T, old_N_T, advantages_N, mask_N_T = batch(1)
    kept_N_T = mask_N_T & (torch.rand(mask_N_T.shape, generator=torch.Generator().manual_seed(2)) < 0.5)
    for mask in (mask_N_T, kept_N_T):
        coefficients = token_coefficients(mask, "sequence-mean")
        token_form = (WIDE_GSPO(logprob_N_T, old_N_T, advantages_N, mask).loss_N_T * coefficients).sum()
        log_ratio_N = ((logprob_N_T - old_N_T) * mask).sum(1) / mask.sum(1).clip(1)
        s_N = log_ratio_N.exp()  # no stop-gradient: eq. 3 as a function of the sequence
        sequence_N = torch.minimum(s_N * advantages_N, s_N.clamp(0.8, 1.28) * advantages_N)[mask.any(1)]
        sequence_form = -sequence_N.sum() / len(mask)
        torch.testing.assert_close(token_form, sequence_form)
        gradients = [torch.autograd.grad(form, logprob_N_T)[0] for form in (token_form, sequence_form)]
        torch.testing.assert_close(*gradients)


def test_inside_the_clips_cispo_has_the_gradient_of_the_unclipped_ratio():
    logprob_N_T, old_N_T, advantages_N, mask_N_T = batch(3)
    loss = FREE_CISPO(logprob_N_T, old_N_T, advantages_N, mask_N_T)
    assert not loss.clipped_N_T.any()
    ratio_form = -(logprob_N_T - old_N_T).exp() * advantages_N[:, None]
    gradients = [torch.autograd.grad(form.sum(), logprob_N_T)[0] for form in (loss.loss_N_T, ratio_form)]
    torch.testing.assert_close(*gradients)


def unmasked_grpo(logprob_N_T, old_logprob_N_T, advantages_N, mask_N_T):
    """GRPO as it is written in the papers, with the ratio of every token."""
    ratio_N_T, advantages_N_1 = (logprob_N_T - old_logprob_N_T).exp(), advantages_N[:, None]
    free, held = ratio_N_T * advantages_N_1, ratio_N_T.clamp(1 - 0.2, 1 + 0.28) * advantages_N_1
    return -free.minimum(held), (held < free) & mask_N_T


def trained(objective, arrays, mask_N_T):
    """(loss, its gradient, clipped) as the engine adds them up."""
    loss_N_T, clipped_N_T = objective(*arrays, mask_N_T)
    loss = (loss_N_T * token_coefficients(mask_N_T, "sequence-mean")).sum()
    return loss, *torch.autograd.grad(loss, arrays[:1]), clipped_N_T


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("objective", [grpo, gspo, cispo])
def test_a_deselected_token_adds_nothing_whatever_its_ratio(objective, dtype):
    for seed in range(100):
        *arrays, mask_N_T = batch(seed, spread=1.0, dtype=dtype)
        mask_N_T &= torch.rand(mask_N_T.shape, generator=torch.Generator().manual_seed(seed)) < 0.7
        expected = trained(objective, arrays, mask_N_T)
        if objective is grpo:
            assert all(map(torch.equal, expected, trained(unmasked_grpo, arrays, mask_N_T)))
        for log_ratio in (800.0, 88.5, -800.0):
            old_N_T = torch.where(mask_N_T, arrays[1], arrays[0].detach() - log_ratio)
            found = trained(objective, [arrays[0], old_N_T, arrays[2]], mask_N_T)
            assert all(map(torch.equal, found, expected)) and not found[1][~mask_N_T].any()


ratios = st.lists(st.floats(0.01, 10), min_size=3, max_size=3)
signed = st.floats(0.01, 5).flatmap(lambda size: st.sampled_from([size, -size]))


@given(ratios, signed, st.floats(1e-3, 1e3), st.floats(0, 1), st.floats(0, 5))
@settings(deadline=None)
def test_a_positive_weight_commutes_with_the_clips(ratios_T, advantage, weight, clip_low, clip_high):
    mean = np.exp(np.log(ratios_T).mean())  # on an edge, rounding decides which of two equal terms is the smaller
    assume(min(abs(mean - (1 - clip_low)), abs(mean - (1 + clip_high))) > 1e-9)
    for objective in (gspo, cispo):
        clip = partial(objective, clip_low=clip_low, clip_high=clip_high)
        plain, weighted = run(clip, ratios_T, advantage), run(clip, ratios_T, weight * advantage)
        for part in (0, 1):
            assert weighted[part] == pytest.approx([weight * value for value in plain[part]], rel=1e-9, abs=1e-12)
        assert weighted[2] == plain[2]


@given(ratios, signed, st.floats(0, 0.99), st.floats(0, 5))
@settings(deadline=None)
def test_cispo_never_drops_a_token_and_gspo_drops_all_or_none(ratios_T, advantage, clip_low, clip_high):
    _, gradient, _ = run(partial(cispo, clip_low=clip_low, clip_high=clip_high), ratios_T, advantage)
    pull = -np.array(gradient) / advantage
    assert (pull >= 1 - clip_low - 1e-12).all() and (pull <= 1 + clip_high + 1e-12).all()
    _, gradient, clipped = run(partial(gspo, clip_low=clip_low, clip_high=clip_high), ratios_T, advantage)
    assert len(set(clipped)) == 1 and all((value == 0.0) == clipped[0] for value in gradient)


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=25)
def test_a_rows_loss_does_not_see_padding_slices_or_order(seed):
    logprob_N_T, old_N_T, advantages_N, mask_N_T = batch(seed)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
    noise_N_T = torch.where(mask_N_T, logprob_N_T, -50.0 * torch.rand(mask_N_T.shape, dtype=torch.float64))
    for objective in (WIDE_GSPO, cispo):
        whole = objective(logprob_N_T, old_N_T, advantages_N, mask_N_T)
        other = objective(noise_N_T, old_N_T, advantages_N, mask_N_T)
        moved = objective(logprob_N_T[:, order], old_N_T[:, order], advantages_N, mask_N_T[:, order])
        width = int(mask_N_T[:5].sum(1).max())  # the engine cuts a slice at its longest row
        part = objective(
            *(array[:5, :width] for array in (logprob_N_T, old_N_T)), advantages_N[:5], mask_N_T[:5, :width]
        )
        for name in ("loss_N_T", "clipped_N_T"):
            expected = getattr(whole, name) * mask_N_T
            torch.testing.assert_close(getattr(other, name) * mask_N_T, expected)
            torch.testing.assert_close(getattr(moved, name) * mask_N_T[:, order], expected[:, order])
            torch.testing.assert_close(getattr(part, name) * mask_N_T[:5, :width], expected[:5, :width])


def test_gspo_under_token_mean_weights_a_sequence_by_its_length():
    mask_N_T = torch.tensor([[True, False, False], [True, True, True]])
    logprob_N_T = torch.zeros(2, 3)
    loss = gspo(logprob_N_T, logprob_N_T, torch.tensor([1.0, 1.0]), mask_N_T).loss_N_T
    assert (loss * token_coefficients(mask_N_T, "sequence-mean")).sum(1).tolist() == pytest.approx([-1 / 2, -1 / 2])
    assert (loss * token_coefficients(mask_N_T, "token-mean")).sum(1).tolist() == pytest.approx([-1 / 4, -3 / 4])


# verl


@pytest.fixture(scope="module")
def core_algos():
    reason = "verl is not installed here: `make extra-verl` installs it, then `pytest -m verl`"
    return pytest.importorskip("verl.trainer.ppo.core_algos", reason=reason, exc_type=ImportError)


@pytest.mark.verl
@pytest.mark.parametrize("aggregation", ["sequence-mean", "token-mean"])
@pytest.mark.parametrize(
    ("objective", "name", "clip_low", "clip_high"),
    [
        (grpo, "vanilla", 0.2, 0.28),
        (gspo, "gspo", 3e-4, 4e-4),
        (gspo, "gspo", 0.1, 0.05),
        (cispo, "cispo", 0.0, 5.0),
        (cispo, "cispo", 0.2, 0.28),
    ],
)
def test_verl_has_the_same_loss_gradient_and_clip_share(core_algos, objective, name, clip_low, clip_high, aggregation):
    from verl.workers.config import ActorConfig

    mode = {"sequence-mean": "seq-mean-token-mean", "token-mean": "token-mean"}[aggregation]
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=clip_low,
        clip_ratio_high=clip_high,
        clip_ratio_c=1e9,  # dual clip, a bound on A < 0 that GRPO does not have
    )
    for seed in range(20):
        logprob_N_T, old_N_T, advantages_N, mask_N_T = batch(seed, spread=1.0 if objective is cispo else 0.3)
        if seed % 2:  # narrowed, as token selection leaves it, but never to nothing: verl would not count that row in N
            mask_N_T[:, 1::2] = False
        ours = objective(logprob_N_T, old_N_T, advantages_N, mask_N_T, clip_low=clip_low, clip_high=clip_high)
        our_loss = (ours.loss_N_T * token_coefficients(mask_N_T.double(), aggregation)).sum()
        verl_loss, metrics = core_algos.get_policy_loss_fn(name)(
            old_log_prob=old_N_T,
            log_prob=logprob_N_T,
            advantages=advantages_N[:, None].expand_as(old_N_T),
            response_mask=mask_N_T.double(),
            loss_agg_mode=mode,
            config=config,
        )
        torch.testing.assert_close(our_loss, verl_loss, rtol=0, atol=3e-8)  # verl adds 1e-8 to each length
        gradients = [torch.autograd.grad(loss, logprob_N_T)[0] for loss in (our_loss, verl_loss)]
        torch.testing.assert_close(*gradients, rtol=2e-8, atol=1e-15)
        share = (ours.clipped_N_T.sum() / mask_N_T.sum()).item()
        assert share == pytest.approx(metrics["actor/pg_clipfrac"], abs=1e-6)


@pytest.mark.verl
def test_verl_has_the_same_centred_advantage(core_algos):
    rng = np.random.default_rng(0)
    group_N, rewards_N = np.repeat(np.arange(8), 4), rng.normal(size=32)
    mask_N_T = torch.ones(32, 3, dtype=torch.float64)
    rewards_N_T = torch.zeros(32, 3, dtype=torch.float64)
    rewards_N_T[:, -1] = torch.as_tensor(rewards_N)
    verl_N_T, _ = core_algos.compute_grpo_outcome_advantage(
        rewards_N_T, mask_N_T, group_N, norm_adv_by_std_in_grpo=False
    )
    assert verl_N_T[:, 0].numpy() == pytest.approx(centred(rewards_N, group_N), abs=1e-12)
