"""The requirements of a run at a paper scale, checked before anything is loaded: GPUs, packages, data, models.

Without these checks a run would fail minutes or hours after it began, with another program's message.
"""

import importlib.util
import os
import socket
from pathlib import Path
from typing import Any

from repro.paper_scale.schema import PaperScale
from repro.verl.version import require_plugin, require_verl

GPU_PACKAGES = ("vllm", "flash_attn")  # what verl generates and attends with


class NotReady(RuntimeError):
    """One sentence: what is missing, and the command that provides it."""


def require_machine(scale: PaperScale, arm: str) -> None:
    """NotReady or UnsupportedVerl where this machine, or the Ray cluster that RAY_ADDRESS names, cannot run `scale`."""
    address = os.environ.get("RAY_ADDRESS", "")
    if address.startswith("http"):
        raise NotReady(
            f"RAY_ADDRESS is {address}, the dashboard's, to which launch/ray_submit.sh submits: unset it to use this "
            "node's GPUs, or give the cluster's own, host:port"
        )
    if not address and gpus_here() == 0:
        raise NotReady(
            f"{scale.name} needs GPUs, and there is none here, nor a Ray cluster in RAY_ADDRESS: "
            f"`python -m repro.verl --arm {arm}` trains the small policy on this machine"
        )
    require_verl()
    require_plugin()
    missing = [name for name in GPU_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise NotReady(
            f"{scale.name} needs {' and '.join(missing)}, not installed here: the head of environment.yml has the "
            "commands that make the GPU environment"
        )


def require_data(scale: PaperScale, data: Path) -> None:
    """NotReady names the prepared data sets that are not in the folder `data`, and the command that makes them: all in
    one call, since training sets lose the questions of the sets prepared with them."""
    names = [scale.train_data.value, *scale.validation_data.value]
    missing = [name for name in names if not (data / f"{name}.parquet").exists()]
    if missing:
        raise NotReady(
            f"{data} lacks {', '.join(f'{name}.parquet' for name in missing)}: "
            f"`python -m repro.data prepare {' '.join(names)} --out {data}` makes them"
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

    address = os.environ["RAY_ADDRESS"]
    try:
        _knock(address)
        ray.init(log_to_driver=False)
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
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=20).close()


def own_cluster() -> dict[str, Any]:
    """Arguments of `ray.init` where RAY_ADDRESS names no cluster: a new one, with this machine's GPUs.

    By default Ray joins any cluster that was started on this machine, someone else's or one that has since ended.
    """
    return {} if os.environ.get("RAY_ADDRESS") else {"address": "local", "num_gpus": gpus_here()}


def local_model(name: str) -> Path:
    """The folder of a model by its hub id, fetched if need be, or by its path; NotReady where it is not available."""
    from repro.engine.backends.load import ModelMissing, fetch

    try:
        return fetch(name)
    except ModelMissing as error:
        raise NotReady(
            f"the model {name} is not available ({error.__cause__ or 'it is no model folder'}): fetch it where there "
            "is a network, and name its folder: actor_rollout_ref.model.path=FOLDER"
        ) from error
