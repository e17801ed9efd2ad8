"""Memory per GPU during training (FSDP shards, activations recomputed) and during generation."""

from dataclasses import dataclass

from repro.experiments.planner.models import BFLOAT16, Architecture
from repro.settings.planner import Assumptions
from repro.verl.papers import PaperScale

FLOAT32 = 4  # bytes
STATES = 4 * FLOAT32  # weights, gradient and Adam's two moments, each float32, as verl's FSDP engine keeps them
LOGITS = 3 * FLOAT32  # per token and entry of the vocabulary: the logit, its softmax, and the gradient


@dataclass(frozen=True)
class Memory:
    """Gigabytes (10⁹ bytes) on one GPU. `sequences`: contexts of mean length that fit in the cache."""

    states: float
    activations: float
    logits: float
    rollout: float
    sequences: int

    @property
    def train(self) -> float:
        return self.states + self.activations + self.logits


def memory(scale: PaperScale, model: Architecture, gpus: int, mean_context: float, assumptions: Assumptions) -> Memory:
    """States are sharded over all GPUs. Activations, in bfloat16: one hidden state per layer and token, and all of the
    layer that is being recomputed. Logits are those of a micro-batch. The reference policy is off the GPU."""
    tokens = max(assumptions.microbatch_tokens, scale.max_prompt_tokens.value + scale.max_response_tokens.value)
    layer = 4 * model.hidden + 3 * model.feed_forward + 2 * (model.heads + model.key_value_heads) * model.head_width
    activations = tokens * (model.layers * model.hidden + layer) * BFLOAT16
    budget = assumptions.rollout_memory * assumptions.memory_gb * 1e9
    cache = budget * assumptions.replica_gpus - model.parameters * BFLOAT16
    return Memory(
        states=model.parameters * STATES / gpus / 1e9,
        activations=activations / 1e9,
        logits=tokens * model.vocabulary * LOGITS / 1e9,
        rollout=budget / 1e9,
        sequences=max(0, int(cache / (mean_context * model.cache_bytes))),
    )
