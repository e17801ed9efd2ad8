"""The planner's assumptions: section `planner` of params.yaml, whose comments say what each number is, and why."""

from repro.settings.fields import Count, NonNegative, Part, Positive, Section, Seed


class Assumptions(Section):
    """All assumptions are ours: the papers report hours only. Units are in the names; shares are of a peak, of the
    longest response allowed, of a GPU's memory, or added to a batch's time."""

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
