"""The model that is evaluated: its folder, what it holds, the tokens that end its responses."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from repro.engine.backends.load import ModelMissing, fetch

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
SHARDS = "model_world_size_*_rank_*.pt"  # of one rank each; verl's FSDP checkpoints


def model_folder(source: str, dtype: str) -> Path:
    """The folder of `source`: a folder of save_pretrained, or a hub id. ModelMissing, with the command that merges it
    for a checkpoint of verl's that is still in shards."""
    given = Path(source)
    if given.is_dir():
        if not _has_weights(given):
            raise ModelMissing(_mend(given))
        return given
    try:
        return fetch(source, dtype)
    except ModelMissing as error:  # it names the setting of another caller
        raise ModelMissing(str(error).removeprefix("language_model.source: ")) from error


def _has_weights(folder: Path) -> bool:
    return (folder / "config.json").exists() and any(any(folder.glob(pattern)) for pattern in WEIGHTS)


def _mend(folder: Path) -> str:
    steps = sorted(folder.glob("global_step_*"), key=lambda step: int(re.sub(r"\D", "", step.name) or -1), reverse=True)
    for place in (folder, folder / "actor", folder.parent, *(step / "actor" for step in steps)):
        if any(place.glob(SHARDS)):
            if _has_weights(place / "huggingface"):
                return f"{folder} holds verl's shards; the model itself is in {place / 'huggingface'}: evaluate that"
            merged = place.parent.with_name(f"{place.parent.name}-merged")  # verl deletes its old steps' folders
            return (
                f"{folder} holds a checkpoint of verl's in shards: `python -m verl.model_merger merge --backend fsdp "
                f"--local_dir {place} --target_dir {merged}` merges them (it needs `make extra-verl`); then evaluate "
                f"{merged}"
            )
    return f"the folder {folder} holds no model, which is a config.json and *.safetensors: save one there"


def fingerprint(folder: Path) -> str:
    """Of a model's configuration and its weights' names, sizes and times: reading 16 GB to tell two apart takes too
    long."""
    weights = [
        (path.name, path.stat().st_size, path.stat().st_mtime_ns)
        for pattern in WEIGHTS
        for path in sorted(folder.glob(pattern))
    ]
    content = (folder / "config.json").read_text() + json.dumps(weights)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def stops_of(folder: Path, tokenizer: Any) -> list[int]:
    """The tokens that end a response: the tokenizer's own first, then those of the generation configuration, of which
    Llama 3.1 has three. vLLM's own requests, and so verl's rollouts, end at the same."""
    path = folder / "generation_config.json"
    named = json.loads(path.read_text()).get("eos_token_id") if path.exists() else None
    listed = named if isinstance(named, list) else [named]
    return list(dict.fromkeys(token for token in [tokenizer.eos_token_id, *listed] if token is not None))


def longest_of(folder: Path) -> int | None:
    """Tokens of prompt and response that the model takes; None where it sets no bound."""
    from transformers import AutoConfig

    return getattr(AutoConfig.from_pretrained(folder), "max_position_embeddings", None)
