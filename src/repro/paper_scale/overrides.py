"""From a paper scale and an arm of params.yaml to Hydra overrides on top of verl's own defaults.

The parts of an arm that verl has options for are set here: objective and clip, aggregation, filter, group size. Plan
and samplers, which it has none for, are passed as the arm's name and the settings (section `repro`) to our trainer.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.arms import build
from repro.paper_scale.at_scale import settings_at
from repro.paper_scale.schema import PaperScale
from repro.verl.loss import actor_settings

if TYPE_CHECKING:
    from repro.settings import Settings

# NAME.parquet of each data set, as `python -m repro.data prepare … --out data/verl` writes them
DATA = Path("data/verl")
RUNS = Path("runs")  # a folder per run: plan, settings, tables, checkpoints


def folder_of(scale: PaperScale, arm: str, seed: int, runs: Path = RUNS) -> Path:
    """The folder of a run: its plan, tables and checkpoints; the same run resumes from there."""
    return runs / scale.name / arm / f"seed-{seed}"


def overrides(
    scale: PaperScale,
    settings: "Settings",
    arm: str,
    *,
    seed: int = 0,
    nodes: int | None = None,
    gpus: int | None = None,
    data: Path = DATA,
    runs: Path = RUNS,
) -> list[str]:
    """`key=value` for each setting, in a fixed order. `nodes` and `gpus` (per node) replace the scale's.

    Any number of GPUs will do: a mini-batch that they cannot share evenly is filled up (repro.verl.batch).
    SettingsError where the arm is not in `settings`.
    """
    settings.arm(arm)
    at_scale, folder = settings_at(scale, settings), folder_of(scale, arm, seed, runs)
    values = {
        **_run(scale, at_scale, arm, seed, folder, nodes, gpus),
        **_data(scale, data, folder, seed),
        **_actor(scale, at_scale, arm, seed),
        **_rollout(scale, seed),
    }
    return [f"{key}={_written(value)}" for key, value in values.items()]


def _run(
    scale: PaperScale, at_scale: "Settings", arm: str, seed: int, folder: Path, nodes: int | None, gpus: int | None
) -> dict[str, Any]:
    profile = at_scale.arm(arm).profile
    return {
        "repro.scale": scale.name,
        "repro.arm": arm,
        "repro.seed": seed,
        "repro.settings": str(folder / "settings.json"),
        "repro.output": str(folder / "tables"),
        "repro.profile": str(folder / "profile") if profile else None,
        "repro.best": scale.validation_data.value[0],
        "repro.queries": str(folder / "queries.parquet") if profile and profile.again else None,
        "trainer.project_name": scale.name,
        "trainer.experiment_name": f"{arm}-seed-{seed}",
        "trainer.default_local_dir": str(folder / "checkpoints"),
        "trainer.nnodes": nodes or scale.nodes.value,
        "trainer.n_gpus_per_node": gpus or scale.gpus_per_node.value,
        "trainer.total_training_steps": at_scale.steps_of(arm),
        "trainer.save_freq": at_scale.engine.checkpoint_every,
        "trainer.test_freq": at_scale.engine.log_every,
    }


def _data(scale: PaperScale, data: Path, folder: Path, seed: int) -> dict[str, Any]:
    """Training data is the arm's plan, written by repro.paper_scale.prepare: its rows carry order and group sizes."""
    return {
        "data.train_files": str(folder / "plan.parquet"),
        "data.val_files": [str(data / f"{name}.parquet") for name in scale.validation_data.value],
        "data.train_batch_size": scale.train_batch.value,
        "data.max_prompt_length": scale.max_prompt_tokens.value,
        "data.max_response_length": scale.max_response_tokens.value,
        "data.seed": seed,
    }


def _actor(scale: PaperScale, at_scale: "Settings", arm: str, seed: int) -> dict[str, Any]:
    actor, entry, engine = "actor_rollout_ref.actor", at_scale.arm(arm), at_scale.engine_of(arm)
    loss = actor_settings(build(arm, entry), scale.max_response_tokens.value)
    if "clip_ratio_c" in loss:
        loss["clip_ratio_c"] = scale.dual_clip.value  # verl's second clip, which the papers' runs had; GRPO has none
    return {
        "actor_rollout_ref.model.path": scale.model.value,
        **{f"{actor}.{key}": value for key, value in loss.items()},
        f"{actor}.ppo_mini_batch_size": scale.minibatch.value,
        f"{actor}.use_kl_loss": engine.kl > 0,
        f"{actor}.kl_loss_coef": engine.kl,
        f"{actor}.entropy_coeff": scale.entropy.value,
        f"{actor}.optim.lr": scale.learning_rate.value,
        f"{actor}.optim.lr_warmup_steps": scale.warmup_steps.value,
        f"{actor}.optim.weight_decay": engine.weight_decay,
        f"{actor}.optim.clip_grad": engine.gradient_clip,
        f"{actor}.grad_clip": engine.gradient_clip,
        f"{actor}.data_loader_seed": seed,
        f"{actor}.fsdp_config.seed": seed,
        # For verl's own metrics; the advantages that train are the arm's.
        "algorithm.norm_adv_by_std_in_grpo": entry.advantage[0] == "group_normalised",
        "algorithm.filter_groups.enable": entry.filter is not None,
    }


def _rollout(scale: PaperScale, seed: int) -> dict[str, Any]:
    rollout = "actor_rollout_ref.rollout"
    return {
        f"{rollout}.n": scale.group_size.value,
        f"{rollout}.temperature": scale.temperature.value,
        f"{rollout}.top_p": scale.top_p.value,
        f"{rollout}.seed": seed,
        f"{rollout}.max_model_len": scale.max_prompt_tokens.value + scale.max_response_tokens.value,
        f"{rollout}.val_kwargs.temperature": scale.temperature.value,
        f"{rollout}.val_kwargs.top_p": scale.top_p.value,
    }


def _written(value: Any) -> str:
    """In Hydra's grammar, so that it reads back the same type and value."""
    if isinstance(value, list):
        return "[" + ",".join(_written(entry) for entry in value) + "]"
    return value if isinstance(value, str) else json.dumps(value)
