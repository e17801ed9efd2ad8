"""Build, save and load a policy in `transformers`' format, so that any hub model or local folder can replace it."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from repro.errors import Refused
from repro.tasks.tokenizer import BOS, EOS, PAD, SYMBOLS, build_tokenizer

SHIPPED = Path(__file__).with_name("pretrained")  # the base policy of stage `policy`, for use without the pipeline
GOLDEN = SHIPPED.with_name("golden")  # golden steps start from it, whatever the study's is, to tell code apart alone


class NoPolicy(Refused, OSError):
    """One sentence: which model cannot be loaded, and the remedy."""


def build_qwen2(hidden: int, layers: int, heads: int, max_length: int, key_value_heads: int | None = None) -> Any:
    """A new Qwen2 over the project's symbols, its weights drawn from torch's global generator. key_value_heads: those
    of keys and values that the heads of queries share; by default each has its own."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=len(SYMBOLS),
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads or heads,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        pad_token_id=SYMBOLS.index(PAD),
        bos_token_id=SYMBOLS.index(BOS),
        eos_token_id=SYMBOLS.index(EOS),
    )
    return Qwen2ForCausalLM(config)


def ensure_tokenizer(source: str | None) -> Any:
    """The tokenizer of the model at `source`, or the project's own for a policy built here."""
    return load_policy(source)[1] if source is not None else build_tokenizer()


def save_policy(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write model and tokenizer to `folder` atomically."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    _drop_library_versions(partial)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)


def _drop_library_versions(folder: Path) -> None:
    """`transformers` writes its version into the files, which would make equal policies differ in their bytes."""
    for name in ("config.json", "generation_config.json"):
        path = folder / name
        if path.exists():
            content = json.loads(path.read_text())
            content.pop("transformers_version", None)
            path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def load_policy(source: str | Path, device: str = "cpu", dtype: str = "float32") -> tuple[Any, Any]:
    """(model, tokenizer) from a local folder or a hub id. NoPolicy with the remedy when it cannot be had."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source, padding_side="left")
        model = AutoModelForCausalLM.from_pretrained(source, dtype=getattr(torch, dtype), attn_implementation="sdpa")
    except Exception as error:  # whatever a missing, cut or foreign file makes of it: Rust raises Exception itself
        why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise NoPolicy(
            f"policy.source: {str(source)!r} holds no model that transformers can load ({why}); "
            "give a folder written by save_pretrained, or a hub id that this machine can reach"
        ) from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model.to(device).eval(), tokenizer
