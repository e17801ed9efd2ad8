"""verl's complete configuration for one run on a CPU, from the same settings as the embedded engine.

Hydra composes verl's defaults; our settings override them, and the caller's overrides come last.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.methods.method import Method
from repro.settings import Settings, SettingsError
from repro.verl.compose import check_numbers, require_one_value, same_kind
from repro.verl.loss import actor_settings

STORE = "object_store_memory"
QUESTIONS = "the small policy's questions are those of params.yaml: task; your own go with --model and --data"
IN_PARAMS = "the settings, the plan and the ledger read params.yaml: set {} there"
INSTEAD = {  # keys of verl's that the settings of the small policy decide
    "data.train_files": QUESTIONS,
    "data.val_files": QUESTIONS,
    "trainer.total_training_steps": "settings and plan would keep theirs: give --steps, or --until to stop early",
    "data.max_response_length": IN_PARAMS.format("engine.max_new_tokens"),
    "actor_rollout_ref.rollout.n": IN_PARAMS.format("group_size of the arm's plan"),
    "actor_rollout_ref.rollout.temperature": IN_PARAMS.format("engine.temperature"),
    "actor_rollout_ref.rollout.val_kwargs.n": IN_PARAMS.format("evaluation.samples and evaluation.final_samples"),
    "actor_rollout_ref.rollout.val_kwargs.temperature": IN_PARAMS.format("evaluation.temperature"),
    "actor_rollout_ref.actor.optim.lr": IN_PARAMS.format("engine.learning_rate"),
}
TEXT_AGENT = {"name": "repro_text", "_target_": "repro.verl.text_agent.TextAgentLoop"}


@dataclass(frozen=True)
class Files:
    """The files that verl reads (the policy, plan and held-out queries as parquet, the agent's registration, our
    settings, the plan's profile or None, and, for an arm that profiles again, all training queries) and writes."""

    policy: Path
    train: Path
    evaluation: Path
    agents: Path
    settings: Path
    checkpoints: Path
    output: Path
    profile: Path | None = None
    queries: Path | None = None


def compose(values: dict[str, Any], overrides: Sequence[str] = ()) -> Any:
    """verl's default configuration, overridden by `values` ({dotted key: value}) and then `overrides` ("key=value").

    SettingsError names an override that is malformed, or of a key that verl does not have.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = hydra_compose("ppo_trainer")
    for key, value in values.items():
        OmegaConf.update(config, key, value, merge=True, force_add=True)
    ours = copy.deepcopy(config)
    for override in overrides:
        if "=" not in override:
            raise SettingsError(f"{override}: write a verl setting as KEY=VALUE")
        require_one_value(override, ours)
        try:
            config.merge_with_dotlist([override])
        except (OmegaConfBaseException, YAMLError, ValueError, TypeError, AttributeError):
            raise SettingsError(f"{override}: verl has no such setting, or does not accept this value") from None
        same_kind(override, ours, config)
    if overrides:
        check_numbers(config)
    return config


def cpu_values(
    settings: Settings,
    arm: str,
    seed: int,
    method: Method,
    files: Files,
    *,
    longest_prompt: int,
    groups: int,
    ranks: int,
) -> dict[str, Any]:
    """verl's settings for a run of `arm`. `groups`: in a typical step; `ranks`: data-parallel processes."""
    settings = settings.model_copy(update={"engine": settings.engine_of(arm)})
    engine = settings.engine
    values = {
        "repro": {
            "arm": arm,
            "seed": seed,
            "settings": str(files.settings),
            "rollouts_per_step": engine.rollouts_per_step,
            "minibatch": engine.minibatch,
            "output": str(files.output),
            "profile": str(files.profile) if files.profile else None,
            "queries": str(files.queries) if files.queries else None,
        },
        "algorithm.adv_estimator": "grpo",
        "algorithm.filter_groups.enable": method.filter is not None,
        **_under("data", _data(files, longest_prompt, engine.max_new_tokens, groups)),
        **_under("actor_rollout_ref.model", _model(files)),
        **_under("actor_rollout_ref.actor", _actor(settings, method)),
        **_under("actor_rollout_ref.rollout", _rollout(settings, seed, files)),
        **_under("reward", _reward()),
        **_under("trainer", _trainer(settings, arm, seed, files, ranks)),
        "trainer.test_freq": engine.log_every,  # verl's loop evaluates at fixed steps, not at fixed budgets
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        **_under("ray_kwargs.ray_init", _ray(ranks)),
    }
    if engine.kl > 0:
        values |= _under("actor_rollout_ref.ref", {"strategy": "fsdp2", "fsdp_config.use_torch_compile": False})
        values |= {f"actor_rollout_ref.ref.fsdp_config.{key}": value for key, value in _single_precision().items()}
    return values


def cpu_overrides(ranks: int) -> dict[str, Any]:
    """What makes a configuration for GPUs run on this machine's CPU, in `ranks` processes."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    unfused = {"use_torch_compile": False, "fsdp_config.use_torch_compile": False}
    single = {f"fsdp_config.{key}": value for key, value in _single_precision().items()}
    return {
        "trainer.device": "cpu",
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": ranks,
        "data.dataloader_num_workers": 0,
        "reward.num_workers": 1,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        "actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
        **_under(actor, unfused | single),
        **_under("actor_rollout_ref.ref", unfused | single),
        **_under(rollout, {"name": "hf", "free_cache_engine": False, "agent.num_workers": 1}),
        **_under("ray_kwargs.ray_init", {key: value for key, value in _ray(ranks).items() if key != STORE}),
    }


def _under(section: str, values: dict[str, Any]) -> dict[str, Any]:
    return {f"{section}.{key}": value for key, value in values.items()}


def _data(files: Files, longest_prompt: int, longest_response: int, groups: int) -> dict[str, Any]:
    return {
        "train_files": str(files.train),
        "val_files": str(files.evaluation),
        "train_batch_size": groups,
        "gen_batch_size": 1,
        "max_prompt_length": longest_prompt,
        "max_response_length": longest_response,
        "dataloader_num_workers": 0,
        "shuffle": False,
    }


def _model(files: Files) -> dict[str, Any]:
    return {
        "path": str(files.policy),
        "use_remove_padding": False,
        "enable_gradient_checkpointing": False,
        "override_config.attn_implementation": "sdpa",
    }


def _single_precision() -> dict[str, Any]:
    return {
        "model_dtype": "fp32",
        "mixed_precision": {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
    }


def _actor(settings: Settings, method: Method) -> dict[str, Any]:
    engine = settings.engine
    return {
        **actor_settings(method, engine.max_new_tokens),
        "strategy": "fsdp2",
        "use_dynamic_bsz": True,
        "ppo_max_token_len_per_gpu": engine.slice_tokens,
        "ppo_mini_batch_size": 1,  # our trainer forms mini-batches
        "optim.lr": engine.learning_rate,
        "optim.weight_decay": engine.weight_decay,
        "optim.clip_grad": engine.gradient_clip,
        "use_kl_loss": engine.kl > 0,
        "kl_loss_coef": engine.kl,
        "use_torch_compile": False,
        "fsdp_config.use_torch_compile": False,
        **_under("fsdp_config", _single_precision()),
    }


def _rollout(settings: Settings, seed: int, files: Files) -> dict[str, Any]:
    return {
        "name": "hf",
        "n": 1,  # group sizes are in the plan's rows
        "seed": seed,
        "temperature": settings.engine.temperature,
        "tensor_model_parallel_size": 1,
        "free_cache_engine": False,
        "calculate_log_probs": True,  # as GPU runs have it: verl compares them with the trainer's
        "agent.num_workers": 1,
        "agent.default_agent_loop": TEXT_AGENT["name"],
        "agent.agent_loop_config_path": str(files.agents),
        "val_kwargs.do_sample": True,
        "val_kwargs.temperature": settings.evaluation.temperature,
    }


def _reward() -> dict[str, Any]:
    return {
        "num_workers": 1,
        "reward_manager.source": "importlib",
        "reward_manager.name": "Verdict",
        "reward_manager.module.path": "pkg://repro.verl.reward",
    }


def _trainer(settings: Settings, arm: str, seed: int, files: Files, ranks: int) -> dict[str, Any]:
    return {
        "device": "cpu",
        "n_gpus_per_node": ranks,
        "nnodes": 1,
        "logger": ["console"],
        "project_name": "repro",
        "experiment_name": f"{arm}-seed-{seed}",
        "total_training_steps": settings.steps_of(arm),
        "total_epochs": 10**9,  # steps end the run, not epochs
        "save_freq": settings.engine.checkpoint_every,
        "default_local_dir": str(files.checkpoints),
    }


def _ray(ranks: int) -> dict[str, Any]:
    """A separate local cluster; `num_gpus` are slots of our CPU platform."""
    return {
        "address": "local",  # even if another cluster is running
        "num_cpus": 16,
        "num_gpus": ranks,
        "include_dashboard": False,
        STORE: 300_000_000,  # the small policy's weights pass through it; for any other model it is Ray's own choice
    }
