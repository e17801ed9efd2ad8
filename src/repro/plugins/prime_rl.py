"""prime-rl: a filter as an admission gate of a curriculum, a sampler as a custom advantage.

    import_path = "repro.plugins.prime_rl.Gate" # in the table of a gate
    kwargs = {filter = "pass_rate", low = 0.1}

    type = "custom" # in the table of the algorithm
    import_path = "repro.plugins.prime_rl.select"
    kwargs = {sampler = "pods", share = 0.5}

Signatures: PrimeIntellect-ai/prime-rl, src/prime_rl/orchestrator/curriculum/base.py of commit e08b161 (`_setup_gate`
wants a subclass) and algo/custom.py of commit 2cfca89. Its other commits name them differently, or have one alone.
"""

from typing import Any

from repro.plugins import credits, kept

try:
    from prime_rl.orchestrator.curriculum.base import AdmissionGate
except ImportError:  # a commit without gates, which has the custom advantage
    AdmissionGate = object


class Gate(AdmissionGate):
    """Whether a finished group enters the training batch."""

    def __init__(self, filter: str, **parameters: Any):
        self.filter, self.parameters = filter, parameters

    def admit(self, result: Any) -> bool:
        return bool(kept(self.filter, [rollout.reward for rollout in result.rollouts], **self.parameters)[0])


def select(group: list, sampler: str, seed: int = 0, **parameters: Any) -> list[float]:
    """A number for each rollout of one group: the sampler sees no other. Those not drawn get 0, and prime-rl's filter
    `zero_advantage` keeps them from the trainer. Response tokens are those that the policy sampled."""
    response_N = [sum(sum(sample.mask) for sample in rollout.samples) for rollout in group]
    total_N = [sum(len(sample.token_ids) for sample in rollout.samples) for rollout in group]
    prompt_N = [total - response for total, response in zip(total_N, response_N, strict=True)]
    rewards_N = [rollout.reward for rollout in group]
    return credits(sampler, rewards_N, [0] * len(group), prompt_N, response_N, seed=seed, **parameters).tolist()
