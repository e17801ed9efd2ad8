"""Seconds per batch: training and scoring at a share of the peak FLOP/s, decoding mostly by the memory it must read."""

from collections.abc import Mapping
from heapq import heapreplace

import numpy as np

from repro.experiments.planner.models import ARCHITECTURES, BFLOAT16, Architecture
from repro.settings.planner import Assumptions
from repro.verl.papers import PaperScale

TERA, GIGA = 1.0e12, 1.0e9
SAVED = 12  # bytes of a parameter in a checkpoint: it and two moments, in single precision


def peak(assumptions: Assumptions) -> float:
    """FLOP/s of one GPU."""
    return assumptions.peak_tflops * TERA


def read_rate(assumptions: Assumptions) -> float:
    """Bytes per second that decoding reads on one GPU."""
    return assumptions.bandwidth_gbps * GIGA * assumptions.bandwidth_utilisation


def start_times(tokens_N: np.ndarray, slots: int) -> np.ndarray:
    """start_N, in decoding steps: each sequence in turn takes the first slot to become free (continuous batching)."""
    free = [0] * min(slots, len(tokens_N))
    start_N = np.empty(len(tokens_N), int)
    for row, tokens in enumerate(tokens_N):
        start_N[row] = free[0]
        heapreplace(free, free[0] + int(tokens))
    return start_N


def decode_seconds(tokens_N: np.ndarray, prompt_tokens: int, model: Architecture, assumptions: Assumptions) -> float:
    """Seconds that one replica takes to decode its N responses.

    A decoding step of n sequences reads all weights and the keys and values of the n contexts, and multiplies n tokens
    by the weights. It takes the longer of reading and computing, plus the overhead. The weights are those of all matrix
    products, output head included.
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
    """Sequences that a replica decodes at once: its slots, or as many as fit with their keys and values into memory."""
    free = assumptions.replica_gpus * assumptions.memory_gb * 1e9 * assumptions.rollout_memory
    free -= model.parameters * BFLOAT16
    fits = int(free / (model.cache_bytes * (prompt_tokens + float(np.mean(tokens_N)))))
    return max(1, min(assumptions.slots, fits))


def seconds(
    generated: list[np.ndarray], batch: Mapping[str, float], scale: PaperScale, assumptions: Assumptions
) -> dict[str, float]:
    """{phase: seconds} of one real batch on the scale's GPUs: generate, score, train, other.

    `generated`: response_tokens_N of simulated batches. `batch`: the ledger of a real batch; replicas share its
    responses evenly, those of a group too, so that each of them reads the group's prompt. The batch's share of the
    profile is generated at the same rate and counts as `generate`.
    """
    model, rng = ARCHITECTURES[scale.model.value], np.random.default_rng(assumptions.seed)
    profiled = batch["profile_tokens"] / batch["generated_tokens"]
    prompt_flops = batch["queries"] * model.counter.forward(np.array([assumptions.prompt_tokens]))
    replicas = max(1, scale.gpus // assumptions.replica_gpus)
    each = max(1, round(batch["rollouts"] * (1 - profiled) / replicas))
    decoding = [
        decode_seconds(tokens_N[rng.integers(len(tokens_N), size=each)], assumptions.prompt_tokens, model, assumptions)
        for tokens_N in generated
    ]
    rate = scale.gpus * peak(assumptions)
    prompts = min(replicas, batch["rollouts"] / batch["queries"])
    prefill = prompts * prompt_flops * (1 - profiled) / (rate * assumptions.score_utilisation)
    generate = float(np.mean(decoding)) + prefill
    score = batch["flops_score"] / (rate * assumptions.score_utilisation)
    train = batch["flops_train"] / (rate * assumptions.train_utilisation)
    other = assumptions.other_share * (generate + score + train) + engine_seconds(batch, scale, model, assumptions)
    profile = generate * profiled / (1 - profiled)
    return {
        "generate": generate + profile,
        "score": score,
        "train": train,
        "other": other + assumptions.other_share * profile,
    }


def engine_seconds(
    batch: Mapping[str, float], scale: PaperScale, model: Architecture, assumptions: Assumptions
) -> float:
    """Seconds of a batch that verl itself takes: Python for each response; a call for each pass; the weights sent to
    the replicas, in bfloat16; and a batch's part of a checkpoint, of weights and Adam's moments."""
    python = batch["rollouts"] * assumptions.response_ms / 1000 / assumptions.response_workers
    calls = assumptions.call_seconds * (batch["updates"] + 1 + (scale.kl.value > 0))
    sent = model.parameters * BFLOAT16 / (assumptions.sync_gbps * GIGA)
    saved = model.parameters * SAVED / (assumptions.checkpoint_gbps * GIGA) / assumptions.checkpoint_every
    return python + calls + sent + saved
