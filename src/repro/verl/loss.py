"""An arm's objective as a verl loss: verl's own if it is the same function, else ours under the name `repro`.

The papers' three objectives equal verl's in value and gradient (tests/test_verl_losses.py); aggregations are its
`loss_agg_mode`s. A new objective (a file in repro/methods/objectives) is sent to the workers by `set_loss_fn` and
registered as a policy loss for verl's ppo_loss, so that KL and entropy terms remain verl's.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from repro.methods.method import Method
from repro.verl.version import NAME

OWN = NAME  # policy_loss.loss_mode for an objective that verl does not have
LOSSES = {"grpo": "vanilla", "gspo": "gspo", "cispo": "cispo"}
AGGREGATIONS = {
    "sequence-mean": "seq-mean-token-mean",
    "token-mean": "token-mean",
    "constant-length": "seq-mean-token-sum-norm",
    "group-mean": "seq-mean-token-mean",  # its weights are in the advantages: repro.verl.batch.training_rows
}
NO_DUAL_CLIP = 1e9  # verl bounds the loss at A < 0 by clip_ratio_c times |A|, which GRPO does not


def actor_settings(method: Method, max_tokens: int) -> dict[str, Any]:
    """Keys of verl's `actor_rollout_ref.actor` for the arm's objective and aggregation; `max_tokens`: the maximum
    response length."""
    objective = method.objective
    name = getattr(objective, "func", objective).__name__
    settings = {"policy_loss.loss_mode": LOSSES.get(name, OWN), "loss_agg_mode": AGGREGATIONS[method.aggregation]}
    if method.aggregation == "constant-length":
        settings["loss_scale_factor"] = max_tokens
    if name in LOSSES:
        low, high = objective.keywords["clip_low"], objective.keywords["clip_high"]
        settings |= {"clip_ratio": low, "clip_ratio_low": low, "clip_ratio_high": high, "clip_ratio_c": NO_DUAL_CLIP}
    return settings


def policy_loss(objective: Callable[..., Any]) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """One of our objectives with the signature of verl's policy losses, aggregated by verl."""

    def loss(
        old_log_prob: Any,
        log_prob: Any,
        advantages: Any,
        response_mask: Any,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: Any = None,
    ) -> tuple[Any, dict[str, Any]]:
        from verl.trainer.ppo.core_algos import agg_loss

        mask_N_T = response_mask.bool()
        loss_N_T, clipped_N_T = objective(log_prob, old_log_prob, advantages[:, 0], mask_N_T)  # one A for all tokens
        if rollout_is_weights is not None:
            loss_N_T = loss_N_T * rollout_is_weights
        total = agg_loss(loss_N_T, response_mask, loss_agg_mode, **config.global_batch_info)
        tokens = mask_N_T.sum().clamp(min=1)
        kl = ((old_log_prob - log_prob) * mask_N_T).sum() / tokens
        return total, {
            "actor/pg_clipfrac": (clipped_N_T.sum() / tokens).item(),
            "actor/ppo_kl": kl.detach().item(),
        }

    return loss


def arm_loss(model_output: Any, data: Any, dp_group: Any = None, *, config: Any, objective: Callable) -> Any:
    """verl's ppo_loss with `objective` as its policy loss; called in the workers."""
    from verl.trainer.ppo.core_algos import register_policy_loss
    from verl.workers.utils.losses import ppo_loss

    register_policy_loss(OWN)(policy_loss(objective))
    return ppo_loss(config, model_output, data, dp_group)


def own_loss(method: Method, actor_config: Any) -> Callable | None:
    """The argument of the workers' `set_loss_fn`; None if the arm's objective is one of verl's."""
    if actor_config.policy_loss.loss_mode != OWN:
        return None
    return partial(arm_loss, config=actor_config, objective=method.objective)
