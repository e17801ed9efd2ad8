"""From what a batch takes to how long it takes: compute at a share of the peak, decoding by what it has to read."""

from dataclasses import dataclass
from heapq import heapreplace

import numpy as np

from repro.experiments.planner.models import BFLOAT16, Architecture
from repro.settings.planner import Assumptions

TERA, GIGA = 1.0e12, 1.0e9


@dataclass(frozen=True)
class Seconds:
    """Of one batch, by phase."""

    generate: float
    score: float
    train: float
    other: float

    @property
    def total(self) -> float:
        return self.generate + self.score + self.train + self.other


def peak(assumptions: Assumptions) -> float:
    """Of one GPU, FLOP/s."""
    return assumptions.peak_tflops * TERA


def read_rate(assumptions: Assumptions) -> float:
    """Bytes per second that decoding reads on one GPU."""
    return assumptions.bandwidth_gbps * GIGA * assumptions.bandwidth_utilisation


def start_times(tokens_N: np.ndarray, slots: int) -> np.ndarray:
    """start_N, in decoding steps: sequences in order, each in the slot that is free first (continuous batching)."""
    free = [0] * min(slots, len(tokens_N))
    start_N = np.empty(len(tokens_N), int)
    for row, tokens in enumerate(tokens_N):
        start_N[row] = free[0]
        heapreplace(free, free[0] + int(tokens))
    return start_N


def decode_seconds(tokens_N: np.ndarray, prompt_tokens: int, model: Architecture, assumptions: Assumptions) -> float:
    """Seconds of one replica to decode its N responses.

    A decoding step of n sequences reads all weights once and the keys and values of their contexts, and multiplies n
    tokens by the weights; it takes the longer of the two, and the overhead. The weights read are those of every matrix
    product, head included.
    """
    start_N = start_times(tokens_N, slots_of(model, tokens_N, prompt_tokens, assumptions))
    end_N, length = start_N + tokens_N, int((start_N + tokens_N).max())
    alive_T = np.cumsum(np.bincount(start_N, minlength=length + 1) - np.bincount(end_N, minlength=length + 1))[:length]
    starts_T = np.bincount(start_N, start_N, length + 1) - np.bincount(end_N, start_N, length + 1)
    context_T = alive_T * (prompt_tokens + np.arange(length)) - np.cumsum(starts_T)[:length]
    read_T = model.matmul_parameters * BFLOAT16 + context_T * model.cache_bytes
    gpus = assumptions.replica_gpus
    memory_T = read_T / (read_rate(assumptions) * gpus)
    compute_T = 2.0 * model.matmul_parameters * alive_T / (peak(assumptions) * assumptions.decode_utilisation * gpus)
    return float(np.maximum(memory_T, compute_T).sum() + length * assumptions.decode_overhead_ms / 1000)


def slots_of(model: Architecture, tokens_N: np.ndarray, prompt_tokens: int, assumptions: Assumptions) -> int:
    """Sequences that a replica decodes at once: its slots, or fewer where their keys and values would not fit."""
    free = assumptions.replica_gpus * assumptions.memory_gb * 1e9 * assumptions.rollout_memory
    free -= model.parameters * BFLOAT16
    fits = int(free / (model.cache_bytes * (prompt_tokens + float(np.mean(tokens_N)))))
    return max(1, min(assumptions.slots, fits))


def seconds(
    *,
    generated: list[np.ndarray],
    rollouts: float,
    prompt_flops: float,
    score_flops: float,
    train_flops: float,
    model: Architecture,
    gpus: int,
    assumptions: Assumptions,
    rng: np.random.Generator,
) -> Seconds:
    """Of one batch on `gpus` GPUs. generated: drawn response lengths of some batches; `rollouts`: how many responses a
    real batch generates, shared evenly by the replicas; the other entries are FLOPs of a real batch."""
    replicas = max(1, gpus // assumptions.replica_gpus)
    each = max(1, round(rollouts / replicas))
    decoding = [
        decode_seconds(tokens_N[rng.integers(len(tokens_N), size=each)], assumptions.prompt_tokens, model, assumptions)
        for tokens_N in generated
    ]
    rate = gpus * peak(assumptions)
    prefill = prompt_flops / (rate * assumptions.score_utilisation)
    generate = float(np.mean(decoding)) + prefill
    score = score_flops / (rate * assumptions.score_utilisation)
    train = train_flops / (rate * assumptions.train_utilisation)
    return Seconds(generate, score, train, assumptions.other_share * (generate + score + train))
