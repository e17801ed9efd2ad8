"""While TRL trains: what arms would have made of each batch of its GRPOTrainer, which goes on as it would have.

seen = watch(trainer, ["zvf", "pods", "cost-aware"])
trainer.train()
seen.table
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from repro.errors import Refused
from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.method import Method
from repro.methods.rollouts import Rollouts
from repro.policy.flops_lora import counter_of
from repro.replay.arms import replayable
from repro.replay.measure import Batch, measured, whole
from repro.replay.words import say
from repro.settings import load

LOGGED = ("drawn", "distinct", "per_distinct", "silent", "largest_weight", "trained_tokens", "refill")


class Watch:
    """What the arms made of the batches so far. `table`: a row for each batch and arm, with the measures of
    `repro.replay.measure`; of a batch that leaves an arm nothing to train on, zeros alone."""

    def __init__(self, trainer: Any, methods: Mapping[str, Method], refill_rounds: int):
        self.trainer, self.methods, self.refill_rounds = trainer, methods, refill_rounds
        self.flops = counter_of(trainer.accelerator.unwrap_model(trainer.model))
        self.rows: list[dict[str, Any]] = []
        self.batches = 0

    @property
    def table(self) -> pd.DataFrame:
        return pd.DataFrame(self.rows)

    def see(self, rewards_N: np.ndarray, prompt_tokens_N: np.ndarray, lengths: Any) -> None:
        """A batch in TRL's order, groups together; a rollout that no function rewarded (NaN) is no part of it."""
        state, judged = self.trainer.state, np.flatnonzero(np.isfinite(rewards_N))
        if not len(judged):
            return
        rewards_N, group_N = rewards_N[judged], judged // self.trainer.num_generations
        lengths, progress = lengths.take(judged), state.global_step / max(1, state.max_steps)
        rollouts = Rollouts.from_batch(
            group_N=group_N,
            rewards_N=rewards_N,
            advantages_N=group_normalised(rewards_N, group_N),
            prompt_tokens_N=prompt_tokens_N[judged],
            response_tokens_N=lengths.tokens_N,
        )
        batch = Batch(self.batches, progress, rollouts, lengths, *whole(rollouts, self.flops))
        for name, method in self.methods.items():
            rng = np.random.default_rng([self.trainer.args.seed, zlib.crc32(name.encode()), self.batches])
            found = measured(method, batch, self.flops, 1.0, self.refill_rounds, rng)
            row = found[0] if found else {"drawn": 0.0, "distinct": 0.0, "trained_tokens": 0.0}
            self.rows.append({"step": state.global_step, "arm": name, **row})
            for measure in LOGGED:
                if measure in row:
                    self.trainer._metrics["train"][f"watch/{name}/{measure}"].append(float(row[measure]))
        self.batches += 1


def watch(trainer: Any, arms: Sequence[str] | Mapping[str, Any]) -> Watch:
    """Log as `watch/ARM/…` (`LOGGED`) what each arm would have kept of a batch of TRL's own GRPOTrainer.

    arms: names in params.yaml, or {name: an arm by its name or its parts}, as `Settings.with_arms` takes them

    Neither the batch, its loss nor a random number of the run is touched; an arm costs some milliseconds a batch.
    Refused, in one sentence, where an arm cannot choose from rewards and lengths alone.
    """
    from accelerate.utils import gather_object

    from repro.trl.batch import lengths_of, summed

    settings = load().with_arms(arms if isinstance(arms, Mapping) else {name: name for name in arms})
    which = replayable(settings, trainer.num_generations)
    for why, titles in which.left_out.items():
        raise Refused(say("unwatched", why=say(why), arms=", ".join(titles)))
    seen, rewarded = Watch(trainer, which.methods, settings.engine.refill_rounds), trainer._calculate_rewards

    def calculate_rewards(inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        rewards_N_F = rewarded(inputs, prompts, completions, completion_ids_list)  # of all processes
        if trainer.model.training:
            prompt_tokens_N = np.array(gather_object([len(ids) for ids in trainer._tokenize_prompts(prompts)[0]]))
            ids_N = gather_object(completion_ids_list)
            lengths = lengths_of(ids_N, trainer.eos_token_ids, trainer.max_completion_length)
            if trainer.accelerator.is_main_process:
                seen.see(summed(rewards_N_F, trainer.reward_weights), prompt_tokens_N, lengths)
        return rewards_N_F

    trainer._calculate_rewards = calculate_rewards
    return seen
