"""A scale with what the command line overrides, so that the plan, the settings and the ledger follow it too.

Without this, verl would train with `rollout.n=8` on a plan of groups of 16.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from repro.errors import brief
from repro.paper_scale.at_scale import settings_at
from repro.paper_scale.overrides import overrides
from repro.paper_scale.schema import PaperScale, Value
from repro.settings import Settings, SettingsError, validated
from repro.settings.fields import COLDEST
from repro.verl.compose import compose, key_of
from repro.verl.loss import AGGREGATIONS

if TYPE_CHECKING:
    from omegaconf import DictConfig

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
FIELDS = {
    "actor_rollout_ref.model.path": "model",
    "data.train_batch_size": "train_batch",
    "data.max_prompt_length": "max_prompt_tokens",
    "data.max_response_length": "max_response_tokens",
    f"{ACTOR}.ppo_mini_batch_size": "minibatch",
    f"{ACTOR}.optim.lr": "learning_rate",
    f"{ACTOR}.optim.lr_warmup_steps": "warmup_steps",
    f"{ACTOR}.optim.weight_decay": "weight_decay",
    f"{ACTOR}.optim.clip_grad": "gradient_clip",
    f"{ACTOR}.kl_loss_coef": "kl",
    f"{ACTOR}.entropy_coeff": "entropy",
    f"{ROLLOUT}.n": "group_size",
    f"{ROLLOUT}.temperature": "temperature",
    f"{ROLLOUT}.top_p": "top_p",
}
AGGREGATION = f"{ACTOR}.loss_agg_mode"
USE_KL = f"{ACTOR}.use_kl_loss"
SAMPLES, HEAT = f"{ROLLOUT}.val_kwargs.n", f"{ROLLOUT}.val_kwargs.temperature"
OF_THE_RUN = {"trainer.total_training_steps": "steps", "trainer.test_freq": "log_every"}


def overridden(scale: PaperScale, settings: Settings, arm: str, more: Sequence[str]) -> PaperScale:
    """`scale` with the values that `more` gives for its fields; the same where it gives none."""
    from omegaconf import OmegaConf

    given = _keys(more)
    if not given & {*FIELDS, USE_KL, AGGREGATION}:
        return scale
    config = compose([*overrides(scale, settings, arm), *more])
    changes = {FIELDS[key]: (OmegaConf.select(config, key), key) for key in FIELDS if key in given}
    if USE_KL in given and not config.actor_rollout_ref.actor.use_kl_loss:
        changes["kl"] = (0.0, USE_KL)
    if AGGREGATION in given:
        mode = config.actor_rollout_ref.actor.loss_agg_mode
        own = [name for name, of_verl in AGGREGATIONS.items() if of_verl == mode]
        changes |= {"aggregation": (own[0], AGGREGATION)} if own else {}
    plain: dict[str, Any] = scale.model_dump()
    for field, (value, key) in changes.items():
        plain[field] = Value(value=value, ours=f"{key} on the command line").model_dump()
    try:
        return PaperScale.model_validate(plain)
    except ValidationError as error:
        first = error.errors()[0]
        key = next((key for field, (_, key) in changes.items() if field == first["loc"][0]), scale.name)
        why = " ".join(first["msg"].split()).lower()
        raise SettingsError(f"{key}={brief(first['input'])}: {why}") from None


def settings_of(scale: PaperScale, settings: Settings, arm: str, config: "DictConfig", more: Sequence[str]) -> Settings:
    """`settings` at an `overridden` scale, with the steps and the evaluation that `more` gives."""
    from omegaconf import OmegaConf

    at_scale, given = settings_at(scale, settings), _keys(more)
    own = {name: OmegaConf.select(config, key) for key, name in OF_THE_RUN.items() if key in given}
    own = {name: value for name, value in own.items() if value and value > 0}  # -1: never
    sampled = config.actor_rollout_ref.rollout.val_kwargs
    evaluated = {"samples": sampled.n, "final_samples": sampled.n} if SAMPLES in given else {}
    evaluated |= {"temperature": max(sampled.temperature, COLDEST)} if HEAT in given else {}
    if not own and not evaluated:
        return at_scale
    plain = at_scale.model_dump()
    plain["engine"] |= own
    plain["evaluation"] |= evaluated
    if "steps" in own:
        plain["arms"][arm]["engine"]["steps"] = own["steps"]
    plain["parity"]["steps"] = max(plain["parity"]["steps"], plain["engine"]["log_every"])
    return validated(plain, f"scale {scale.name}, as overridden")


def _keys(more: Sequence[str]) -> set[str]:
    return set(map(key_of, more))
