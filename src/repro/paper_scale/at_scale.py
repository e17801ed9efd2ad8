"""The settings of params.yaml at a paper scale: what both engines, the ledger and the trainer on verl read."""

import importlib
import inspect
from typing import Any

from repro.paper_scale.values import PaperScale
from repro.settings import Arm, Settings

# Ours: the papers say how they evaluate in the end (32 outputs to a question) and not how often before.
EVALUATION = {"every": 20, "samples": 1, "final_samples": 32}
CHECKPOINT_EVERY = 10  # steps; what a run that is cut short loses at most


def settings_at(scale: PaperScale, settings: Settings) -> Settings:
    """`settings` with the table's values in place of the embedded study's; arms keep what they set themselves."""
    steps, group = settings.engine.steps, scale.group_size.value
    arms = {}
    for name, arm in settings.arms.items():
        own = None if arm.steps is None else round(arm.steps / steps * scale.steps)  # it keeps its share of the run
        arms[name] = arm_at(scale, arm).model_copy(update={"steps": own}).model_dump()
    engine = {
        "device": "cuda",
        "dtype": "bfloat16",
        "steps": scale.steps,
        "rollouts_per_step": scale.rollouts_per_step,
        "minibatch": scale.minibatch.value * group,
        "max_new_tokens": scale.max_response_tokens.value,
        "temperature": scale.temperature.value,
        "learning_rate": scale.learning_rate.value,
        "weight_decay": scale.weight_decay.value,
        "gradient_clip": scale.gradient_clip.value,
        "kl": scale.kl.value,
        "checkpoint_every": CHECKPOINT_EVERY,
    }
    plain = settings.model_dump()
    plain["arms"] = arms
    plain["engine"] |= engine
    plain["evaluation"] |= {**EVALUATION, "temperature": scale.temperature.value}
    plain["policy"]["source"] = scale.model.value
    # Not read at this scale, but held to the evaluation's rhythm by the schema.
    plain["parity"]["steps"] = max(plain["parity"]["steps"], EVALUATION["every"])
    return Settings.model_validate({**plain, "scale": scale.name})


def arm_at(scale: PaperScale, arm: Arm) -> Arm:
    """The arm with the table's group size and clip, unless it sets its own, where plan and objective have these."""
    plan, objective = arm.plan, arm.objective
    clip = scale.clips.get(objective[0])
    table = {"clip_low": clip.low.value, "clip_high": clip.high.value} if clip else {}
    return arm.model_copy(
        update={
            "plan": (plan[0], _known("plans", plan[0], {"group_size": scale.group_size.value}) | plan[1]),
            "objective": (objective[0], _known("objectives", objective[0], table) | objective[1]),
        }
    )


def _known(package: str, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Those of `parameters` that the module's function takes; a wrong name is left for repro.arms to refuse."""
    try:
        function = getattr(importlib.import_module(f"repro.methods.{package}.{name}"), name)
    except (ModuleNotFoundError, AttributeError):
        return {}
    taken = inspect.signature(function).parameters
    return {key: value for key, value in parameters.items() if key in taken}
