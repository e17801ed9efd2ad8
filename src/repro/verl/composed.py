"""The composed configuration of a run, kept in its folder: which values it was begun with, whoever set them.

settings.json has what our settings know, the number of steps too, before which `--until` stops; overrides on the
command line and verl's own defaults stand here alone. A run is resumed only with the values that it was begun with,
except those that change how it executes, not what it computes.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repro.files import write_text
from repro.settings import SettingsError
from repro.settings.text import read_mapping

FILE = "verl.yaml"
# Where it runs, how fast, what it prints and keeps. Numbers of processes only regroup sums. Of files of data and of the
# model it is the content that counts, wherever it is: `HASHES`.
EXECUTION = re.compile(
    r"""ray_kwargs\.|global_profiler\.|transfer_queue\.|skip\.|critic\.|.*\bprofiler\.|.*\bprometheus\.|.*_target_$
    |trainer\.(nnodes|n_gpus_per_node|logger|project_name|experiment_name|default_\w+_dir|resume_\w+|save_freq|\w*val_only|total_training_steps)$
    |trainer\.(val_before_train|log_val_generations|\w+_data_dir|max_\w+_ckpt_to_keep|ray_wait\w+|del_local\w+|device)$
    |repro\.(output|settings|profile|best)$
    |data\.(train_files|val_files|dataloader_num_workers|\w+_workers|use_shm)$
    |.*\b(gpu_memory_utilization|max_num_seqs|max_num_batched_tokens|enforce_eager|free_cache_engine|num_workers)$
    |.*_per_gpu$|.*\b(param|optimizer|activation)_offload$|.*\b(tensor_model|data|\w*sequence)_parallel_size$
    |.*\b(use_torch_compile|enable_(gradient_checkpointing|activation_offload)|fsdp_size|nccl_timeout|use_shm)$
    |.*\bagent_loop_config_path$|algorithm\.filter_groups\.max_num_gen_batches$|actor_rollout_ref\.model\.path$
    |reward\.custom_reward_function\.reward_kwargs\.processes$
    """,
    re.VERBOSE,
)
HASHES = {  # as repro.verl.identity writes
    "repro.data": "the rows of the data",
    "repro.model": "the model's weights",
    "repro.profiled": "the profile",
}


def values(config: Any) -> dict[str, Any]:
    """{dotted key: value} of everything that a run's numbers depend on."""
    return {key: value for key, value in flat(config).items() if not EXECUTION.match(key)}


def flat(config: Any) -> dict[str, Any]:
    """{dotted key: value} of a whole configuration."""
    from omegaconf import OmegaConf

    return dict(_flat(OmegaConf.to_container(config, resolve=True)))


def record(config: Any, folder: Path) -> None:
    """Write the whole configuration to the run's folder, for people and for `begun_with`."""
    from omegaconf import OmegaConf

    write_text(OmegaConf.to_yaml(config, resolve=True), folder / FILE)


def recorded(folder: Path) -> dict[str, Any] | None:
    """The configuration that was recorded in a run's folder; None without one."""
    path = folder / FILE
    return read_mapping(path) if path.exists() else None


def differences(config: Any, folder: Path) -> list[str]:
    """The values that changed since the run in `folder` was begun, as "a.b: 1 → 2"; [] for a new run."""
    from omegaconf import OmegaConf

    if (before := recorded(folder)) is None:
        return []
    before, now = values(OmegaConf.create(before)), values(config)
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    return [f"{HASHES.get(key, key)}: {before.get(key)} → {now.get(key)}" for key in keys]


def begun_with(config: Any, folder: Path) -> None:
    """SettingsError if `folder` holds a run that was begun with another configuration of verl."""
    if changed := differences(config, folder):
        raise SettingsError(
            f"{folder} was begun with other settings of verl ({'; '.join(changed)}): restore them, or remove the folder"
        )


def _flat(section: Mapping[str, Any], above: str = "") -> Any:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield above + str(key), value
