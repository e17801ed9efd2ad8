"""The planner's assumptions: section `planner` of params.yaml, whose comments give the reason for each number."""

from repro.settings.fields import Count, NonNegative, Part, Positive, Section, Seed


class Assumptions(Section):
    """All assumptions are ours: the papers report hours only.

    Queries and responses
        prompt_tokens           of a competition problem with its instruction
        mean_response_share     mean response before truncation, as a fraction of the longest response allowed
        groups                  of a simulated batch
        batches                 simulated batches that represent the run
        pool                    queries that simulated batches are drawn from
        seed                    of all draws
    Hardware, per GPU
        peak_tflops             dense bfloat16, from the data sheet (verl uses the same)
        bandwidth_gbps          memory bandwidth in GB/s, from the data sheet
        memory_gb               from the data sheet
    Fractions of the peak that are reached
        train_utilisation       model FLOPs of forward and backward; recomputed activations lower it and are not counted
        score_utilisation       forward only, including prompts
        decode_utilisation      matrix products during decoding
        bandwidth_utilisation   reading weights, keys and values during decoding
    Engine
        decode_overhead_ms      of one decoding step of the whole batch, beyond reading and computing
        slots                   sequences decoded in parallel by a replica (verl: rollout.max_num_seqs)
        replica_gpus            GPUs of one replica of the inference engine (verl: tensor_model_parallel_size)
        microbatch_tokens       tokens of a micro-batch on a GPU (verl: ppo_max_token_len_per_gpu)
        rollout_memory          share of a GPU's memory available to the inference engine
        response_ms             Python of verl for one response: agent loop, reward, queue
        response_workers        processes that share it (verl: rollout.agent.num_workers)
        call_seconds            of handing one pass to the workers: each mini-batch, and each scoring pass
        sync_gbps               GB/s at which a step's weights reach the inference engine
        checkpoint_gbps         GB/s at which a checkpoint is written
        checkpoint_every        steps (verl: trainer.save_freq)
        other_share             added share of a batch's time: rewards, evaluation
    """

    prompt_tokens: Count
    mean_response_share: Part
    groups: Count
    batches: Count
    pool: Count
    seed: Seed
    peak_tflops: Positive
    bandwidth_gbps: Positive
    memory_gb: Positive
    train_utilisation: Part
    score_utilisation: Part
    decode_utilisation: Part
    bandwidth_utilisation: Part
    decode_overhead_ms: NonNegative
    slots: Count
    replica_gpus: Count
    microbatch_tokens: Count
    rollout_memory: Part
    response_ms: NonNegative
    response_workers: Count
    call_seconds: NonNegative
    sync_gbps: Positive
    checkpoint_gbps: Positive
    checkpoint_every: Count
    other_share: NonNegative
