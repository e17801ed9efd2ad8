"""Sampling engines behind one interface: `transformers` in this process, `vllm` in a child process.

`open_backend` opens one. Both sample from softmax(logits / temperature), or from its nucleus, stop at given tokens and
report the log-probability of each token under the distribution it was drawn from.
"""

import importlib.util
import shutil
from pathlib import Path

from repro.engine.backends.base import MAX_LENGTH, NAMES, Backend, BackendError, Samples, stop_tokens

__all__ = [
    "MAX_LENGTH",
    "NAMES",
    "Backend",
    "BackendError",
    "Samples",
    "open_backend",
    "stop_tokens",
    "why_not_vllm",
]


def why_not_vllm() -> str | None:
    """Why vLLM cannot run here, and the remedy; None if it can."""
    if importlib.util.find_spec("vllm") is None:
        return "vLLM is not installed: `make extra-vllm` adds it (Linux on x86-64)"
    for tool in ("g++", "lscpu"):
        if shutil.which(tool) is None and not _gpu():
            return f"vLLM on a CPU calls `{tool}`, which is not on the path: install it"
    return None


def _gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def open_backend(
    name: str, folder: Path, *, dtype: str = "float32", threads: int = 1, max_length: int = MAX_LENGTH
) -> Backend:
    """The engine `name` with the model in `folder` (written by save_pretrained). BackendError if it cannot be opened.

    `max_length`: limit on prompt + response in vLLM, or the model's own limit if that is lower; tokens. With the
    transformers engine, only the model's limit applies.
    """
    if name == "transformers":
        from repro.engine.backends.transformers import Transformers

        return Transformers(folder, dtype=dtype, threads=threads)
    if name != "vllm":
        raise BackendError(f"there is no engine {name!r}: choose one of {', '.join(NAMES)}")
    if reason := why_not_vllm():
        raise BackendError(reason)
    from repro.engine.backends.vllm import Vllm

    return Vllm(folder, dtype=dtype, threads=threads, max_length=max_length)
