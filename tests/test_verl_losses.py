"""An arm's objective and aggregation in verl's words: the same function, value and gradient, on random tensors."""

import numpy as np
import pytest
import torch

from repro.arms import build
from repro.methods.objectives.aggregate import token_coefficients
from repro.methods.rollouts import Rollouts
from repro.settings import Arm
from repro.verl.loss import actor_settings, own_loss, policy_loss

pytestmark = pytest.mark.verl

LONGEST = 40
OBJECTIVES = {
    "grpo": {"grpo": {}},
    "narrow": {"grpo": {"clip_low": 0.1, "clip_high": 0.05}},
    "gspo": {"gspo": {"clip_low": 0.02, "clip_high": 0.03}},
    "cispo": {"cispo": {}},
}
AGGREGATIONS = ["sequence-mean", "token-mean", "constant-length", "group-mean"]


@pytest.fixture(scope="module")
def core_algos():
    reason = "verl is not installed here: `make extra-verl` installs it"
    return pytest.importorskip("verl.trainer.ppo.core_algos", reason=reason, exc_type=ImportError)


def batch(seed: int, n: int = 10, t: int = 12):
    """(logprob, old, advantages, mask) of ragged sequences, one of them wholly masked."""
    rng = torch.Generator().manual_seed(seed)
    old_N_T = -torch.rand(n, t, generator=rng, dtype=torch.float64) * 4 - 0.01
    logprob_N_T = old_N_T + 0.4 * torch.randn(n, t, generator=rng, dtype=torch.float64)
    mask_N_T = torch.arange(t) < torch.randint(1, t + 1, (n,), generator=rng)[:, None]
    mask_N_T &= torch.rand(n, t, generator=rng) < 0.8
    mask_N_T[3] = False
    return logprob_N_T.requires_grad_(), old_N_T, torch.randn(n, generator=rng, dtype=torch.float64), mask_N_T


def config_of(method, loss_mode=None):
    from verl.workers.config import ActorConfig, PolicyLossConfig

    values = actor_settings(method, LONGEST)
    mode = values.pop("policy_loss.loss_mode")
    policy = PolicyLossConfig(loss_mode=loss_mode or mode)
    config = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, policy_loss=policy, **values)
    config.global_batch_info["loss_scale_factor"] = config.loss_scale_factor
    return config


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_verl_computes_the_arms_own_function(core_algos, objective, aggregation):
    arm = Arm(title="t", about="", group="g", objective=OBJECTIVES[objective], aggregation=aggregation)
    method = build("an arm", arm)
    config = config_of(method)
    assert own_loss(method, config) is None
    for seed in range(10):
        logprob_N_T, old_N_T, advantages_N, mask_N_T = batch(seed)
        info = {"dp_size": 1, "batch_num_tokens": int(mask_N_T.sum()), "global_batch_size": len(mask_N_T)}
        config.global_batch_info.update(info)
        weights_N = torch.rand(len(mask_N_T), generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.5
        ours = method.objective(logprob_N_T, old_N_T, advantages_N, mask_N_T)
        loss = (ours.loss_N_T * token_coefficients(mask_N_T.double(), aggregation, LONGEST, weights_N)).sum()
        if aggregation == "group-mean":
            advantages_N = advantages_N * weights_N  # as training_rows does
        arguments = dict(
            old_log_prob=old_N_T,
            log_prob=logprob_N_T,
            advantages=advantages_N[:, None].expand_as(old_N_T),
            response_mask=mask_N_T,
            loss_agg_mode=config.loss_agg_mode,
            config=config,
        )
        verls, _ = core_algos.get_policy_loss_fn(config.policy_loss.loss_mode)(**arguments)
        registered, metrics = policy_loss(method.objective)(**arguments)
        gradients = [torch.autograd.grad(value, logprob_N_T)[0] for value in (loss, verls, registered)]
        for value, gradient in zip((verls, registered), gradients[1:], strict=True):
            torch.testing.assert_close(value, loss, rtol=1e-7, atol=1e-9)  # verl adds 1e-8 to each length
            torch.testing.assert_close(gradient, gradients[0], rtol=1e-7, atol=1e-12)
        assert metrics["actor/pg_clipfrac"] == pytest.approx((ours.clipped_N_T.sum() / mask_N_T.sum()).item(), abs=1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_weight_in_the_advantage_is_verls_own_importance_weight(core_algos, objective):
    """clip(r) · wA = w · clip(r) · A: what training_rows relies on, for verl's losses."""
    arm = Arm(title="t", about="", group="g", objective=OBJECTIVES[objective])
    config = config_of(build("an arm", arm))
    loss = core_algos.get_policy_loss_fn(config.policy_loss.loss_mode)
    logprob_N_T, old_N_T, advantages_N, mask_N_T = batch(0)
    weights_N_T = torch.rand(len(mask_N_T), 1, dtype=torch.float64).expand_as(old_N_T) * 3 + 0.1
    advantages_N_T = advantages_N[:, None].expand_as(old_N_T)
    common = dict(
        old_log_prob=old_N_T, log_prob=logprob_N_T, response_mask=mask_N_T, loss_agg_mode="token-mean", config=config
    )
    folded, _ = loss(advantages=advantages_N_T * weights_N_T, **common)
    apart, _ = loss(advantages=advantages_N_T, rollout_is_weights=weights_N_T, **common)
    gradients = [torch.autograd.grad(value, logprob_N_T)[0] for value in (folded, apart)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_merged_draws_have_the_same_gradient(core_algos, objective, aggregation):
    """Nine draws of six rollouts: one masked wholly, one without advantage, one drawn three times under two masks."""
    from repro.verl.batch import merged

    arm = Arm(title="t", about="", group="g", objective=OBJECTIVES[objective], aggregation=aggregation)
    config = config_of(build("an arm", arm))
    logprob_N_T, old_N_T, _, mask_N_T = batch(1)
    lengths_N = mask_N_T.shape[1] - mask_N_T.flip(1).int().argmax(1).numpy()
    rollouts = Rollouts.from_batch(
        group_N=np.zeros(10),
        rewards_N=np.zeros(10),
        advantages_N=[0.7, -1.2, 0.4, 1.0, 0.0, -0.3, 2.0, 0.1, 0.2, -0.5],
        prompt_tokens_N=np.full(10, 3),
        response_tokens_N=np.maximum(lengths_N, 1),
        response_mask_N_T=mask_N_T.numpy(),
    )
    part = rollouts.take(np.array([0, 1, 1, 3, 4, 0, 5, 1, 6]), np.array([0.5, 2.0, 1.0, 1.0, 3.0, 1.5, 1.0, 0.7, 1.2]))
    narrowed_N_T = np.ones_like(part.response_mask_N_T)
    narrowed_N_T[7, ::2] = False
    part = part.with_mask(narrowed_N_T)
    assert merged(part, aggregation).row_M.tolist() == [0, 1, 5, 1, 6]

    def gradient(rows):
        take, mask = torch.as_tensor(rows.row_N), torch.as_tensor(rows.response_mask_N_T)
        info = {"dp_size": 1, "batch_num_tokens": int(mask.sum()), "global_batch_size": len(part)}
        config.global_batch_info.update(info)
        weighted = torch.as_tensor(rows.advantages_N * rows.weights_N)
        loss, _ = core_algos.get_policy_loss_fn(config.policy_loss.loss_mode)(
            old_log_prob=old_N_T[take],
            log_prob=logprob_N_T[take],
            advantages=weighted[:, None].expand(len(take), mask.shape[1]),
            response_mask=mask,
            loss_agg_mode=config.loss_agg_mode,
            config=config,
        )
        return torch.autograd.grad(loss, logprob_N_T)[0]

    torch.testing.assert_close(gradient(merged(part, aggregation).read), gradient(part), rtol=1e-7, atol=1e-12)


def test_an_objective_of_ones_own_goes_to_the_workers(core_algos):
    method = build("an arm", Arm(title="t", about="", group="g"))
    config = config_of(method, "repro")
    sent = own_loss(method, config).keywords
    assert sent == {"config": config, "objective": method.objective, "plain": None}
