"""What the planner takes for granted, each number with its reason; `planner` in params.yaml replaces any of them."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError

from repro.settings.errors import SettingsError, nearest
from repro.settings.fields import Count, NonNegative, Positive, Section, Share

TERA, GIGA = 1.0e12, 1.0e9


class Assumptions(Section):
    """All of it is ours; the defaults are for an H100 SXM.

    Queries and responses
        prompt_tokens           of a competition problem with its instruction
        mean_response_share     mean response before the limit cuts, as a share of the longest response allowed
        groups                  of a drawn batch, which stands for a real one
        batches                 drawn batches, which stand for the run
        pool                    queries drawn from, in drawn batches
        seed                    of all draws
    Hardware, per GPU
        peak_tflops             dense bfloat16, the maker's figure (verl counts with the same)
        bandwidth_gbps          of its memory, in GB/s, the maker's figure
        memory_gb               the maker's figure
    Shares of the peak that are reached
        train_utilisation       model FLOPs of forward and backward; recomputed activations lower it and are not counted
        score_utilisation       forward only, also of prompts
        decode_utilisation      matrix products while decoding
        bandwidth_utilisation   reading weights and keys and values while decoding
    Engine
        decode_overhead_ms      of one decoding step of the whole batch, beside reading and computing
        slots                   sequences decoded at once by a replica (verl: rollout.max_num_seqs)
        replica_gpus            GPUs of one replica of the inference engine (verl: tensor_model_parallel_size)
        microbatch_tokens       tokens of a micro-batch on a GPU (verl: ppo_max_token_len_per_gpu)
        rollout_memory          share of a GPU's memory that the inference engine may take
        other_share             of a batch's time, in addition: weights to the inference engine, rewards, evaluation
    """

    prompt_tokens: Count = 150
    mean_response_share: Share = 0.3
    groups: Count = 64
    batches: Count = 8
    pool: Count = 256
    seed: int = 0
    peak_tflops: Positive = 989.0
    bandwidth_gbps: Positive = 3350.0
    memory_gb: Positive = 80.0
    train_utilisation: Share = 0.30
    score_utilisation: Share = 0.40
    decode_utilisation: Share = 0.40
    bandwidth_utilisation: Share = 0.60
    decode_overhead_ms: NonNegative = 5.0
    slots: Count = 512
    replica_gpus: Count = 1
    microbatch_tokens: Count = 16384
    rollout_memory: Share = 0.6
    other_share: Annotated[float, Field(ge=0)] = 0.2

    @classmethod
    def of(cls, replaced: Mapping[str, Any]) -> "Assumptions":
        """The defaults with some replaced; SettingsError in one sentence on a key or a value that cannot be."""
        for key in replaced:
            if key not in cls.model_fields:
                raise SettingsError(f"params.yaml: planner: unknown key {key!r}{nearest(key, cls.model_fields)}")
        try:
            return cls(**replaced)
        except ValidationError as error:
            first = error.errors()[0]
            key = first["loc"][0]
            raise SettingsError(f"params.yaml: planner.{key} is {first['input']!r}: {first['msg'].lower()}") from None

    @property
    def flops(self) -> float:
        """Peak of one GPU, FLOP/s."""
        return self.peak_tflops * TERA

    @property
    def bandwidth(self) -> float:
        """Bytes per second that decoding reads."""
        return self.bandwidth_gbps * GIGA * self.bandwidth_utilisation
