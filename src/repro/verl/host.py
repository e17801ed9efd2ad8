"""What a run takes over from inside verl's trainer: its base, the phases of a mode, the queue's buffer.

verl has no public API for these. They stand here, and the phases that are extended by name below it (planned, choosing,
trainer), so that a next version of verl shows in one file and one test, tests/test_verl_host.py.
"""

from typing import Any

from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer as register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

TRAIN = "train"  # the queue's partition
UIDS = "uids"  # in what `wait` gives: the groups, by the names they were submitted with


class HostTrainer(PPOTrainerSync):
    """verl's synchronous trainer, whose training steps a subclass fills by `_collect`.

    wait     until so many groups are finished: their rollouts, those of the groups submitted first
    ranks    that share a batch
    """

    # verl treats every mode except "sync" as asynchronous (replay buffer, checkpoints, dataloader).
    trainer_mode = property(lambda self: "sync", lambda self, value: None)

    def _collect(self) -> KVBatchMeta:
        raise NotImplementedError

    def _build_replay_buffer(self) -> Any:
        """verl's replay buffer, which gives a training step the whole of its rounds."""
        buffer = super()._build_replay_buffer()
        if self.config.actor_rollout_ref.rollout.name == "hf":
            buffer.poll_interval = 0.05  # seconds; verl's 2 would exceed a small step, but a poll lists every response
        self.wait, taken = buffer.sample, buffer._materialize_batch

        def named(partition_id: str, uids: list[str], rows: dict[str, dict]) -> KVBatchMeta:
            batch = taken(partition_id, uids, rows)
            batch.extra_info[UIDS] = list(uids)
            return batch

        def sample(global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict]:
            if partition_id == TRAIN:
                return self._collect(), {}
            return self.wait(global_steps=global_steps, partition_id=partition_id, batch_size=batch_size)

        buffer._materialize_batch, buffer.sample = named, sample
        return buffer

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        self.ranks = dp_size
        return dp_size  # mini-batches are formed after the selection


class Ahead:
    """verl's mode colocate_async, before a `HostTrainer`: what is not finished when a step has its groups goes on after
    the update, with the weights of then."""

    get_llm_client = PPOTrainerColocateAsync.get_llm_client
    on_sample_end = PPOTrainerColocateAsync.on_sample_end
    on_step_end = PPOTrainerColocateAsync.on_step_end
