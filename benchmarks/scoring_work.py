"""What both trainers of benchmarks.scoring get: a model with SmolLM2's architecture, and one batch of rollouts."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from repro.engine.backends.load import build_tiny
from repro.paths import BUILD
from repro.policy.model import save_policy

ARMS = ("d3s", "zvf-cost-aware")
GROUPS, GROUP, SILENT = 4, 8, 1  # groups of rollouts, and those of them whose rewards are equal
UPDATES, KL, SEED, LONGEST = 2, 1e-3, 0, 64
SMOLLM2 = {  # SmolLM2-135M's config.json; it has 30 layers
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rope_theta": 100000.0,
    "tie_word_embeddings": True,
}


@dataclass(frozen=True)
class Work:
    """prompts_N and responses_N: token ids; group_N; verdicts_N."""

    prompts_N: list[list[int]]
    responses_N: list[list[int]]
    group_N: np.ndarray
    verdicts_N: np.ndarray


def work() -> Work:
    """Prompts of 12 to 24 tokens and responses of 6 to 64, all of random bytes."""
    rng = np.random.default_rng(SEED)
    prompts_Q = [rng.integers(1, 257, rng.integers(12, 25)).tolist() for _ in range(GROUPS)]
    lengths_N = np.clip(rng.lognormal(np.log(24), 0.6, GROUPS * GROUP), 6, LONGEST).astype(int)
    responses_N = [[*rng.integers(1, 257, length - 1).tolist(), 0] for length in lengths_N]
    verdicts_Q_G = (rng.permuted(np.tile(np.arange(GROUP), (GROUPS, 1)), axis=1) < 3).astype(float)
    verdicts_Q_G[:SILENT] = 0.0
    group_N = np.repeat(np.arange(GROUPS), GROUP)
    return Work([prompts_Q[group] for group in group_N], responses_N, group_N, verdicts_Q_G.reshape(-1))


def model_folder(layers: int, seed: int) -> Path:
    """A randomly initialised model and a tokenizer of bytes, made once."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = BUILD / "bench" / f"smollm2-{layers}-{seed}"
    if not (folder / "config.json").exists():
        torch.manual_seed(seed)
        config = LlamaConfig(**SMOLLM2, num_hidden_layers=layers, eos_token_id=0, pad_token_id=0)
        save_policy(LlamaForCausalLM(config), build_tiny()[1], folder)
    return folder


def flat(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.flatten() for part in parts])
