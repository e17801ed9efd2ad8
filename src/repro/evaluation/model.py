"""The evaluated model: its folder, its fingerprint, the tokens that end its responses."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from repro.engine.backends.load import ModelMissing, fetch
from repro.stored import Count, checked, read_stored

END, REMEDY = "eos_token_id", "save the model there again"
CONFIGURED = ("generation_config.json", "config.json")  # which name ends
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
SHARDS = "model_world_size_*_rank_*.pt"  # of one rank each; verl's FSDP checkpoints


def model_folder(source: str, dtype: str) -> Path:
    """The folder of `source`: a folder of save_pretrained, or a hub id. ModelMissing, with the command that merges the
    shards if it is a verl checkpoint."""
    given = Path(source)
    if given.is_dir():
        if not _has_weights(given):
            raise ModelMissing(_remedy(given))
        return given
    return fetch(source, dtype)


def _has_weights(folder: Path) -> bool:
    return (folder / "config.json").exists() and any(any(folder.glob(pattern)) for pattern in WEIGHTS)


def _remedy(folder: Path) -> str:
    if any(folder.rglob(SHARDS)):
        return (
            f"{folder} holds a sharded verl checkpoint: `python -m verl.model_merger merge --backend fsdp --local_dir "
            "global_step_N/actor --target_dir MERGED` merges one (it needs `make extra-verl`); then evaluate MERGED"
        )
    return f"the folder {folder} holds no model (a config.json and *.safetensors): save one there"


def fingerprint(folder: Path) -> str:
    """Hash of a model's configuration and of the names, sizes and times of its weights, since reading 16 GB of weights
    takes too long."""
    weights = [
        (path.name, path.stat().st_size, path.stat().st_mtime_ns)
        for pattern in WEIGHTS
        for path in sorted(folder.glob(pattern))
    ]
    content = (folder / "config.json").read_bytes() + json.dumps(weights).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def tokenizer_of(folder: Path | str) -> Any:
    """The tokenizer in a model's folder. ModelMissing where transformers finds none or a broken one."""
    from transformers import AutoTokenizer

    with _loading(folder, "tokenizer"):
        return AutoTokenizer.from_pretrained(folder)


@contextmanager
def _loading(folder: Path | str, what: str) -> Iterator[None]:
    """ModelMissing in place of whatever a cut file, another architecture or sizes that do not go make of it: Rust's
    tokenizers raise Exception itself."""
    try:
        yield
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ModelMissing(f"{folder} holds no {what} that transformers can load ({why}): {REMEDY}") from error


def stops_of(source: Path | str, tokenizer: Any) -> list[int]:
    """The tokens that end a response, at least one, on every engine: the tokenizer's first, then those of the
    generation configuration, of which Llama 3.1 has three, then the configuration's. `source`: the model's folder, or
    its hub id if it is in the hub's cache. ModelMissing where there is none."""
    named = [tokenizer.eos_token_id, *(end for name in CONFIGURED for end in _named(file_of(source, name)))]
    if not (stops := list(dict.fromkeys(end for end in named if end is not None))):
        raise ModelMissing(
            f"{source} names no token that ends a response, so none would end: give generation_config.json its {END}"
        )
    return stops


def ends_of(tokenizer: Any) -> list[int]:
    """`stops_of` the model that a tokenizer was loaded with."""
    return stops_of(getattr(tokenizer, "name_or_path", ""), tokenizer)


def padding_of(tokenizer: Any, stops: Sequence[int]) -> int:
    """The token that fills rows up: the tokenizer's, or the first end where a model, as some, has none."""
    return stops[0] if tokenizer.pad_token_id is None else tokenizer.pad_token_id


def _named(path: Path | None) -> list[int | None]:
    """The ends that a configuration names."""
    if path is None or not path.exists():
        return []
    content = {END: None} | read_stored(path, REMEDY, dict[str, Any])
    named = checked(content, path, REMEDY, {END: Count | list[Count] | None})[END]
    return named if isinstance(named, list) else [named]


def file_of(source: Path | str, name: str) -> Path | None:
    """A file of a model, None where it has none: in its folder, or in the hub's cache."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    if source and Path(source).is_dir():
        return Path(source, name)
    with suppress(HFValidationError):  # it is no id either
        cached = try_to_load_from_cache(str(source), name)
        return Path(cached) if isinstance(cached, str) else None
    return None


def without_weights(source: Path | str) -> Any:
    """The model of this configuration on torch's meta device: its shapes alone."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(source))


def require_known(source: Path | str) -> None:
    """ModelMissing where transformers cannot build the model of this configuration; no weights are read."""
    with _loading(source, "causal language model"):
        without_weights(source)


def longest_of(folder: Path | str) -> int | None:
    """The model's limit on prompt + response; tokens; None if it has none."""
    from transformers import AutoConfig

    with _loading(folder, "configuration"):
        return getattr(AutoConfig.from_pretrained(folder), "max_position_embeddings", None)
