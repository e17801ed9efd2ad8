"""verl's synchronous trainer with steps filled from an arm's plan, in rounds, as the embedded engine fills them."""

import logging
import uuid
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import transfer_queue as tq
from omegaconf import open_dict
from torchdata.stateful_dataloader import StatefulDataLoader
from transfer_queue import KVBatchMeta
from verl.utils import tensordict_utils
from verl.utils.dataset.rl_dataset import collate_fn
from verl.utils.debug import marked_timer

from repro.errors import Refused
from repro.evaluation.model import ends_of
from repro.methods.plans import PlannedGroup, Queries
from repro.protocol.collect import join
from repro.protocol.running_arm import RunningArm
from repro.verl.batch import Scored, in_plan_order
from repro.verl.compose import template_of
from repro.verl.data import SIZE, QueryInfo, query_name, with_samples
from repro.verl.host import TRAIN, UIDS, HostTrainer
from repro.verl.in_order import InOrder
from repro.verl.judged import doubt
from repro.verl.questions import prompts_of
from repro.verl.record import Record
from repro.verl.run import RunOnVerl, check_config
from repro.verl.version import require_verl

log = logging.getLogger(__name__)

SCORED = ("index", "prompts", "responses", "rm_scores")


class Planned(RunningArm):
    """The arm, in the place of verl's data loader: verl saves the state of that in its checkpoints.

    flying    the groups that verl is generating, by its name of each
    """

    def __init__(self, run: RunOnVerl, known: Queries):
        super().__init__(run.method, run.seed, run.rollouts_per_step, known)
        self.flying: dict[str, PlannedGroup] = {}

    @property
    def offered(self) -> Any:
        """For an arm with a filter the plan gives twice what a step still lacks, at most a batch, as verl's own dynamic
        sampling does, since a round takes as long as its longest response."""
        plan, most = self.plan, self.rollouts_per_step
        if self.method.filter is None:
            return plan

        def fill_step(budget: int) -> list[PlannedGroup]:
            return plan.fill_step(min(2 * budget, most))

        return SimpleNamespace(fill_step=fill_step, fits=plan.fits, observe=plan.observe, more=plan.more)

    def state_dict(self) -> dict[str, Any]:
        return {**self.state(), "memory": self.memory, "flying": list(self.flying.values())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "taken" not in state or isinstance(state["known"], Queries):
            raise Refused(
                "the checkpoint was written by another version of this project: begin again in another folder"
            )
        self.restore(state)
        self.memory = state["memory"]
        self.flying = {str(place): group for place, group in enumerate(state.get("flying", []))}


class PlannedTrainer(HostTrainer):
    """A step has the groups of the plan, in order, that fit `repro.rollouts_per_step`; in verl it would have
    `data.train_batch_size`, whatever their sizes. verl generates each round as a batch of its own; what the arm's
    filter drops is replaced by further groups in the next one (`repro.protocol.collect`), and charged.

    seen, scored     everything generated in this step, a part for each round, and what of it passed the filter
    profile_infos    the reward manager's output for the samples of a profile that is being measured; else None
    """

    record: Record

    def __init__(self, config: Any):
        require_verl()
        self.run = RunOnVerl.of(config)
        check_config(config, self.run.method)
        self.profile_infos: dict[str, list[Any]] | None = None
        super().__init__(config)

    def fit(self, agent_loop_manager: Any) -> None:
        rollout = self.config.actor_rollout_ref.rollout
        if rollout.name == "hf" and self.config.trainer.n_gpus_per_node * self.config.trainer.nnodes == 1:
            agent_loop_manager = InOrder(agent_loop_manager, rollout.n, rollout.val_kwargs.n)
        super().fit(agent_loop_manager)

    def _init_dataloader(self) -> None:
        """Also scales verl's learning-rate schedule: it advances per call of `update_actor`, here per mini-batch."""
        super()._init_dataloader()
        rows, profile = self.train_dataset.dataframe, self.run.profile
        if profile is None:
            known = Queries(np.array([len(ids) for ids in prompts_of(self.tokenizer, rows, template_of(self.config))]))
        self.train_dataloader = self.arm = Planned(self.run, profile.known() if profile else known)
        self.profile_steps = self.arm.profiled_before(self.run.settings.steps_of(self.run.arm))
        self.steps_per_epoch = max(1, self.steps_per_epoch)  # few questions may be less than one of verl's batches
        self.queries, self.held_out = QueryInfo.by_index(rows), QueryInfo.by_name(self.val_dataset.dataframe)
        optim = self.config.actor_rollout_ref.actor.optim
        with open_dict(self.config):
            optim.total_training_steps *= self.run.updates
            if optim.lr_warmup_steps and optim.lr_warmup_steps > 0:
                optim.lr_warmup_steps *= self.run.updates

    def _rng(self, purpose: str) -> np.random.Generator:
        return self.arm.rng(self.global_steps - 1, purpose)

    # a profile in the middle of a run

    def prepare_step(self) -> dict[str, Any]:
        """verl would have its batch generated here. An arm with `profile.again` profiles every query again instead, and
        makes a new plan, as in the embedded engine; the samples are drawn like those of verl's evaluation."""
        step = self.global_steps - 1
        if step in self.profile_steps:
            with marked_timer("profile", self.timing_raw):
                known, tokens_Q_K = self._profile()
            self.record.ledger.charge_profile(self.record.flops, known.prompt_tokens_Q, tokens_Q_K)
            self.arm.make_plan(step, known)
        return {}

    def _profile(self) -> tuple[Queries, np.ndarray]:
        """(the new profile for the plan, tokens_Q_K of the responses, 0 for one that failed)."""
        samples, rows = self.run.profile.samples, self.train_dataset.dataframe
        pairs = zip(rows["data_source"], rows["extra_info"], strict=True)
        places = {query_name(source, extra): place for place, (source, extra) in enumerate(pairs)}
        batch = self.config.data.val_batch_size or len(rows)
        loader = StatefulDataLoader(self.train_dataset, batch_size=batch, collate_fn=collate_fn)
        evaluated, self.profile_infos = self.val_dataloader, {}
        self.val_dataloader = with_samples(loader, samples)
        try:
            super()._validate()
            table = pd.DataFrame({name: self.profile_infos[name] for name in ("query", "acc", "response_tokens")})
        finally:
            self.val_dataloader, self.profile_infos = evaluated, None
        table["place"] = table["query"].map(places)
        tokens_Q_K = np.zeros((len(places), samples), int)
        for place, tokens in table.groupby("place")["response_tokens"]:
            tokens_Q_K[place, : len(tokens)] = tokens
        counts = table.groupby("place")["acc"].agg(["sum", "count"]).reindex(range(len(places)), fill_value=0)
        if (lost := counts["count"] == 0).any():
            raise Refused(f"profile: every sample of query {lost.idxmax()} failed on verl; see its log")
        successes_Q, samples_Q = (counts[name].to_numpy().astype(int) for name in ("sum", "count"))
        return Queries(self.run.profile.prompt_tokens_Q, successes_Q, samples_Q), tokens_Q_K

    # the rounds of a step

    def _collect(self) -> KVBatchMeta:
        """The rollouts that passed, generated now; Refused if the filter leaves none."""
        run, step, self.failed, self.tags = self.run, self.global_steps - 1, 0, {}
        rounds = run.settings.engine_of(run.arm).refill_rounds
        rounds = self.config.algorithm.filter_groups.max_num_gen_batches or rounds
        drawn = partial(self._drawn, rng=self._rng("reward"))
        self.scored, self.seen = self.arm.collected(step, rounds, drawn)
        everything = join(self.seen)
        if step == 0 and (why := doubt(everything.verdicts_N)):
            log.warning(why)
        if self.scored is None:
            raise Refused(
                f"arm {run.arm}, step {step + 1}: {rounds} batches were generated and the filter left no group: train "
                "on questions that the model sometimes solves, take another filter, or raise the arm's "
                "engine.refill_rounds"
            )
        sizes_Q = [group.size for group in self.scored.planned]
        if sum(sizes_Q) > run.rollouts_per_step:
            self.scored = self.scored.keep(np.cumsum(sizes_Q) <= run.rollouts_per_step)
        if dropped := sorted({*everything.keys_N} - {*self.scored.keys_N}):
            tq.kv_clear(keys=dropped, partition_id=TRAIN)
        keys = self.scored.keys_N.tolist()
        return KVBatchMeta(partition_id=TRAIN, keys=keys, tags=[self.tags[key] for key in keys])

    def _drawn(self, planned: list[PlannedGroup], rng: np.random.Generator) -> Scored:
        """One round: as many groups as are planned, generated and judged, without rollouts that failed. They are the
        planned ones, unless others were submitted before."""
        flying = self._submit(planned)
        batch, _ = self.wait(global_steps=self.global_steps, partition_id=TRAIN, batch_size=len(planned))
        self.tags |= dict(zip(batch.keys, batch.tags, strict=True))
        came = set(batch.extra_info[UIDS])
        taken = {uid: flying.pop(uid) for uid in list(flying) if uid in came}  # in the plan's order
        place = {uid: number for number, uid in enumerate(taken)}
        keys, limit = in_plan_order(batch.keys, place), self.config.data.max_response_length
        sizes_Q = np.bincount([place[key.split("_")[0]] for key in keys], minlength=len(taken)).tolist()
        if lost := max(0, sum(group.size for group in taken.values()) - len(keys)):
            log.warning("step %d: %d rollouts failed, see above", self.global_steps, lost)
            self.failed += lost
        groups = [replace(group, size=size) for group, size in zip(taken.values(), sizes_Q, strict=True)]
        fields = tq.kv_batch_get(keys=keys, partition_id=TRAIN, select_fields=list(SCORED))
        scored = Scored.read(groups, keys, fields, ends_of(self.tokenizer), limit)
        self.record.charge(scored)
        lengths, step = scored.lengths(limit), self.global_steps - 1
        return replace(scored, rewards_N=self.run.method.rewards(step, scored.verdicts_N, rng, lengths))

    def _submit(self, planned: list[PlannedGroup]) -> dict[str, PlannedGroup]:
        """Have the groups generated; all that verl is generating now."""
        uids = [str(uuid.uuid4()) for _ in planned]
        rows = collate_fn([self.train_dataset[int(group.query)] for group in planned])
        sizes_Q = [int(group.size) for group in planned]
        rows |= {name: np.array(values, dtype=object) for name, values in (("uid", uids), (SIZE, sizes_Q))}
        batch = tensordict_utils.get_tensordict(rows)
        tensordict_utils.assign_non_tensor_data(batch, "global_steps", self.global_steps)
        self._submit_batch_to_rollout(batch)
        self.arm.flying |= zip(uids, planned, strict=True)
        return self.arm.flying
