"""What is laid over verl's defaults: a preset, then the arm and the run's own files, then what a CPU needs.

The parts of an arm that verl has options for are here: objective and clip, aggregation, filter, group size. Plan and
samplers, which it has none for, reach our trainer as the arm's name and the settings (section `repro`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.methods.guard import is_whole
from repro.methods.method import Method
from repro.paths import CONFIGS
from repro.settings import Arm, Settings
from repro.settings.text import read_mapping
from repro.verl.compose import key_of, value_of
from repro.verl.loss import actor_settings
from repro.verl.papers import arm_at, steps_at, with_group
from repro.verl.presets import STUDY, Preset
from repro.verl.run import ACTOR, MODE, ROLLOUT, SETTINGS, WEIGHTED
from repro.verl.version import AHEAD

GROUP = f"{ROLLOUT}.n"
PLAIN_GROUP = 8  # rollouts of a prompt, where neither preset nor plan has a number
CPU = CONFIGS / "verl" / "cpu.yaml"


@dataclass(frozen=True)
class Asked:
    """What the command line names. `data`, `validation`: files, or the word `sums`; where `sets` names prepared data
    sets, for training and then for evaluation, `data` is their folder. `model`: a folder; `told`: a hub id that verl is
    given in its place, since each node fetches its own. `output`: the folder of the run; `gpus`: nodes, and GPUs on
    each, or one node's processes on a CPU."""

    arm: str
    preset: Preset
    model: str
    output: Path
    told: str | None = None
    data: str = ""
    sets: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    seed: int = 0
    cpu: bool = False
    gpus: tuple[int, int] = (1, 1)
    profile: Path | None = None
    overrides: tuple[str, ...] = ()

    def says(self, key: str) -> bool:
        """Whether the command line sets a key of verl's."""
        return key in map(key_of, self.overrides)

    @property
    def study(self) -> bool:
        """Whether the settings decide, and verl's configuration follows; else it is the other way round."""
        return self.preset.name == STUDY


def arm_of(asked: Asked, settings: Settings) -> Arm:
    """The arm, with the group size of the command line, else its own, else the preset's, and the paper's loss."""
    arm = settings.arm(asked.arm)
    given = [value_of(entry) for entry in asked.overrides if key_of(entry) == GROUP]
    if given and is_whole(given[-1]) and given[-1] > 0:  # `compose` refuses others
        name, own = arm.plan
        others = {key: value for key, value in own.items() if key != "group_size"}
        arm = arm.model_copy(update={"plan": with_group((name, others), given[-1])})
    if asked.preset.scale:
        return arm_at(asked.preset.scale, arm)
    size = None if asked.study else asked.preset.overrides.get(GROUP)
    return arm.model_copy(update={"plan": with_group(arm.plan, size)}) if size else arm


def layered(asked: Asked, settings: Settings, entry: Arm, method: Method) -> dict[str, Any]:
    """{verl's key: value} of every layer but the command line, each over the one before."""
    values = {**asked.preset.overrides, **of_arm(asked, settings, entry, method), **of_run(asked, entry)}
    if AHEAD in [value_of(entry) for entry in asked.overrides if key_of(entry) == MODE]:
        values |= {WEIGHTED: "token", f"{ROLLOUT}.calculate_log_probs": True}
    return values | (read_mapping(CPU) if asked.cpu else {})


def of_arm(asked: Asked, settings: Settings, entry: Arm, method: Method) -> dict[str, Any]:
    """What the arm sets of verl's."""
    preset, engine = asked.preset, entry.engine
    values = {f"{ACTOR}.{key}": value for key, value in actor_settings(method, 1).items()}  # `follow` has the length
    if f"{ACTOR}.clip_ratio_c" in preset.overrides:  # verl's second clip, which the papers' runs had; GRPO has none
        values.pop(f"{ACTOR}.clip_ratio_c", None)
    # For verl's own metrics; the advantages that train are the arm's.
    values["algorithm.norm_adv_by_std_in_grpo"] = entry.advantage[0] == "group_normalised"
    if preset.scale:
        values["trainer.total_training_steps"] = steps_at(preset.scale, settings, asked.arm)
    else:
        values[GROUP] = getattr(method.plan, "keywords", {}).get("group_size", PLAIN_GROUP)
    if engine.kl is not None:
        values |= {f"{ACTOR}.use_kl_loss": engine.kl > 0, f"{ACTOR}.kl_loss_coef": engine.kl}
    if engine.weight_decay is not None:
        values[f"{ACTOR}.optim.weight_decay"] = engine.weight_decay
    if engine.gradient_clip is not None:
        values |= dict.fromkeys([f"{ACTOR}.optim.clip_grad", f"{ACTOR}.grad_clip"], engine.gradient_clip)
    return values


def of_run(asked: Asked, entry: Arm) -> dict[str, Any]:
    """The arm's name, the seed, and the run's files."""
    folder = asked.output
    held_out = [str(Path(asked.data) / f"{name}.parquet") for name in asked.sets[1:]]
    return {
        "repro.arm": asked.arm,
        "repro.seed": asked.seed,
        "repro.settings": str(folder / SETTINGS),
        "repro.output": str(folder / "tables"),
        "repro.profile": str(folder / "profile") if entry.profile else None,
        "trainer.default_local_dir": str(folder / "checkpoints"),
        "trainer.nnodes": asked.gpus[0],
        "trainer.n_gpus_per_node": asked.gpus[1],
        "data.train_files": str(folder / "queries.parquet"),
        "data.val_files": held_out or str(folder / "validation.parquet"),
        "actor_rollout_ref.model.path": asked.told or asked.model,
    }


def written(layer: Mapping[str, Any]) -> list[str]:
    """A layer as Hydra's overrides, of keys that verl has and of new ones."""
    return [f"++{key}={_value(value)}" for key, value in layer.items()]


def _value(value: Any) -> str:
    """In Hydra's grammar, so that it reads back the same type and value."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(map(_value, value)) + "]"
    if isinstance(value, str):
        return "'" + value.replace("'", r"\'") + "'"
    return json.dumps(value)
