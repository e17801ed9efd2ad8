"""The requirements of a run on GPUs, checked before anything is loaded: GPUs, packages, data, models.

Without these checks a run would fail minutes or hours after it began, with another program's message.
"""

import importlib.util
import os
import re
import socket
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repro import paths
from repro.errors import Refused
from repro.files import write_text
from repro.verl.version import require_plugin, require_verl

GPU_PACKAGES = ("vllm",)  # what verl generates with
# The override by which verl's trainer attends with something else than torch.
ATTENTION = re.compile(r"\+*actor_rollout_ref\.model\.override_config\.attn_implementation=")


class NotReady(Refused, RuntimeError):
    """One sentence: what is missing, and the command that provides it."""


def require_machine(name: str, arm: str, overrides: Sequence[str] = ()) -> None:
    """NotReady or UnsupportedVerl where this machine, or the Ray cluster that RAY_ADDRESS names, cannot run `name`."""
    address = os.environ.get("RAY_ADDRESS", "")
    if address.startswith("http"):
        raise NotReady(
            f"RAY_ADDRESS is {address}, the dashboard's, to which configs/launch/ray_submit.sh submits: unset it for "
            "this node's GPUs, or give the cluster's own, host:port"
        )
    if not address and gpus_here() == 0:
        raise NotReady(
            f"{name} needs GPUs, and there is none here, nor a Ray cluster in RAY_ADDRESS: "
            f"`python -m repro.verl --arm {arm}` trains the small policy on this machine"
        )
    require_verl()
    require_plugin()
    chosen = [entry.partition("=")[2] for entry in overrides if ATTENTION.match(entry)]
    needed = (*GPU_PACKAGES, *(("flash_attn",) if chosen and chosen[-1].startswith("flash") else ()))
    if missing := [package for package in needed if importlib.util.find_spec(package) is None]:
        raise NotReady(
            f"{name} needs {' and '.join(missing)}, not installed here: the head of environment.yml has the commands "
            "that make the GPU environment"
        )


def require_data(names: Sequence[str], data: Path) -> None:
    """NotReady names the prepared data sets that are not in the folder `data`, and the command that makes them: all in
    one call, since training sets lose the questions of the sets prepared with them."""
    missing = [name for name in names if not (data / f"{name}.parquet").exists()]
    if missing:
        raise NotReady(
            f"{data} lacks {', '.join(f'{name}.parquet' for name in missing)}: "
            f"`python -m repro.data prepare {' '.join(names)} --out {data}` makes them; --keep-evaluated leaves the "
            "evaluation sets' questions in training sets, as in the papers; --prompt plain is for a model whose "
            "template asks for \\boxed{} by itself, such as Qwen2.5-Math"
        )


def gpus_here() -> int:
    """GPUs of this machine that torch may use."""
    import torch

    return torch.cuda.device_count()


def gpus_at_hand() -> tuple[int, int]:
    """(nodes, GPUs on each, those of the smallest): of the Ray cluster in RAY_ADDRESS, or of this machine."""
    if not os.environ.get("RAY_ADDRESS"):
        return 1, gpus_here()
    import ray
    from ray.exceptions import AuthenticationError

    address = os.environ["RAY_ADDRESS"]
    try:
        _knock(address)
        ray.init(log_to_driver=False)
    except AuthenticationError as error:
        raise NotReady(
            f"the Ray cluster at {address} wants its token: give RAY_AUTH_TOKEN the one of its head, in "
            "~/.ray/auth_token there, and the same on every node"
        ) from error
    except OSError as error:
        raise NotReady(
            f"no Ray cluster answers at {address} ({error}): give RAY_ADDRESS the address that `ray start --head` "
            "printed, or unset it to use this node's GPUs"
        ) from error
    try:
        per_node = [int(node["Resources"].get("GPU", 0)) for node in ray.nodes() if node["Alive"]]
    finally:
        ray.shutdown()
    with_gpus = [gpus for gpus in per_node if gpus]
    if not with_gpus:
        raise NotReady(f"the Ray cluster at {address} has no GPU: start its nodes with --num-gpus")
    return len(with_gpus), min(with_gpus)


def _knock(address: str) -> None:
    """OSError where nothing listens at host:port, which Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=20).close()


def own_cluster() -> dict[str, Any]:
    """Arguments of `ray.init` where RAY_ADDRESS names no cluster: a new one, with this machine's GPUs.

    By default Ray joins any cluster that was started on this machine, someone else's or one that has since ended.
    """
    return {} if os.environ.get("RAY_ADDRESS") else {"address": "local", "num_gpus": gpus_here()}


def on_cluster(config: Any) -> Any:
    """The configuration with what Ray needs to use the GPUs that `gpus_at_hand` counted; its processes on other nodes
    find the project under the same path."""
    from omegaconf import OmegaConf

    os.environ["REPRO_ROOT"] = str(paths.ROOT)
    there = "ray_kwargs.ray_init.runtime_env.env_vars.REPRO_ROOT"
    OmegaConf.update(config, there, str(paths.ROOT), force_add=True)
    if OmegaConf.select(config, "ray_kwargs.ray_init.address") is None:
        for key, value in own_cluster().items():
            OmegaConf.update(config, f"ray_kwargs.ray_init.{key}", value, force_add=True)
    return config


def loggers_of(config: Any) -> None:
    """A resumed run goes on in its own Weights & Biases run, and verl's logger `file` writes metrics.jsonl in the run's
    folder, next to those of the parts before it, metrics-1.jsonl and so on. Ray hands these variables to verl's
    processes."""
    from omegaconf import OmegaConf

    folder, variables = Path(config.trainer.default_local_dir).parent, {}
    if "wandb" in config.trainer.logger:
        path = folder / "wandb-run"
        if not path.exists():
            write_text(uuid.uuid4().hex[:12], path)
        variables |= {"WANDB_RUN_ID": path.read_text().strip(), "WANDB_RESUME": "allow"}
    if "file" in config.trainer.logger:
        written = folder / "metrics.jsonl"
        if written.exists():  # verl would empty it
            written.rename(folder / f"metrics-{len(list(folder.glob('metrics*.jsonl')))}.jsonl")
        variables["VERL_FILE_LOGGER_PATH"] = str(written)
    for name, value in variables.items():
        value = os.environ.get(name, value)
        OmegaConf.update(config, f"ray_kwargs.ray_init.runtime_env.env_vars.{name}", value, force_add=True)
