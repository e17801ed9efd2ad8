"""The arm's choice before verl's scoring passes, on a queue in memory: which rows each pass reads, and what trains."""

import io
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("tensordict", reason="verl is not installed here: `make extra-verl` installs it")

from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta

from repro.arms import build
from repro.methods.memories import Remembered
from repro.methods.plans import PlannedGroup
from repro.methods.rollouts import Rollouts
from repro.policy.flops import FlopCounter
from repro.protocol.running_arm import RunningArm
from repro.settings import Arm
from repro.verl.batch import Scored, nested
from repro.verl.record import Record

pytestmark = pytest.mark.verl

GROUPS, GROUP, KEPT = 2, 4, [5, 0, 5, 6]  # rows that the sampler draws, one of them twice
LENGTHS = np.array([3, 5, 2, 6, 4, 7, 3, 5])


class Queue:
    """verl's queue: rows of fields by partition and key."""

    def __init__(self):
        self.rows = defaultdict(lambda: defaultdict(dict))

    def kv_batch_put(self, keys, partition_id, fields, tags=None):
        for name, values in fields.items():
            for key, row in zip(keys, values.unbind(), strict=True):
                self.rows[partition_id][key][name] = row

    def kv_batch_get(self, keys, partition_id, select_fields):
        rows = [self.rows[partition_id][key] for key in keys]
        known = {name: nested([row[name] for row in rows]) for name in select_fields if all(name in r for r in rows)}
        if "index" in known:
            known["index"] = torch.cat(known["index"].unbind())
        return TensorDict(known, batch_size=[len(keys)])

    def kv_clear(self, keys, partition_id):
        for key in keys:
            del self.rows[partition_id][key]


def unread(rollouts: Rollouts, progress, rng) -> Rollouts:
    return rollouts.take(np.array(KEPT), np.array([1.0, 1.0, 2.0, 1.0]))


def read(rollouts: Rollouts, progress, rng) -> Rollouts:
    assert rollouts.entropy_N_T[5, 0] == pytest.approx(0.5)  # a tenth of its row
    return unread(rollouts, progress, rng)


class Verl:
    """A step of the trainer on eight rollouts, verl's passes replaced: each writes a row's number, 10 more for the
    reference, and notes what it read."""

    def __init__(self, monkeypatch, sampler=None, kl: bool = True, memory=None, **correction):
        from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

        from repro.verl import choosing, trainer

        self.queue, self.passes = Queue(), []
        monkeypatch.setattr(choosing, "tq", self.queue)
        for name in ("old_log_prob", "ref_log_prob"):
            monkeypatch.setattr(PPOTrainerSync, f"_compute_{name}", self._pass(name))
        monkeypatch.setattr(PPOTrainerSync, "_compute_advantage", lambda *arguments: self._advantage(*arguments))
        arm = Arm(title="t", about="", group="g", samplers=[sampler] if sampler else [], memory=memory)
        self.trainer = made = trainer.ArmTrainer.__new__(trainer.ArmTrainer)
        made.config = OmegaConf.create(
            {
                "algorithm": {"rollout_correction": {"rollout_is": None, "rollout_rs": None, **correction}},
                "actor_rollout_ref": {"actor": {"use_kl_loss": kl, "entropy_coeff": 0.0}},
                "data": {"max_response_length": 8},
            }
        )
        made.run = SimpleNamespace(
            method=build("a", arm), seed=0, arm="a", updates=2, settings=SimpleNamespace(steps_of=lambda _: 10)
        )
        made.record = Record(0, 1, 1, flops=FlopCounter(10, 1, 4))
        made.failed, made.ranks, made.global_steps, made.serial = 0, 3, 1, iter(range(1000))
        made.arm = RunningArm(made.run.method, 0, 8, None)
        keys = [f"{uid}_{session}_0" for uid in "ab" for session in range(GROUP)]
        self.queue.kv_batch_put(keys, "train", self._fields())
        planned = [PlannedGroup(query, GROUP) for query in range(GROUPS)]
        found = self.queue.kv_batch_get(keys, "train", ["index", "prompts", "responses", "rm_scores"])
        made.scored = Scored.read(planned, keys, found, 0, 8)
        tags = [{"seq_len": int(2 + length)} for length in LENGTHS]
        self.batch = KVBatchMeta(partition_id="train", keys=keys[::-1], tags=tags[::-1])  # verl's order is another

    def _fields(self) -> TensorDict:
        rows = range(len(LENGTHS))
        verdict = [float(row in (0, 5)) for row in rows]
        columns = {
            "prompts": [torch.tensor([row, 1]) for row in rows],
            "responses": [torch.full((length,), 2) for length in LENGTHS],
            "input_ids": [torch.cat([torch.tensor([row, 1]), torch.full((LENGTHS[row],), 2)]) for row in rows],
            "response_mask": [torch.ones(length, dtype=torch.long) for length in LENGTHS],
            "rm_scores": [torch.tensor([0.0] * (length - 1) + [v]) for length, v in zip(LENGTHS, verdict, strict=True)],
            "rollout_log_probs": [torch.full((LENGTHS[row],), row + 0.5) for row in rows],
            "index": [torch.tensor([row // GROUP]) for row in rows],
        }
        return TensorDict({name: nested(values) for name, values in columns.items()}, batch_size=[len(LENGTHS)])

    def _pass(self, name):
        def compute(trainer, batch, metrics):
            rows = [self.queue.rows[batch.partition_id][key] for key in batch.keys]
            numbers = [int(row["input_ids"][0]) for row in rows]
            counted = [int(row["response_mask"].any()) for row in rows]
            self.passes.append((name, sorted(n for n, counts in zip(numbers, counted, strict=True) if counts)))
            for row, number in zip(rows, numbers, strict=True):
                width = len(row["response_mask"])
                shift = 10.0 * (name == "ref_log_prob") + 100.0 * (trainer.global_steps - 1)
                row["old_log_probs" if name == "old_log_prob" else name] = torch.full((width,), number + shift)
                row["entropy"] = torch.full((width,), number / 10)
            assert len(rows) % trainer.ranks == 0 or batch.partition_id == "train"

        return compute

    def _advantage(self, trainer, batch, metrics):
        known = "old_log_probs" in self.queue.rows["train"][batch.keys[0]]
        assert known or trainer.config.algorithm.rollout_correction is None
        return batch

    def step(self) -> dict:
        metrics: dict = {}
        for phase in ("_compute_old_log_prob", "_compute_ref_log_prob", "_compute_advantage"):
            assert getattr(self.trainer, phase)(self.batch, metrics) is self.batch
        assert not self.queue.rows["selected"]
        return metrics


def values(field) -> list[float]:
    return [float(row[0]) for row in field.unbind()]


def test_what_was_not_chosen_is_neither_scored_nor_trained_on(monkeypatch):
    verl = Verl(monkeypatch, unread)
    verl.step()
    assert verl.passes == [("old_log_prob", [0, 5, 6]), ("ref_log_prob", [0, 5, 6])]
    made = verl.trainer
    assert values(made.chosen["old_log_probs"]) == [0, 5, 6] and values(made.chosen["ref_log_prob"]) == [10, 15, 16]
    assert made.record.ledger.scored_tokens == 2 * (LENGTHS[[0, 5, 6]] + 2).sum()
    assert sorted(row for part in made.parts for row in part.part.row_N) == sorted(KEPT)
    assert sum(part.copies_M.sum() for part in made.parts) == len(KEPT)
    assert not made.rollouts.measured("entropy_N_T")
    assert made._entropy() == pytest.approx(-np.average(np.arange(8) + 0.5, weights=LENGTHS))
    assert made._kl() == pytest.approx(np.exp(10) - 11)


def test_a_sampler_that_reads_entropies_has_all_of_them_scored_once(monkeypatch):
    verl = Verl(monkeypatch, read)
    verl.step()
    assert verl.passes == [("old_log_prob", list(range(8))), ("ref_log_prob", [0, 5, 6])]
    made = verl.trainer
    assert values(made.chosen["old_log_probs"]) == [0, 5, 6]
    assert made.record.ledger.scored_tokens == (LENGTHS + 2).sum() + (LENGTHS[[0, 5, 6]] + 2).sum()
    assert made.rollouts.entropy_N == pytest.approx(np.arange(8) / 10)
    assert made._entropy() == pytest.approx(np.average(np.arange(8) / 10, weights=LENGTHS))


def test_without_a_kl_term_rows_without_an_advantage_are_not_read(monkeypatch):
    def two(rollouts, progress, rng):
        return rollouts.take(np.array([0, 3, 7]), np.ones(3)).with_mask(np.arange(7) < np.array([[7], [0], [7]]))

    verl = Verl(monkeypatch, two, kl=False)
    verl.step()
    assert [rows for name, rows in verl.passes if name == "old_log_prob"] == [[0, 7]]


def test_a_memory_trains_again_with_the_probabilities_of_then_and_its_groups_outlive_the_queue(monkeypatch):
    def second(rewards_N, group_N, age_Q, rng):
        return Remembered(age_Q == age_Q.max(), (age_Q == 0) & (np.arange(len(age_Q)) == 1))

    verl = Verl(monkeypatch, memory=second)
    made, fresh = verl.trainer, verl.trainer.scored
    verl.step()
    assert [rows for _, rows in verl.passes] == [list(range(8)), list(range(8))] and made.replayed["age"] == 0
    saved = io.BytesIO()
    torch.save(made.arm.memory, saved)
    saved.seek(0)
    made.arm.memory, made.scored, made.global_steps = torch.load(saved, weights_only=False), fresh, 2
    for row in verl.queue.rows["train"].values():  # the next batch
        row.pop("old_log_probs"), row.pop("entropy"), row.pop("ref_log_prob", None)
    verl.passes.clear()
    verl.step()
    assert made.replayed == {"replayed_rollouts": GROUP, "age": 1.0}
    assert verl.passes == [("old_log_prob", list(range(8))), ("ref_log_prob", [4, 5, 6, 7])]
    assert values(made.chosen["old_log_probs"]) == [4, 5, 6, 7]  # of then
    assert values(made.chosen["ref_log_prob"]) == [114, 115, 116, 117]
    assert made.rollouts.response_tokens_N.tolist() == LENGTHS[4:].tolist() and made.arm.memory.drawn_Q == [1]


def test_importance_ratios_are_those_of_the_chosen_rows(monkeypatch):
    metrics = Verl(monkeypatch, unread, rollout_is="token", rollout_is_threshold=2.0)
    found = metrics.step()
    assert values(metrics.trainer.chosen["rollout_is_weights"]) == pytest.approx([np.exp(-0.5)] * 3)
    assert found["rollout_corr/rollout_is_mean"] == pytest.approx(np.exp(-0.5))


def test_the_staleness_of_what_was_drawn_is_logged(monkeypatch):
    from repro.verl.trainer import AheadTrainer

    verl = Verl(monkeypatch, unread, rollout_is="token", rollout_is_threshold=2.0)
    verl.trainer, made = AheadTrainer.__new__(AheadTrainer), verl.trainer
    vars(verl.trainer).update(vars(made), global_steps=4)  # the weights are those of three updates
    made = verl.trainer
    made.tags = {key: {"min_global_steps": 3 - row % 3} for row, key in enumerate(made.scored.keys_N)}
    verl.step()
    found = made._measured(defaultdict(float))
    assert (found["arm/staleness"], found["arm/staleness_max"]) == (np.mean([row % 3 for row in KEPT]), 2.0)


def test_rejection_scores_all_before_the_choice(monkeypatch):
    verl = Verl(monkeypatch, unread, rollout_rs="token_k1", rollout_rs_threshold="0.1_10")
    verl.step()
    assert verl.passes[0] == ("old_log_prob", list(range(8)))


def test_offloaded_states_move_once_a_step():
    from repro.verl import trainer

    moved, calls = trainer.ArmTrainer.__new__(trainer.ArmTrainer), []
    moved.actor_rollout_wg = SimpleNamespace(to=lambda device, **what: calls.append((device, what)))
    fsdp = {"param_offload": True, "optimizer_offload": False, "offload_policy": False}
    moved.config = OmegaConf.create({"actor_rollout_ref": {"actor": {"fsdp_config": fsdp}}})
    what = {"model": True, "optimizer": False, "grad": True}
    moved.parts = [1, 2, 3]
    with pytest.raises(RuntimeError), moved._states_on_the_device() as options:
        assert calls == [("device", what)] and options == {"disable_auto_offload": True}
        raise RuntimeError("an update failed")
    assert calls == [("device", what), ("cpu", what)]
    for key, value in (("param_offload", False), ("offload_policy", True)):
        moved.config.actor_rollout_ref.actor.fsdp_config[key] = value
        with moved._states_on_the_device() as options:
            assert options == {} and len(calls) == 2
