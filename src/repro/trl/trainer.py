"""TRL's GRPOTrainer with an arm between its rewards and its loss.

Advantages, selection and mini-batches use the embedded engine's code and random streams, so the same batch gives the
same selection on both. Scoring passes wait until the samplers have chosen: rollouts that are not drawn are neither
scored nor trained on, unless a sampler reads entropies or log-probabilities, or vLLM's importance ratios need them.
"""

import json
from collections import defaultdict, deque
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from accelerate.utils import broadcast_object_list
from pydantic import Field
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from repro.arms import build, try_out, try_plan
from repro.engine.update import UpdateSettings, silent_without_advantage
from repro.methods.choice import shares
from repro.methods.plans import Queries
from repro.methods.rollouts import Rollouts
from repro.methods.unscored import Unscored
from repro.policy.flops_lora import counter_of
from repro.protocol.ledger import Ledger
from repro.protocol.memory import Memory
from repro.protocol.running_arm import RunningArm
from repro.protocol.saved import LEDGER
from repro.settings import Arm, SettingsError, load
from repro.stored import read_stored
from repro.trl import advantage, refused
from repro.trl.batch import OLD, Batch
from repro.trl.collector import Collector, in_order
from repro.trl.named import index_of, reading
from repro.trl.slices import Cut, Slice, slices_of, wanted_rows

STATE, HELD = "repro.json", "repro-memory.pt"  # in each of TRL's checkpoints
EXTRA = ("arm/drawn", "arm/weight")  # columns of its table
TAKEN = Annotated[int, Field(ge=0, le=10**7)]  # groups, which a resumed run takes again: more than any run has
OBSERVED = list[Annotated[list[Any], Field(min_length=4, max_length=4)]]  # as PlanStream.observed


class ArmTrainer(Collector):
    """`ArmTrainer(model=…, reward_funcs=…, train_dataset=…, args=GRPOConfig(…), arm="zvf-cost-aware")`.

    arm            an arm of params.yaml by its name, or an `Arm`; by default the baseline
    objective      "trl", the default: the loss is TRL's, and so are the advantages if neither the arm nor `advantage`
                   has others; "arm": the arm's objective, aggregation and advantage; or an objective as in an arm
    samplers, …    replace the arm's parts (`refused.PARTS`): a name, `{name: {parameter: value}}` or a function
    profile        `Queries` of the rows of train_dataset, for an arm whose plan needs their success rates
    signal_reward  the name of the reward function by which filters and samplers tell rollouts apart, where several are
                   summed (repro.trl.named); by default the sum
    refill_rounds  how often at most a filter's batch is generated; by default that of params.yaml

    All else is GRPOTrainer's. The batch of a step is its generation batch, `num_generations` its uniform plan's group
    size. SettingsError on what is not supported (repro.trl.refused, docs/trl.md).
    """

    _live = 1.0  # of the batch's rows, the share that had a token to learn from

    def __init__(
        self,
        *positional: Any,
        arm: str | Arm | None = None,
        objective: Any = None,
        profile: Queries | None = None,
        refill_rounds: int | None = None,
        signal_reward: str | None = None,
        **keywords: Any,
    ):
        settings = load()
        own = {part: keywords.pop(part) for part in refused.PARTS if part in keywords}
        self.own_loss = objective is None or objective == "trl"
        if not self.own_loss and objective != "arm":
            own["objective"] = objective
        if not isinstance(arm, Arm):
            arm = settings.arm(settings.baseline if arm is None else arm)
        self.given, title = list(own), {"title": "the arm"} if own else {}
        with refused.in_its_words(self.given):
            settings = settings.with_arms({"own": {**arm.model_dump(), **title, **own}})
            self.arm, self.profile = settings.arm("own"), profile
            refused.require_given(profile, refill_rounds)
            refused.require_arm(self.arm, profile)
        own_advantage = refused.takes_its_own(self.arm, self.given, objective)
        super().__init__(*positional, **keywords)
        self.refill_rounds = refill_rounds or settings.engine_of("own").refill_rounds
        refused.require_config(self.args, self.arm, self.own_loss, own_advantage)
        refused.warn_of_questions(self)
        self._named = index_of(signal_reward, self.reward_func_names)
        self._set_method(own_advantage)
        self.updates = self.args.steps_per_generation // self.args.gradient_accumulation_steps
        self.ledger, self.flops = Ledger(), counter_of(self.accelerator.unwrap_model(self.model))
        correction = self.use_vllm and self.vllm_importance_sampling_correction
        self._can_wait = not correction and (self.beta == 0 or self.ref_model is not None)

    def _set_method(self, own_advantage: bool) -> None:
        """The arm's functions; a plan unless TRL's own order of the queries, in equal groups, is the arm's."""
        uniform = self.arm.plan[0] == "uniform"
        sizes = {"plan": ("uniform", {"group_size": self.num_generations})} if uniform else {}
        self.method = build("own", self.arm.model_copy(update=sizes))
        if uniform and not self.shuffle_dataset:
            self.method = replace(self.method, plan=partial(in_order, group_size=self.num_generations))
        self._of_each = not own_advantage and self.multi_objective_aggregation == "normalize_then_sum"
        if not own_advantage:
            self.method = replace(self.method, advantage=partial(advantage.of_sum, scale=self.scale_rewards))
        try_out(self.method, 0.0)
        if self._named is None:
            refused.warn_of_sum(self)
        else:
            samplers = [reading(sampler, self) for sampler in self.method.samplers]
            self.method = replace(self.method, samplers=samplers)
        planned = not uniform or self.method.filter is not None
        refused.require_setting(self, planned, uniform)
        known = self._known() if planned else None
        with refused.in_its_words(self.given):
            if planned and self.method.learns:
                try_plan(self.method, known, self.args.generation_batch_size)
            self.running = RunningArm(self.method, self.args.seed, self.args.generation_batch_size, known)
        how = self.method.aggregation, self.temperature, self.beta, self.args.max_grad_norm
        no_slices = 0  # of tokens: TRL's micro-batches are the slices
        every_row = self._by_micro_batch or not (self.own_loss or silent_without_advantage(self.method))
        self.update_settings = UpdateSettings(*how, no_slices, self.max_completion_length, every_row)

    def _known(self) -> Queries:
        """What the plan may know of the questions."""
        queries = self.profile or Queries(np.ones(len(self.train_dataset), int))
        if len(queries) != len(self.train_dataset):
            raise SettingsError(
                f"profile has {len(queries)} queries and train_dataset {len(self.train_dataset)} rows: they must "
                "be the same, in the same order"
            )
        return queries

    # one batch: generated, filtered, selected, scored, sliced

    def _prepare_inputs(self, generation_batch: list[dict[str, Any]]) -> Any:
        """In training, the next slice of the batch, which is generated when its turn comes."""
        if not self.model.training:
            output = super()._prepare_inputs(generation_batch)
            for name in EXTRA:
                self._logs["extra"][name].extend(
                    np.full(len(generation_batch) * self.accelerator.num_processes, np.nan)
                )
            return output
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
        return self.running.rng(self._index, purpose)

    def _slices(self, examples: list[dict[str, Any]]) -> list[Slice]:
        self._clear_log()
        batch = self._recalled(self._collect(examples))
        self._after = self._place
        selected = None if batch is None else self._select(batch)
        parts = self._parts(selected)
        if selected is not None:
            self._score_selected(batch, wanted_rows([part for part in parts if part is not None], self.update_settings))
        if batch is not None:
            self._measure(**shares(selected, len(batch)))
        self._log_selected(batch, selected)
        cut = self._cut(parts)
        return [slice for part in parts for slice in slices_of(batch, part, self.update_settings, cut)]

    def _cut(self, parts: list[Rollouts | None]) -> Cut:
        """TRL's mini-batches have the mean of the tokens of the whole batch in their divisors."""
        tokens_P = [int(part.response_mask_N_T.sum()) for part in parts if part is not None]
        tokens = float(np.mean(tokens_P)) * self.args.steps_per_generation if self.own_loss and tokens_P else None
        ranks = self.accelerator.num_processes, self.accelerator.process_index
        how = self.args.gradient_accumulation_steps, self.pad_to_multiple_of is None
        return Cut(*how, *ranks, tokens, self._by_micro_batch, self._live)

    def _advantages(self, batch: Batch, rewards_N: np.ndarray, rows: Any = slice(None)) -> np.ndarray:
        """The arm's or TRL's, of these rows alone."""
        group_N = batch.group_N[rows]
        if self._of_each and rewards_N is batch.rewards_N:
            return advantage.of_each(batch.parts_N_F[rows], self.reward_weights.tolist(), group_N)
        return self.method.advantages(self._index, rewards_N[rows], group_N, batch.lengths.take(rows))

    def _select(self, batch: Batch) -> Rollouts | None:
        """What the samplers choose among the rollouts that have a token to learn from; None if that is nothing. Without
        samplers TRL's own loss has them all, as it makes an optimiser step without a signal too."""
        self._batch, self._advantages_N = batch, self._advantages(batch, batch.rewards_N)
        rollouts = chosen = batch.rollouts(self._advantages_N)
        self._live = 1.0
        if self.method.samplers or not self.own_loss:
            live_N = rollouts.response_mask_N_T.any(1)
            if not live_N.any():
                return None
            self._live = float(live_N.mean())
            promised = Unscored.of(
                rollouts if live_N.all() else rollouts.take(live_N), cache(partial(self._scores, batch))
            )
            progress = self._index * self._steps_per_batch / max(1, self.state.max_steps)
            chosen = self.running.select(self._index, promised, progress)
        if chosen is not None and self.own_loss and self.method.aggregation == "group-mean":
            chosen = replace(chosen, weights_N=chosen.weights_N * chosen.group_weight_N)
        return chosen.plain if isinstance(chosen, Unscored) else chosen

    def _scores(self, batch: Batch) -> dict[str, np.ndarray]:
        """Entropies and log-probabilities of the whole batch."""
        old_N_T, entropy_N_T = self._score(self.model, batch, np.arange(len(batch)), entropy=True)
        batch.tensors.setdefault(OLD, old_N_T)
        named, mask_N_T = {"entropy_N_T": entropy_N_T, "logprob_N_T": old_N_T}, batch.mask_N_T.cpu().numpy()
        return {name: values.float().cpu().numpy() * mask_N_T for name, values in named.items()}

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
        # As TRL shuffles, so that the same seed gives the same mini-batches.
        order = broadcast_object_list([torch.randperm(len(selected)).numpy()])[0] if self.own_loss else None
        parts = self.running.minibatches(self._index, selected, count, order)
        return [*parts, *[None] * (self.updates - len(parts))]

    # log and checkpoints

    def _clear_log(self) -> None:
        """TRL's table of completions has those of the last batch, of all its rounds."""
        rounds = self.refill_rounds if self.running.plan is not None else 1
        self._column = partial(deque, maxlen=self.args.generation_batch_size * rounds)
        for name, kept in self._logs.items():
            self._logs[name] = defaultdict(self._column) if isinstance(kept, dict) else self._column()

    def _log_selected(self, batch: Batch | None, selected: Rollouts | None) -> None:
        """Into that table: the advantages that are trained on, NaN of what was left out before, how often a rollout was
        drawn, and the sum of its weights."""
        advantages, drawn, weight = np.full(self._generated_rollouts, np.nan), *np.zeros((2, self._generated_rollouts))
        if batch is not None:
            fresh_N = batch.place_N >= 0
            advantages[batch.place_N[fresh_N]] = self._advantages_N[fresh_N]
        if selected is not None:
            fresh_M = batch.place_N[selected.row_N] >= 0
            rows_M = batch.place_N[selected.row_N][fresh_M]
            advantages[rows_M] = selected.advantages_N[fresh_M]
            np.add.at(drawn, rows_M, 1)
            np.add.at(weight, rows_M, selected.weights_N[fresh_M])
        self._logs["advantages"] = self._column(advantages)
        self._logs["extra"] |= {
            name: self._column(values.tolist()) for name, values in zip(EXTRA, (drawn, weight), strict=True)
        }

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """With the cost so far, in training."""
        if self.model.training:
            logs.update({f"arm/{name}": value for name, value in self.ledger.row().items()})
        super().log(logs, start_time)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            unfinished = self.state.global_step % self._steps_per_batch > 0  # then a resumed run makes the batch again
            taken, told, memory = self._before if unfinished else self._after
            observed = [] if self.running.plan is None else self.running.plan.observed[:told]
            state = {"taken": taken, "observed": observed, "ledger": self.ledger.row()}
            folder = Path(self._get_output_dir(trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            (folder / STATE).write_text(json.dumps(state))
            if memory.held is not None:
                torch.save(memory.state(), folder / HELD)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self._step, self._buffered_inputs = 0, None
        if checkpoint is not None and (file := Path(checkpoint) / STATE).exists():
            remedy = f"delete {file.parent}, and resume from the checkpoint before it"
            state = read_stored(file, remedy, {"ledger": LEDGER, "taken": TAKEN, "observed": OBSERVED})
            self.ledger = Ledger.from_row(state["ledger"])
            if self.running.plan is not None:
                self.running.plan.skip(state["taken"], state["observed"])
            if (held := file.with_name(HELD)).exists():
                of_device = partial(Batch.of, device=self.accelerator.device)
                self.running.memory = Memory.of(torch.load(held, weights_only=True), of_device)
            self._before = self._after = self._place
