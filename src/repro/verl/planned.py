"""verl's synchronous trainer with steps filled from an arm's plan: how many groups, and what their generation cost."""

from typing import Any

import numpy as np
import transfer_queue as tq
from omegaconf import open_dict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from repro.errors import Refused
from repro.evaluation.model import ends_of
from repro.settings import SettingsError
from repro.verl.batch import Scored, in_plan_order, plain
from repro.verl.data import SIZE, QueryInfo, groups_that_fit
from repro.verl.in_order import InOrder
from repro.verl.run import RunOnVerl, check_config
from repro.verl.version import require_verl

SCORED = ("index", "prompts", "responses", "rm_scores")


class PlannedTrainer(PPOTrainerSync):
    """A step has as many groups of the plan, in order, as fit `engine.rollouts_per_step`; in verl it would have
    `data.train_batch_size`, whatever their sizes. Groups discarded by verl's filter are recorded."""

    # verl treats every mode except "sync" as asynchronous (replay buffer, checkpoints, dataloader).
    trainer_mode = property(lambda self: "sync", lambda self, value: None)

    def __init__(self, config: Any):
        require_verl()
        self.run = RunOnVerl.of(config)
        check_config(config, self.run.method)
        with open_dict(config):
            config.data.gen_batch_size = 1  # a step may have any number of groups
        self.discarded: list[Scored] = []
        self.place: dict[str, int] = {}  # of each group of this step in the plan
        self.cursor = self.refills = self.expected = 0  # expected: rollouts of the groups that train
        super().__init__(config)

    def _build_replay_buffer(self) -> Any:
        """verl's replay buffer, which also records the groups its filter discards (charged) and follows plans."""
        buffer = super()._build_replay_buffer()
        if self.config.actor_rollout_ref.rollout.name == "hf":
            buffer.poll_interval = 0.05  # seconds; verl's 2 would exceed a small step, but a poll lists every response
        clear, select = buffer._clear_groups, buffer._select_prompt_uids

        def clear_groups(partition_id: str, uids: set[str]) -> None:
            keys = [key for key in buffer.partitions[partition_id] if key.split("_")[0] in uids]
            if partition_id == "train" and keys:
                keys = in_plan_order(keys, self.place)
                fields = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=list(SCORED))
                self.discarded.append(self._scored(keys, fields))
            clear(partition_id, uids)

        def select_prompt_uids(partition_id: str, uids: set[str], count: int) -> tuple[list[str], dict, dict]:
            chosen, *snapshots = select(partition_id, uids, count)
            if partition_id == "train":
                chosen = self._that_fit(uids)
                self.expected = sum(map(self._size, chosen))
            return chosen, *snapshots

        buffer._clear_groups, buffer._select_prompt_uids = clear_groups, select_prompt_uids
        return buffer

    def _that_fit(self, uids: set[str]) -> list[str]:
        """As many of the available groups as fit a step's rollouts, in the plan's order. After a refill there are more
        than enough; verl would take any of them, and always the same number, whatever their sizes."""
        ordered = sorted(uids, key=self.place.__getitem__)
        sizes_G = [self._size(uid) for uid in ordered]
        return ordered[: int((np.cumsum(sizes_G) <= self.run.rollouts_per_step).sum())]

    def _size(self, uid: str) -> int:
        return int(self.sizes_G[self.place[uid] % len(self.sizes_G)])

    def _scored(self, keys: list[str], fields: Any) -> Scored:
        return Scored.read(keys, fields, ends_of(self.tokenizer), self.config.data.max_response_length)

    def fit(self, agent_loop_manager: Any) -> None:
        rollout = self.config.actor_rollout_ref.rollout
        if rollout.name == "hf" and self.config.trainer.n_gpus_per_node * self.config.trainer.nnodes == 1:
            agent_loop_manager = InOrder(agent_loop_manager, rollout.n, rollout.val_kwargs.n)
        super().fit(agent_loop_manager)

    def _init_dataloader(self) -> None:
        """Also scales verl's learning-rate schedule: it advances per call of `update_actor`, here per mini-batch."""
        super()._init_dataloader()
        rows = self.train_dataset.dataframe
        same = [self.config.actor_rollout_ref.rollout.n] * len(rows)
        if SIZE in rows.column_names and self.config.data.shuffle:
            raise SettingsError("data.shuffle would destroy the order of the plan in data.train_files: set it to false")
        self.sizes_G = list(rows[SIZE]) if SIZE in rows.column_names else same
        self.steps_per_epoch = max(1, self.steps_per_epoch)  # a short plan may be less than one of verl's batches
        self.queries, self.held_out = QueryInfo.by_index(rows), QueryInfo.by_name(self.val_dataset.dataframe)
        optim = self.config.actor_rollout_ref.actor.optim
        with open_dict(self.config):
            optim.total_training_steps *= self.run.updates
            if optim.lr_warmup_steps and optim.lr_warmup_steps > 0:
                optim.lr_warmup_steps *= self.run.updates

    def prepare_step(self) -> dict[str, Any]:
        self.discarded, self.refills, self.place = [], 0, {}
        self.groups = groups_that_fit(self.sizes_G, self.cursor, self.run.rollouts_per_step)
        self.generated = self.groups
        self._submit_batch_to_rollout(self._next_train_batch(self.groups))
        return {}

    def _fetch_one_gen_batch(self) -> Any:
        batch = super()._fetch_one_gen_batch()
        for uid in plain(batch["uid"]):
            self.place[uid] = self.cursor
            self.cursor += 1
        return batch

    def _add_prompts_to_generate(self, num_prompts: int) -> int:
        """verl's refill after its filter, which alone would go on for as long as every group is alike."""
        self.refills, self.generated = self.refills + 1, self.generated + num_prompts
        own, bound = self.config.algorithm.filter_groups, "algorithm.filter_groups.max_num_gen_batches"
        # verl's key, which its own buffer ignores; verl asks for twice as many groups as were dropped
        most = own.get("max_num_gen_batches") or 2 * self.run.settings.engine_of(self.run.arm).refill_rounds
        if self.generated > most * self.groups:
            raise Refused(
                f"arm {self.run.arm}, step {self.global_steps}: {most} batches were generated and the filter left less "
                "than one, since in nearly every group all rollouts have the same reward: train on questions that the "
                f"model sometimes solves, or raise {bound}, now {most}"
            )
        return super()._add_prompts_to_generate(num_prompts)

    def _step_once(self, metrics: dict, timing_raw: dict, sample_batch_size: int) -> KVBatchMeta:
        return super()._step_once(metrics, timing_raw, self.groups)

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        self.ranks = dp_size
        return dp_size  # mini-batches are formed after the selection
