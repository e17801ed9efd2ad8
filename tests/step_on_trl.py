"""A step of the embedded engine by TRL's own training loop, on one process.

The responses are drawn by the embedded engine's sampler with its random stream, through TRL's `rollout_func`; plan,
filter and refill, rewards, selection, scoring pass, mini-batches, loss, clipping and AdamW are TRL's and repro.trl's.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig

from repro.engine.generate import generate
from repro.engine.run import Run, profile_for
from repro.experiments.parity.compared import nothing_drawn, selections, steps
from repro.experiments.parity.recorded import Recorded, flat, flat_gradient
from repro.methods.plans import PlannedGroup
from repro.policy.model import load_policy
from repro.protocol.profile import Profile
from repro.protocol.streams import stream_seed
from repro.settings import Arm, Engine, Settings, SettingsError
from repro.tasks.queries import Query, make_pools, verify
from repro.trl import ArmTrainer
from repro.trl.batch import OLD, Batch
from repro.trl.refused import require_arm
from repro.trl.slices import Slice

SLICES = 2  # of a mini-batch: TRL's gradient_accumulation_steps
GROUP = 8  # of the plan `uniform`; TRL wants a size also where the plan has its own


def arms_for_trl(settings: Settings) -> dict[str, str]:
    """{arm: why ArmTrainer refuses it, "" where it does not}, in the order of params.yaml."""
    reasons = {}
    for name, arm in settings.all_arms.items():
        try:
            require_arm(arm, profile=True)  # there will be one
            reasons[name] = ""
        except SettingsError as error:
            reasons[name] = str(error)
    return reasons


class Watched(ArmTrainer):
    """Keeps what its first batch shows: generated (query and size of each group, round by round), batch, chosen, and
    the loss of each slice that is no idle one."""

    def __init__(self, *positional: Any, **keywords: Any):
        super().__init__(*positional, **keywords)
        self.generated, self.losses = [], []
        self.batch, self.chosen = None, None

    def _generate_groups(
        self, examples: list[dict[str, Any]], planned: list[PlannedGroup], rng: np.random.Generator
    ) -> Batch:
        sizes_Q = [group.size for group in planned]
        first_Q = np.cumsum([0, *sizes_Q[:-1]])
        queries_Q = [examples[first]["query"] for first in first_Q]
        self.generated.append(list(zip(queries_Q, sizes_Q, strict=True)))
        batch = super()._generate_groups(examples, planned, rng)
        for name, values_N in (("query", np.repeat(queries_Q, sizes_Q)), ("verdict", self._rewards_N)):
            batch.tensors[name] = torch.as_tensor(values_N)[:, None]  # stays with its row when groups are dropped
        return batch

    def _select(self, batch: Batch) -> Any:
        self.batch, self.chosen = batch, super()._select(batch)
        return self.chosen

    def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs)
        if isinstance(inputs, Slice) and not inputs.idle:
            self.losses.append(float(loss.detach()))
        return loss


class OneBatch(TrainerCallback):
    """Keeps the gradients that the optimiser receives, and ends training after `updates` optimiser steps."""

    def __init__(self, updates: int):
        self.updates, self.gradients = updates, []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:
        if all(parameter.grad is not None for parameter in model.parameters()):  # an idle step has none
            self.gradients.append(flat_gradient(model))

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        control.should_training_stop |= state.global_step >= self.updates


class TRLSide:
    """ArmTrainer on this machine's CPU, a new one for every arm."""

    def __init__(self, settings: Settings, seed: int, policy: Path, profiles: Path | None, folder: Path):
        self.settings, self.seed, self.policy, self.profiles, self.folder = settings, seed, policy, profiles, folder
        self.base, self.tokenizer = load_policy(policy)
        self.queries = make_pools(settings.task, pretraining=False).train

    def replay(self, recorded: Recorded) -> dict[str, Any]:
        """How far TRL's side is from `recorded`: a row of the report's table."""
        engine = self.settings.engine_of(recorded.arm)
        trainer = self._trainer(recorded, engine)
        watch, before_P = OneBatch(trainer.updates), flat(trainer.model)
        trainer.add_callback(watch)
        trainer.train()
        same_plan = trainer.generated[0] == recorded.plan
        if trainer.batch is None or not recorded.responses_N:  # a filter left no group
            return nothing_drawn(recorded.arm, same_plan and trainer.batch is None and not recorded.responses_N)
        batch, chosen = trainer.batch, trainer.chosen
        verdicts_N = batch.tensors["verdict"][:, 0].numpy()
        ends_N = np.array([ids[-1] == self.tokenizer.eos_token_id for ids in responses(batch)])
        row = {"arm": recorded.arm, "same_plan": same_plan}
        row |= selections(recorded, verdicts_N, ends_N, chosen, self._scored(batch, chosen))
        row["same_rollouts"] &= self._drawn_alike(recorded, batch)
        if chosen is None or not row["same_rollouts"]:
            return row  # gradients of different rollouts cannot be compared
        losses = np.reshape(trainer.losses, (-1, SLICES)).sum(1).tolist()
        return row | steps(recorded, losses, watch.gradients, before_P, flat(trainer.model) - before_P)

    def _drawn_alike(self, recorded: Recorded, batch: Batch) -> bool:
        """Whether TRL's rows are those recorded, query by query and token by token."""
        theirs = [ids.tolist() for ids in recorded.responses_N]
        return np.array_equal(batch.tensors["query"][:, 0], recorded.query_N) and responses(batch) == theirs

    def _scored(self, batch: Batch, chosen: Any) -> np.ndarray | None:
        """logprob_M_T of the selected rollouts by TRL's scoring pass; NaN for those that it did not score."""
        if chosen is None:
            return None
        old_M_T = batch.tensors[OLD][torch.tensor(chosen.row_N)].numpy() if OLD in batch.tensors else None
        if old_M_T is None:
            return np.full(chosen.response_mask_N_T.shape, np.nan)
        scored_M = (old_M_T != 0).any(1)
        return np.where(scored_M[:, None], old_M_T, np.nan)

    def _trainer(self, recorded: Recorded, engine: Engine) -> Watched:
        arm = self.settings.arm(recorded.arm)
        model, tokenizer = load_policy(self.policy)
        torch_stream = torch.Generator().manual_seed(stream_seed(self.seed, 0, "generate"))
        return Watched(
            model=model,
            reward_funcs=self._reward,
            args=self._config(engine, arm),
            train_dataset=self._data_set(recorded, arm),
            processing_class=tokenizer,
            rollout_func=lambda prompts, trainer: self._draw(trainer.generated[-1], torch_stream, engine),
            arm=arm,
            objective="arm",
            profile=self._profile(recorded.arm, arm).known() if arm.profile else None,
            refill_rounds=engine.refill_rounds,
        )

    def _config(self, engine: Engine, arm: Arm) -> GRPOConfig:
        """The embedded engine's settings by TRL's names. Steps beyond the first batch are not made."""
        updates = engine.rollouts_per_step // engine.minibatch
        return GRPOConfig(
            output_dir=str(self.folder),
            max_steps=engine.steps,
            per_device_train_batch_size=engine.minibatch // SLICES,
            gradient_accumulation_steps=SLICES,
            steps_per_generation=updates * SLICES,
            num_generations=group_size(arm),
            max_completion_length=engine.max_new_tokens,
            temperature=engine.temperature,
            beta=engine.kl,
            learning_rate=engine.learning_rate,
            lr_scheduler_type="constant",
            weight_decay=engine.weight_decay,
            max_grad_norm=engine.gradient_clip,
            shuffle_dataset=not chosen_by_trl(arm),  # its queries are those of the recorded step, in their order
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            seed=self.seed,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )

    def _data_set(self, recorded: Recorded, arm: Arm) -> Dataset:
        """All training queries, of which a plan chooses; or those of the recorded step in their order, where the arm
        leaves the choice to TRL."""
        places = [query for query, _ in recorded.plan] if chosen_by_trl(arm) else range(len(self.queries))
        return Dataset.from_list([{"prompt": self.queries[place].prompt, "query": place} for place in places])

    def _profile(self, name: str, arm: Arm) -> Profile:
        from repro.arms import build

        run = Run(name, self.seed, build(name, arm), self.settings, self.policy, None, Path(), "", self.profiles)
        return profile_for(run, self.base, self.tokenizer, self.queries)[0]

    def _draw(self, groups: list[tuple[int, int]], generator: torch.Generator, engine: Engine) -> dict[str, Any]:
        """The embedded engine's responses to the groups, as TRL's rollout_func returns them."""
        prompts_Q = self.tokenizer([self.queries[query].prompt for query, _ in groups])["input_ids"]
        sizes_Q = [size for _, size in groups]
        drawn = generate(
            self.base,
            prompts_Q,
            sizes_Q,
            max_new_tokens=engine.max_new_tokens,
            eos=self.tokenizer.eos_token_id,
            pad=self.tokenizer.pad_token_id,
            temperature=engine.temperature,
            generator=generator,
        )
        rows = [ids[mask].tolist() for ids, mask in zip(drawn.ids_N_T, drawn.mask_N_T, strict=True)]
        prompts_N = [prompt for prompt, size in zip(prompts_Q, sizes_Q, strict=True) for _ in range(size)]
        return {"prompt_ids": prompts_N, "completion_ids": rows, "logprobs": None}

    def _reward(self, completions: list[str], completion_ids: list[list[int]], query: list[int], **_: Any) -> list:
        """The verifier's word on the text that TRL has decoded."""
        rows = zip(completions, completion_ids, query, strict=True)
        return [self._verdict(text, ids, self.queries[place]) for text, ids, place in rows]

    def _verdict(self, text: str, ids: list[int], query: Query) -> float:
        """0 for a response that did not end, or has another special token inside."""
        inside = set(ids[:-1]) & set(self.tokenizer.all_special_ids)
        return verify(text, query) if ids[-1] == self.tokenizer.eos_token_id and not inside else 0.0


def chosen_by_trl(arm: Arm) -> bool:
    """Whether the arm leaves the choice of the queries to TRL."""
    return arm.plan[0] == "uniform" and arm.filter is None


def group_size(arm: Arm) -> int:
    """num_generations, of which only a uniform plan makes use."""
    return arm.plan[1].get("group_size", GROUP) if arm.plan[0] == "uniform" else GROUP


def responses(batch: Batch) -> list[list[int]]:
    """Token ids of each rollout, without the padding."""
    columns = batch.tensors["completion_ids"], batch.tensors["completion_mask"].bool()
    return [ids[mask].tolist() for ids, mask in zip(*columns, strict=True)]
