"""TRL's GRPOTrainer with an arm between its rewards and its loss.

Advantages, selection and mini-batches use the embedded engine's code and random streams, so the same batch gives the
same selection on both. Scoring passes wait until the samplers have chosen: rollouts that are not drawn are neither
scored nor trained on, unless a sampler reads entropies or log-probabilities, or vLLM's importance ratios need them.
"""

import json
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing

from repro.arms import build, try_out
from repro.engine.ledger import Ledger
from repro.engine.saved import LEDGER
from repro.engine.train import stream_seed
from repro.engine.update import UpdateSettings, silent_without_advantage
from repro.methods.advantages import groups_without_signal
from repro.methods.plans import Queries
from repro.methods.rollouts import Rollouts
from repro.methods.samplers import effective_sample_size
from repro.methods.unscored import Unscored
from repro.policy.flops import FlopCounter
from repro.settings import Arm, SettingsError, load
from repro.stored import read_stored
from repro.trl.batch import OLD, RATIO, REFERENCE, Batch, join, lengths_of
from repro.trl.named import Signal, index_of, reading
from repro.trl.refused import (
    in_its_words,
    require_arm,
    require_config,
    require_finite,
    require_given,
    require_one_process,
    require_setting,
    require_text,
    warn_of_equal,
    warn_of_questions,
    warn_of_sum,
)
from repro.trl.slices import Slice, slices_of, wanted_rows

PARTS = ("plan", "reward", "filter", "advantage", "samplers", "objective", "aggregation")
STATE = "repro.json"  # in each of TRL's checkpoints
TAKEN = Annotated[int, Field(ge=0, le=10**7)]  # groups, which a resumed run takes again: more than any run has


class ArmTrainer(GRPOTrainer):
    """`ArmTrainer(model=…, reward_funcs=…, train_dataset=…, args=GRPOConfig(…), arm="zvf-cost-aware")`.

    arm            an arm of params.yaml by its name, or an `Arm`; by default the baseline
    samplers, …    replace the arm's parts (`PARTS`): a name, `{name: {parameter: value}}` or a function, as in an arm
    profile        `Queries` of the rows of train_dataset, for an arm whose plan needs their success rates
    signal_reward  the name of the reward function by which filters and samplers tell rollouts apart, where several are
                   summed (repro.trl.named); by default the sum
    refill_rounds  how often at most a filter's batch is generated; by default that of params.yaml

    All else is GRPOTrainer's. The batch of a step is its generation batch, `num_generations` its uniform plan's group
    size. SettingsError on what is not supported (repro.trl.refused, docs/trl.md).
    """

    def __init__(
        self,
        *positional: Any,
        arm: str | Arm | None = None,
        profile: Queries | None = None,
        refill_rounds: int | None = None,
        signal_reward: str | None = None,
        **keywords: Any,
    ):
        require_one_process()  # before a model is loaded in each of them
        settings = load()
        own = {part: keywords.pop(part) for part in PARTS if part in keywords}
        if not isinstance(arm, Arm):
            arm = settings.arm(settings.baseline if arm is None else arm)
        title = {"title": "the arm"} if own else {}
        self.given = list(own)
        with in_its_words(self.given):
            settings = settings.with_arms({"own": {**arm.model_dump(), **title, **own}})
            self.arm, self.profile = settings.arm("own"), profile
            require_given(profile, refill_rounds)
            require_arm(self.arm, profile)
        super().__init__(*positional, **keywords)
        self.refill_rounds = refill_rounds or settings.engine_of("own").refill_rounds
        require_config(self.args, self.arm)
        warn_of_questions(self)
        self._named = index_of(signal_reward, self.reward_func_names)
        self._set_method()
        args = self.args
        self.updates = args.steps_per_generation // args.gradient_accumulation_steps  # per batch and iteration
        self.ledger, self.flops = Ledger(), FlopCounter.of(self.accelerator.unwrap_model(self.model))
        correction = self.use_vllm and self.vllm_importance_sampling_correction
        self._can_wait = not correction and (self.beta == 0 or self.ref_model is not None)
        self._waiting, self._generated = False, None

    def _set_method(self) -> None:
        """The arm's functions; a plan unless TRL's own order of the queries, in equal groups, is the arm's."""
        uniform = self.arm.plan[0] == "uniform"
        sizes = {"plan": ("uniform", {"group_size": self.num_generations})} if uniform else {}
        self.method = build("own", self.arm.model_copy(update=sizes))
        try_out(self.method, 0.0)
        if self._named is None:
            warn_of_sum(self)
        else:
            samplers = [reading(sampler, lambda: self._signal) for sampler in self.method.samplers]
            self.method = replace(self.method, samplers=samplers)
        self.plan, planned = None, not uniform or self.method.filter is not None
        require_setting(self, planned)
        if planned:
            queries = self.profile or Queries(np.ones(len(self.train_dataset), int))
            if len(queries) != len(self.train_dataset):
                raise SettingsError(
                    f"profile has {len(queries)} queries and train_dataset {len(self.train_dataset)} rows: they must "
                    "be the same, in the same order"
                )
            rng = np.random.default_rng(stream_seed(self.args.seed, 0, "plan"))
            with in_its_words(self.given):
                self.plan = self.method.made_plan(0, queries, self.args.generation_batch_size, rng)
        self._taken = (0, 0)  # groups of the plan taken before and after the last batch
        self.update_settings = UpdateSettings(
            self.method.aggregation,
            self.temperature,
            self.beta,
            self.args.max_grad_norm,
            slice_tokens=0,  # TRL's micro-batches are the slices
            max_tokens=self.max_completion_length,
            every_row=not silent_without_advantage(self.method),
        )

    # one batch: generated, filtered, selected, scored, sliced

    def _prepare_inputs(self, generation_batch: list[dict[str, Any]]) -> Any:
        """In training, the next slice of the batch, which is generated when its turn comes."""
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        steps = self.args.steps_per_generation
        if self._buffered_inputs is None and self._step == 0:  # resumed inside a batch: what is left of it
            done = self.state.global_step % self._steps_per_batch
            self._step = done * self.args.gradient_accumulation_steps
        if self._buffered_inputs is None or self._step % (steps * self.num_iterations) == 0:
            self._buffered_inputs = self._slices(generation_batch)
        return self._buffered_inputs[self._step % steps]

    @property
    def _steps_per_batch(self) -> int:
        return self.updates * self.num_iterations

    @property
    def _index(self) -> int:
        """The current batch, counted from 0 over resumed runs."""
        return self.state.global_step // self._steps_per_batch

    def _rng(self, purpose: str) -> np.random.Generator:
        return np.random.default_rng(stream_seed(self.args.seed, self._index, purpose))

    def _slices(self, examples: list[dict[str, Any]]) -> list[Slice]:
        batch = self._collect(examples)
        selected = None if batch is None else self._select(batch)
        parts = self._parts(selected)
        if selected is not None:
            self._score_selected(batch, wanted_rows([part for part in parts if part is not None], self.update_settings))
            drawn = len(np.unique(selected.row_N)) / len(batch)
            self._measure(kept=drawn, effective_sample_size=effective_sample_size(selected.weights_N))
        count, trim = self.args.gradient_accumulation_steps, self.pad_to_multiple_of is None
        return [slice for part in parts for slice in slices_of(batch, part, self.update_settings, count, trim=trim)]

    def _measure(self, **values: float) -> None:
        for name, value in values.items():
            self._metrics["train"][f"arm/{name}"].append(float(value))

    def _collect(self, examples: list[dict[str, Any]]) -> Batch | None:
        """The batch, refilled with the plan's next groups until it is full or the rounds are used up if the arm has a
        filter; None if no group passed. With a plan, `examples` only give the pace."""
        rng, filter = self._rng("reward"), self.method.filter
        if self.plan is None:
            sizes_Q = [self.num_generations] * (len(examples) // self.num_generations)
            batch = self._generate_groups(examples, sizes_Q, rng)
            return batch if len(batch) else None
        before, budget, size, kept = self.plan.taken, self.args.generation_batch_size, 0, []
        for _ in range(self.refill_rounds if filter else 1):
            planned = self.plan.fill_step(budget - size)
            rows = [dict(self.train_dataset[group.query]) for group in planned for _ in range(group.size)]
            part = self._generate_groups(rows, [group.size for group in planned], rng)
            chosen = filter and len(part)
            kept.append(part.keep(self.method.kept_groups(self._index, part.named_N, part.group_N)) if chosen else part)
            size += len(kept[-1])
            if not self.plan.fits(budget - size):
                break
        self._taken = (before, self.plan.taken)
        self._measure(refill_rounds=len(kept) - 1)
        return join(kept) if size else None

    def _generate_groups(self, examples: list[dict[str, Any]], sizes_Q: list[int], rng: np.random.Generator) -> Batch:
        """Rollouts as TRL generates and scores them; those that no reward function judges are left out."""
        with self._in_groups_of(sizes_Q), self._without_scoring():
            output = self._generate_and_score_completions(examples)
        require_text(output)
        verdicts_N, lengths = self._generated
        group_N = np.repeat(np.arange(len(sizes_Q)), sizes_Q)
        batch = Batch.of(output, group_N, verdicts_N, lengths)
        first_Q, _ = batch.group_sizes
        self.ledger.charge_generation(self.flops, batch.prompt_tokens_N[first_Q], sizes_Q, lengths.tokens_N)
        for name in (OLD, REFERENCE):
            if name in batch.tensors and self._can_wait:
                del batch.tensors[name]  # nothing was computed
            elif name in batch.tensors:
                self.ledger.charge_scoring(self.flops, batch.costs_N)
        require_finite(verdicts_N)
        named_N = verdicts_N if self._named is None else self._rewards_N_F[:, self._named]
        batch.named_N = named_N
        batch = batch.take(np.flatnonzero(np.isfinite(verdicts_N) & np.isfinite(named_N)))
        if len(batch):
            batch.rewards_N = self.method.rewards(self._index, batch.rewards_N, rng, batch.lengths)
            batch.named_N = batch.rewards_N if self._named is None else batch.named_N
            if self.state.global_step == 0:
                warn_of_equal(batch.named_N)
            silent = groups_without_signal(batch.named_N, batch.group_N)
            self._metrics["train"]["frac_reward_zero_std"][-1] = silent
        return batch

    @contextmanager
    def _in_groups_of(self, sizes_Q: list[int]):
        """TRL takes the rows of equal groups together; of others, each row as a group of one. Its own advantages, the
        only thing that depends on it, are not used."""
        usual = self.num_generations
        if set(sizes_Q) != {usual}:
            self.num_generations = 1
        try:
            yield
        finally:
            self.num_generations = usual

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        """TRL's, and kept: the weighted sum for each rollout, NaN if no function judged it, and the lengths."""
        rewards_N_F = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        total_N = (rewards_N_F * self.reward_weights.to(rewards_N_F.device)).nansum(1)
        total_N = total_N.masked_fill(rewards_N_F.isnan().all(1), float("nan"))
        lengths = lengths_of(completion_ids_list, self.eos_token_ids, self.max_completion_length)
        self._generated = total_N.double().cpu().numpy(), lengths
        self._rewards_N_F = rewards_N_F.double().cpu().numpy()
        return rewards_N_F

    def _select(self, batch: Batch) -> Rollouts | None:
        """What the samplers choose among the rollouts that have a token to learn from; None if that is nothing."""

        def advantages(reward_N: np.ndarray, rows: Any = slice(None)) -> np.ndarray:
            return self.method.advantages(self._index, reward_N[rows], batch.group_N[rows], batch.lengths.take(rows))

        advantages_N = advantages(batch.rewards_N)
        if self._named is not None:
            named = batch.named_N, advantages(batch.named_N)
            self._signal = Signal(batch.rewards_N, advantages_N, *named, partial(advantages, batch.rewards_N))
        rollouts = batch.rollouts(advantages_N)
        mask_N_T, computed = rollouts.response_mask_N_T, {}
        if not (live_N := mask_N_T.any(1)).any():
            return None
        rollouts = rollouts if live_N.all() else rollouts.take(live_N)

        def scores() -> dict[str, np.ndarray]:
            if not computed:
                old_N_T, entropy_N_T = self._score(self.model, batch, np.arange(len(batch)), entropy=True)
                batch.tensors.setdefault(OLD, old_N_T)
                for name, values in (("entropy_N_T", entropy_N_T), ("logprob_N_T", old_N_T)):
                    computed[name] = values.float().cpu().numpy() * mask_N_T
            return computed

        progress = self._index * self._steps_per_batch / max(1, self.state.max_steps)
        chosen = self.method.select(self._index, Unscored.of(rollouts, scores), progress, self._rng("sample"))
        return chosen.plain if isinstance(chosen, Unscored) else chosen

    def _parts(self, selected: Rollouts | None) -> list[Rollouts | None]:
        """The mini-batch of each optimiser step, None if it has none; each row trains once, in random order."""
        if selected is None:
            return [None] * self.updates
        count = selected.minibatches or self.updates
        if count > self.updates:
            raise SettingsError(
                f"the sampler asks for {count} optimiser steps on the batch, and TRL makes {self.updates}: raise "
                "steps_per_generation, or lower gradient_accumulation_steps"
            )
        order = self._rng("shuffle").permutation(len(selected))
        parts = [selected.take(rows) if len(rows) else None for rows in np.array_split(order, count)]
        return parts + [None] * (self.updates - count)

    # passes

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, **options: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        if self._waiting:
            return input_ids.new_zeros((len(input_ids), logits_to_keep), dtype=torch.float32), None, None
        return super()._get_per_token_logps_and_entropies(model, input_ids, attention_mask, logits_to_keep, **options)

    @contextmanager
    def _without_scoring(self):
        """TRL's scoring passes return nothing: they follow for the rollouts that are selected."""
        self._waiting = self._can_wait
        try:
            yield
        finally:
            self._waiting = False

    def _pass(self, model: Any, rows: dict[str, torch.Tensor], entropy: bool = False) -> tuple[torch.Tensor, Any]:
        """(logprob_U_T, entropy_U_T or None) of the completions."""
        ids = torch.cat([rows["prompt_ids"], rows["completion_ids"]], 1)
        attention = torch.cat([rows["prompt_mask"], rows["completion_mask"]], 1)
        width = rows["completion_ids"].shape[1]
        return self._get_per_token_logps_and_entropies(model, ids, attention, width, compute_entropy=entropy)[:2]

    @torch.no_grad()
    def _score(
        self, model: Any, batch: Batch, rows: np.ndarray, entropy: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(logprob_N_T, entropy_N_T if wanted) under `model`, of these rows; 0 elsewhere. Charged."""
        shape, device = batch.mask_N_T.shape, batch.mask_N_T.device
        logprob_N_T, entropy_N_T = torch.zeros(shape, device=device), torch.zeros(shape, device=device)
        order = rows[np.argsort(batch.costs_N[rows], kind="stable")]
        chunks = max(1, -(-len(rows) // self.args.per_device_train_batch_size))
        with disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            for chunk in np.array_split(order, chunks):
                if len(chunk):
                    cut, at = batch.cut(chunk, self.pad_to_multiple_of is None), torch.as_tensor(chunk, device=device)
                    logprob_U_T, entropy_U_T = self._pass(model, cut, entropy)
                    logprob_N_T[at, : logprob_U_T.shape[1]] = logprob_U_T.float()
                    if entropy:
                        entropy_N_T[at, : entropy_U_T.shape[1]] = entropy_U_T.float()
        self.ledger.charge_scoring(self.flops, batch.costs_N[rows])
        return logprob_N_T, entropy_N_T

    def _score_selected(self, batch: Batch, rows: np.ndarray) -> None:
        """The log-probabilities that the loss needs: old ones unless the batch's only update starts from them, and the
        reference's for a KL term."""
        if OLD not in batch.tensors and self._steps_per_batch > 1:
            batch.tensors[OLD], _ = self._score(self.model, batch, rows)
        if REFERENCE not in batch.tensors and self.beta:
            batch.tensors[REFERENCE], _ = self._score(self.ref_model, batch, rows)

    # the loss

    def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        """Of a slice; evaluation keeps TRL's own loss."""
        if not isinstance(inputs, Slice):
            return super()._compute_loss(model, inputs)
        if inputs.idle and not self.args.fp16:  # fp16's scaler needs a gradient, though it is zero
            return torch.zeros((), device=self.accelerator.device, requires_grad=True)
        if not inputs.idle:
            costs = self.flops, inputs.costs_U
            self.ledger.charge_update(*costs, steps=inputs.updates, paper_tokens=inputs.paper_tokens)
        if inputs.rows is None:
            return sum((p.flatten()[:1] * 0.0).sum() for p in model.parameters() if p.requires_grad)
        return self._arm_loss(model, inputs)

    def _arm_loss(self, model: Any, part: Slice) -> torch.Tensor:
        logprob_U_T, _ = self._pass(model, part.rows)
        logprob_M_T, rows, copy = logprob_U_T[part.copy_of_M], part.rows, part.copy_of_M
        old_M_T = rows[OLD][copy] if OLD in rows else logprob_M_T.detach()
        loss_M_T, clipped_M_T = self.method.objective(logprob_M_T, old_M_T, part.advantages_M, part.mask_M_T)
        if RATIO in rows:
            loss_M_T = loss_M_T * rows[RATIO][copy]
        if self.beta:
            gap_M_T = (rows[REFERENCE][copy] - logprob_M_T) * part.mask_M_T
            k3_M_T = gap_M_T.exp() - 1 - gap_M_T
            loss_M_T = loss_M_T + self.beta * k3_M_T
            self._metrics["train"]["kl"].append(float((k3_M_T.sum() / part.mask_M_T.sum().clip(1)).detach()))
        self._measure(clipped=clipped_M_T.sum() / part.mask_M_T.sum().clip(1))
        return (loss_M_T.where(part.mask_M_T, 0.0) * part.coefficient_M_T).sum()

    # log and checkpoints

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """With the cost so far, in training."""
        if self.model.training:
            logs.update({f"arm/{name}": value for name, value in self.ledger.row().items()})
        super().log(logs, start_time)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            unfinished = self.state.global_step % self._steps_per_batch > 0  # then a resumed run makes the batch again
            state = {"taken": self._taken[0 if unfinished else 1], "ledger": self.ledger.row()}
            folder = Path(self._get_output_dir(trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            (folder / STATE).write_text(json.dumps(state))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self._step, self._buffered_inputs = 0, None
        if checkpoint is not None and (file := Path(checkpoint) / STATE).exists():
            remedy = f"delete {file.parent}, and resume from the checkpoint before it"
            state = read_stored(file, remedy, {"ledger": LEDGER, "taken": TAKEN})
            self.ledger = Ledger.from_row(state["ledger"])
            if self.plan is not None:
                self.plan.skip(state["taken"])
