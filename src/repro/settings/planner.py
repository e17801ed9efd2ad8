"""What the planner takes for granted: section `planner` of params.yaml, whose comments give each number's reason."""

from repro.settings.fields import Count, NonNegative, Positive, Section, Share


class Assumptions(Section):
    """All of it is ours: the papers state hours and no more.

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

    prompt_tokens: Count
    mean_response_share: Share
    groups: Count
    batches: Count
    pool: Count
    seed: int
    peak_tflops: Positive
    bandwidth_gbps: Positive
    memory_gb: Positive
    train_utilisation: Share
    score_utilisation: Share
    decode_utilisation: Share
    bandwidth_utilisation: Share
    decode_overhead_ms: NonNegative
    slots: Count
    replica_gpus: Count
    microbatch_tokens: Count
    rollout_memory: Share
    other_share: NonNegative
