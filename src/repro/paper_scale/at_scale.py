"""The settings of params.yaml at a paper scale, as both engines, the ledger and the trainer on verl read them."""

import importlib
import inspect
from typing import Any

from repro.paper_scale.schema import PaperScale
from repro.settings import ON_VERL, Arm, Settings, validated

# Ours: the papers state the final evaluation (32 outputs to a question) but no rhythm before it.
EVALUATION = {**ON_VERL, "samples": 1, "final_samples": 32}
EVALUATE_EVERY = 20  # steps
# Of an arm's own engine settings, those that are the table's here: they go with the size of the model and the batch.
OF_THE_TABLE = {"rollouts_per_step": None, "minibatch": None, "learning_rate": None}
CHECKPOINT_EVERY = 10  # steps; the most that an interrupted run loses


def settings_at(scale: PaperScale, settings: Settings) -> Settings:
    """`settings` with the table's values in place of the embedded study's; what an arm sets itself stays."""
    group, temperature = scale.group_size.value, scale.temperature.value
    plain = settings.model_dump()
    plain["scale"] = scale.name
    for name, arm in settings.all_arms.items():
        share = settings.steps_of(name) / settings.engine.steps  # an arm with steps of its own keeps its share
        steps = round(share * scale.steps) if arm.engine.steps else None
        changes = arm.engine.model_copy(update={**OF_THE_TABLE, "steps": steps})
        plain["arms" if name in settings.arms else "more_arms"][name] = (
            arm_at(scale, arm).model_copy(update={"engine": changes}).model_dump()
        )
    plain["engine"] |= {
        "device": "cuda",
        "dtype": "bfloat16",
        "steps": scale.steps,
        "rollouts_per_step": scale.rollouts_per_step,
        "minibatch": scale.minibatch.value * group,
        "max_new_tokens": scale.max_response_tokens.value,
        "checkpoint_every": CHECKPOINT_EVERY,
        "log_every": EVALUATE_EVERY,
    }
    for name in ("temperature", "learning_rate", "weight_decay", "gradient_clip", "kl"):
        plain["engine"][name] = getattr(scale, name).value
    plain["evaluation"] |= {**EVALUATION, "temperature": temperature}
    plain["policy"]["source"] = scale.model.value
    # Not read at this scale, but the schema checks it against the evaluation's rhythm.
    plain["parity"]["steps"] = max(plain["parity"]["steps"], EVALUATE_EVERY)
    return validated(plain, f"scale {scale.name}")


def arm_at(scale: PaperScale, arm: Arm) -> Arm:
    """The arm with the table's aggregation, group size and clip, where the arm sets none and its parts have them."""
    plan, objective = arm.plan, arm.objective
    clip = scale.clips.get(objective[0])
    table = {"clip_low": clip.low.value, "clip_high": clip.high.value} if clip else {}
    own = "aggregation" in arm.model_fields_set
    return arm.model_copy(
        update={
            "aggregation": arm.aggregation if own else scale.aggregation.value,
            "plan": (plan[0], _accepted("plans", plan[0], {"group_size": scale.group_size.value}) | plan[1]),
            "objective": (objective[0], _accepted("objectives", objective[0], table) | objective[1]),
        }
    )


def _accepted(package: str, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Those of `parameters` that the module's function takes; a wrong name is left for repro.arms to refuse."""
    try:
        function = getattr(importlib.import_module(f"repro.methods.{package}.{name}"), name)
    except (ModuleNotFoundError, AttributeError):
        return {}
    accepted = inspect.signature(function).parameters
    return {key: value for key, value in parameters.items() if key in accepted}
