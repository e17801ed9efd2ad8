"""An arm's objective as a verl loss: verl's own if it is the same function, else ours under the name `repro`.

The papers' three objectives equal verl's in value and gradient (tests/test_verl_losses.py); aggregations are its
`loss_agg_mode`s. A new objective (a file in repro/methods/objectives) is sent to the workers by `set_loss_fn` and
registered as a policy loss for verl's ppo_loss. KL and entropy terms are verl's, too, summed over draws in place of
rows.
"""

from collections.abc import Callable
from dataclasses import replace
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
COPIES = "copies"  # field of a row: how often it was drawn, in terms that its weight does not multiply
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


def arm_loss(
    model_output: Any, data: Any, dp_group: Any = None, *, config: Any, objective: Callable | None, plain: Any = None
) -> Any:
    """verl's ppo_loss, called in the workers; with `objective` as its policy loss, unless that is None.

    `plain`: `config` without KL and entropy terms, where it has one. verl counts every row once in these; here a row
    counts as often as it was drawn (`repro.verl.batch.merged`), times its group's weight under group-mean.
    """
    from verl.trainer.ppo.core_algos import register_policy_loss
    from verl.workers.utils.losses import ppo_loss

    if objective is not None:
        register_policy_loss(OWN)(policy_loss(objective))
    loss, metrics = ppo_loss(plain or config, model_output, data, dp_group)
    return (loss, metrics) if plain is None else _with_terms(loss, metrics, model_output, data, config, plain)


def _with_terms(loss: Any, metrics: dict, model_output: Any, data: Any, config: Any, plain: Any) -> Any:
    """`loss` plus verl's KL and entropy terms, each row's times its `copies`; `plain` has the divisors of the batch."""
    from verl.trainer.ppo.core_algos import agg_loss, kl_penalty
    from verl.utils.metric import AggregationType, Metric
    from verl.workers.utils.padding import no_padding_2_padding

    names = ["response_mask", COPIES, *(["ref_log_prob"] if config.use_kl_loss else [])]
    rows = data.select(*names).to_padded_tensor()

    def total(values_N_T: Any) -> Any:
        mask_N_T = rows["response_mask"].to(bool)
        return agg_loss(values_N_T * rows[COPIES], mask_N_T, config.loss_agg_mode, **plain.global_batch_info)

    if config.entropy_coeff:
        entropy = total(no_padding_2_padding(model_output["entropy"], data))
        loss = loss - config.entropy_coeff * entropy
        metrics["actor/entropy_loss"] = Metric(value=entropy, aggregation=AggregationType.SUM)
    if config.use_kl_loss:
        log_prob = no_padding_2_padding(model_output["log_probs"], data)
        kl = total(kl_penalty(log_prob, rows["ref_log_prob"], kl_penalty=config.kl_loss_type))
        loss = loss + config.kl_loss_coef * kl
        metrics |= {"kl_loss": Metric(value=kl, aggregation=AggregationType.SUM), "kl_coef": config.kl_loss_coef}
    return loss, metrics


def own_loss(method: Method, actor_config: Any) -> Callable | None:
    """The argument of the workers' `set_loss_fn`; None if the arm's loss is verl's own to the last term."""
    own = actor_config.policy_loss.loss_mode == OWN
    if not own and not has_terms(actor_config):
        return None
    plain = replace(actor_config, use_kl_loss=False, entropy_coeff=0.0) if has_terms(actor_config) else None
    return partial(arm_loss, config=actor_config, objective=method.objective if own else None, plain=plain)


def has_terms(actor_config: Any) -> bool:
    """Whether the loss has a KL or an entropy term, which every row has a share of."""
    return bool(actor_config.use_kl_loss or actor_config.entropy_coeff)
