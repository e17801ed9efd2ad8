"""The evaluated model: its folder, its fingerprint, the tokens that end its responses."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from repro.engine.backends.load import ModelMissing, fetch
from repro.stored import Count, checked, read_stored

END, REMEDY = "eos_token_id", "save the model there again"
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
    try:
        return fetch(source, dtype)
    except ModelMissing as error:  # its message names a setting that does not apply here
        raise ModelMissing(str(error).removeprefix("language_model.source: ")) from error


def _has_weights(folder: Path) -> bool:
    return (folder / "config.json").exists() and any(any(folder.glob(pattern)) for pattern in WEIGHTS)


def _remedy(folder: Path) -> str:
    steps = sorted(folder.glob("global_step_*"), key=lambda step: int(re.sub(r"\D", "", step.name) or -1), reverse=True)
    for place in (folder, folder / "actor", folder.parent, *(step / "actor" for step in steps)):
        if any(place.glob(SHARDS)):
            if _has_weights(place / "huggingface"):
                return f"{folder} holds verl's shards; the model itself is in {place / 'huggingface'}: evaluate that"
            merged = place.parent.with_name(f"{place.parent.name}-merged")  # verl deletes folders of old steps
            return (
                f"{folder} holds a sharded verl checkpoint: `python -m verl.model_merger merge --backend fsdp "
                f"--local_dir {place} --target_dir {merged}` merges them (it needs `make extra-verl`); then evaluate "
                f"{merged}"
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

    try:
        return AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # whatever a cut file makes of it: Rust's tokenizers raise Exception itself
        raise ModelMissing(_broken(folder, "tokenizer", error)) from error


def _broken(folder: Path | str, what: str, error: Exception) -> str:
    why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return f"{folder} holds no {what} that transformers can load ({why}): save the model there again"


def stops_of(folder: Path, tokenizer: Any) -> list[int]:
    """The tokens that end a response: the tokenizer's first, then those of the generation configuration, of which
    Llama 3.1 has three. vLLM's own requests, and so verl's rollouts, end at the same tokens."""
    path = folder / "generation_config.json"
    named = _named(path) if path.exists() else None
    listed = named if isinstance(named, list) else [named]
    return list(dict.fromkeys(token for token in [tokenizer.eos_token_id, *listed] if token is not None))


def _named(path: Path) -> int | list[int] | None:
    """The ends that a generation configuration names."""
    content = {END: None} | read_stored(path, REMEDY, dict[str, Any])
    return checked(content, path, REMEDY, {END: Count | list[Count] | None})[END]


def longest_of(folder: Path) -> int | None:
    """The model's limit on prompt + response; tokens; None if it has none."""
    from transformers import AutoConfig

    try:
        return getattr(AutoConfig.from_pretrained(folder), "max_position_embeddings", None)
    except Exception as error:  # whatever a cut file makes of it
        raise ModelMissing(_broken(folder, "configuration", error)) from error
