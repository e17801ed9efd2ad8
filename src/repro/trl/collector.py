"""One step's batch on TRL: the plan's groups, in stages if it asks for them, generated and rewarded, and refilled.

Each of several processes generates its share of the rows and has the batch of all, so that every one selects the same.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import count as numbers
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object

from repro.methods.advantages import groups_without_signal
from repro.methods.plans import PlannedGroup, Queries
from repro.protocol.memory import Memory
from repro.trl.batch import OLD, REFERENCE, Batch, gathered, lengths_of, summed
from repro.trl.learner import Learner
from repro.trl.refused import require_finite, require_text, warn_of_equal


def in_order(
    queries: Queries, rollouts_per_step: int, rng: np.random.Generator, *, group_size: int
) -> Iterator[PlannedGroup]:
    """The plan of `shuffle_dataset=False`: groups of one size, of the queries in their order, again and again."""
    return (PlannedGroup(place % len(queries), group_size) for place in numbers())


class Collector(Learner):
    """`_collect` makes the batch of the step `_index`. A subclass sets running (the arm, without a plan where TRL's
    loader chooses the queries), refill_rounds, _named (the reward function that tells rollouts apart, or None) and
    _can_wait (whether TRL's scoring passes may wait for the selection)."""

    _before = _after = (0, 0, Memory())  # around the last batch: groups of the plan taken, and observed; the memory
    _generated_rollouts = 0  # for the step

    def _collect(self, examples: list[dict[str, Any]]) -> Batch | None:
        """The batch (repro.protocol.collect); None if no group passed. With a plan, `examples` only give the pace."""
        rng, self._generated_rollouts, self._before = self._rng("reward"), 0, self._place
        if self.running.plan is None:
            groups = range(len(examples) * self.accelerator.num_processes // self.num_generations)
            planned = [PlannedGroup(place, self.num_generations) for place in groups]
            batch = self._generate_groups(examples, planned, rng)
            return batch if len(batch) else None
        generate = partial(self._planned, rng=rng)
        batch, seen = self.running.collected(self._index, self.refill_rounds, generate)
        self._measure(refill_rounds=len(seen) - 1)
        return batch

    @property
    def _place(self) -> tuple[int, int, Memory]:
        plan = self.running.plan
        taken, told = (0, 0) if plan is None else (plan.taken, len(plan.observed))
        return taken, told, replace(self.running.memory)

    def _recalled(self, fresh: Batch | None) -> Batch | None:
        """What trains of the step's rollouts and of those in memory, which have the log-probabilities of then."""
        if self.method.memory is None:
            return fresh
        if fresh is not None and OLD not in fresh.tensors:
            fresh.tensors[OLD], _ = self._score(self.model, fresh, np.arange(len(fresh)))
        if self.running.memory.held is not None:
            self.running.memory.held.place_N[:] = -1
        batch, age = self.running.recalled(self._index, fresh)
        self._measure(**age)
        return batch

    def _planned(self, planned: list[PlannedGroup], rng: np.random.Generator) -> Batch:
        """Rollouts of the groups, of which this process generates its share; the last row fills up what is uneven."""
        rows = [dict(self.train_dataset[group.query]) for group in planned for _ in range(group.size)]
        share = -(-len(rows) // self.accelerator.num_processes)
        rows += [rows[-1]] * (share * self.accelerator.num_processes - len(rows))
        first = share * self.accelerator.process_index
        return self._generate_groups(rows[first : first + share], planned, rng)

    def _generate_groups(
        self, examples: list[dict[str, Any]], planned: list[PlannedGroup], rng: np.random.Generator
    ) -> Batch:
        """Rollouts as TRL generates and scores them, `examples` by this process, `planned` by all; those that no reward
        function judges are left out."""
        sizes_Q = [group.size for group in planned]
        count, of_all = sum(sizes_Q), len(examples) * self.accelerator.num_processes
        # TRL takes the rows of equal groups together; of others, each row as a group of one, since its own advantages,
        # the only thing that depends on it, are not used.
        equal = set(sizes_Q) == {self.num_generations} and count == of_all
        with self._with(num_generations=self.num_generations if equal else 1, _waiting=self._can_wait):
            output = self._generate_and_score_completions(examples)
        require_text(output)
        rewards_N, parts_N_F = self._rewards_N[:count], self._parts_N_F[:count]
        lengths = self._lengths.take(np.arange(count))
        named_N = rewards_N if self._named is None else parts_N_F[:, self._named]
        place_N = self._generated_rollouts + np.arange(count)
        self._generated_rollouts += of_all
        tensors = gathered(output, self.accelerator, count)
        batch = Batch(planned, tensors, lengths, rewards_N, named_N, parts_N_F, place_N)
        prompt_tokens_Q = batch.prompt_tokens_N[np.cumsum([0, *sizes_Q[:-1]])]
        self.ledger.charge_generation(self.flops, prompt_tokens_Q, sizes_Q, lengths.tokens_N)
        for name in (OLD, REFERENCE):
            if name in batch.tensors and self._can_wait:
                del batch.tensors[name]  # nothing was computed
            elif name in batch.tensors:
                self.ledger.charge_scoring(self.flops, batch.costs_N)
        require_finite(rewards_N)
        batch = batch.judged()
        if len(batch):
            batch.rewards_N = self.method.rewards(self._index, batch.rewards_N, rng, batch.lengths)
            batch.named_N = batch.rewards_N if self._named is None else batch.named_N
            if self.state.global_step == 0:
                warn_of_equal(batch.named_N)
            silent = groups_without_signal(batch.named_N, batch.group_N)
            self._metrics["train"]["frac_reward_zero_std"][-1] = silent
        return batch

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        """TRL's, of all processes; kept with the weighted sums, NaN where no function judged, and the lengths."""
        rewards_N_F = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        ends, longest = self.eos_token_ids, self.max_completion_length
        self._lengths = lengths_of(gather_object(completion_ids_list), ends, longest)
        self._rewards_N = summed(rewards_N_F, self.reward_weights)
        self._parts_N_F = rewards_N_F.double().cpu().numpy()
        return rewards_N_F
