"""The ledger: the cost of a run so far. Both engines use this schema, so the same tables work for both."""

from dataclasses import asdict, dataclass, fields

import numpy as np

from repro.policy.flops import FlopCounter


@dataclass
class Ledger:
    """Running totals since the start of training; evaluation and logging are not charged.

    queries, rollouts    number of groups and of responses generated; a group in stages counts at each
    prompt_tokens        tokens of prompts prefilled, once per group and stage
    generated_tokens     response tokens sampled, discarded rollouts included
    scored_tokens        prompt + response tokens read by forward-only passes (the reference policy's, for a KL term)
    trained_tokens       prompt + response tokens that forward-backward passes had to read: each distinct rollout of a
                         mini-batch once, those without a gradient not at all
    paper_tokens         the same as the papers count it (policy-optimisation tokens): every selected rollout, repeats
                         and rollouts without a gradient included
    updates              optimiser steps
    profile_tokens       the part of generated_tokens due to profiling, repeated profiling included
    flops_generate, flops_score, flops_train   counted by repro.policy.flops
    flops_profile        the part of flops_generate due to profiling
    """

    queries: int = 0
    rollouts: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    scored_tokens: int = 0
    trained_tokens: int = 0
    paper_tokens: int = 0
    profile_tokens: int = 0
    updates: int = 0
    flops_generate: float = 0.0
    flops_score: float = 0.0
    flops_train: float = 0.0
    flops_profile: float = 0.0

    def charge_generation(self, flops: FlopCounter, prompt_tokens_Q: np.ndarray, group_sizes_Q, response_tokens_N):
        """One batch of groups. The −1 is because the last token of a response is sampled but never read."""
        prompt_N = np.repeat(prompt_tokens_Q, group_sizes_Q)
        self.queries += len(prompt_tokens_Q)
        self.rollouts += len(response_tokens_N)
        self.prompt_tokens += int(np.sum(prompt_tokens_Q))
        self.generated_tokens += int(np.sum(response_tokens_N))
        self.flops_generate += flops.forward(prompt_tokens_Q) + flops.forward(response_tokens_N - 1, prompt_N)

    def charge_profile(self, flops: FlopCounter, prompt_tokens_Q: np.ndarray, response_tokens_Q_K: np.ndarray):
        """K samples of each of Q queries for a profile; charged like rollouts generated for training."""
        before = self.generated_tokens, self.flops_generate
        queries, samples = response_tokens_Q_K.shape
        self.charge_generation(flops, prompt_tokens_Q, [samples] * queries, response_tokens_Q_K.reshape(-1))
        self.profile_tokens += self.generated_tokens - before[0]
        self.flops_profile += self.flops_generate - before[1]

    def charge_scoring(self, flops: FlopCounter, tokens_N: np.ndarray):
        """One forward-only pass over sequences of `tokens_N` tokens."""
        self.scored_tokens += int(np.sum(tokens_N))
        self.flops_score += flops.forward(tokens_N)

    def charge_update(self, flops: FlopCounter, tokens_N: np.ndarray, steps: int = 1, paper_tokens: int | None = None):
        """A forward-backward pass over sequences of `tokens_N` tokens and the optimiser step on it; `steps` is 0 if the
        gradient was not finite and no step was made. `paper_tokens`: as the papers count; by default the same."""
        self.updates += steps
        self.trained_tokens += int(np.sum(tokens_N))
        self.paper_tokens += int(np.sum(tokens_N) if paper_tokens is None else paper_tokens)
        self.flops_train += flops.forward_backward(tokens_N)

    @property
    def flops(self) -> float:
        """Total FLOPs."""
        return self.flops_generate + self.flops_score + self.flops_train

    def row(self) -> dict[str, float]:
        """Totals by name, `flops` included, as one row of a table."""
        return {**asdict(self), "flops": self.flops}

    def paid(self, weight: float) -> float:
        """Total FLOPs, of which those of generation cost `weight`."""
        return weight * self.flops_generate + self.flops_score + self.flops_train

    def spent(self, bill_gflops: float | None, weight: float = 1.0) -> dict[str, float]:
        """`row`, and `share`: what was paid as a share of the bill, NaN where there is none."""
        share = 1e-9 * self.paid(weight) / bill_gflops if bill_gflops else float("nan")
        return {**self.row(), "share": share}

    @classmethod
    def from_row(cls, row: dict[str, float]) -> "Ledger":
        """The inverse of `row`; other keys are ignored."""
        return cls(**{f.name: row[f.name] for f in fields(cls)})
