"""verl's trainer with an arm's choice before its scoring passes: only what trains is scored.

verl scores every rollout, by the policy that sampled it and by the reference, and then computes advantages. A choice
needs rewards alone, unless a sampler reads entropies or log-probabilities: then the first pass reads all rollouts, when
the sampler does. The passes themselves are verl's, on copies of the chosen rows in a partition of the queue.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import transfer_queue as tq
from omegaconf import open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl import DataProto
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.workers.utils.padding import response_to_nested

from repro.methods.rollouts import Rollouts
from repro.methods.unscored import Unscored
from repro.verl.batch import (
    OPTIONAL,
    TRAINED,
    MiniBatch,
    merged,
    nested,
    rollouts_of,
    rows_of,
    scoring_rows,
    selected_rows,
    signals_of,
)
from repro.verl.loss import has_terms
from repro.verl.planned import PlannedTrainer

CHOSEN = "selected"  # the queue's partition for copies of the rows that are scored or trained on
RATIOS = "rollout_is_weights"


class ChoosingTrainer(PlannedTrainer):
    """A step's choice and what is known of it, for the update that follows:

    rollouts, selected   the batch as the samplers saw it, and what they made of it (None: nothing to learn from)
    parts                its mini-batches
    row_U, chosen        the distinct rollouts that these read, and verl's fields of them, scores included
    """

    def __init__(self, config: Any):
        super().__init__(config)
        self.serial = itertools.count()

    # verl's phases, in the order in which it calls them

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """The arm's choice, and verl's first pass on it."""
        self.batch, self.metrics, self.fields = batch, metrics, None
        if self._corrects_all or self.run.method.memory is not None:  # which holds what it may not train on now
            self._score_all()
        with self._correction(self._corrects_all):  # verl's own advantage, for its metrics
            super()._compute_advantage(batch, metrics)
        self._read()
        self._choose()
        if len(self.row_U) and "old_log_probs" not in self.chosen:
            if not self._bypasses:
                self._charge_scoring(self.costs_U)
            self._score_chosen(super()._compute_old_log_prob, "old_log_probs")
        return batch

    def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        if len(self.row_U):
            self._charge_scoring(self.costs_U)
            self._score_chosen(super()._compute_ref_log_prob, "ref_log_prob")
        return batch

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """verl's importance ratios of what was chosen; its advantages are there."""
        if len(self.row_U) and not self._corrects_all:
            self._correct(self.chosen)
        return batch

    # the choice

    def _read(self) -> None:
        """`fields` and `rollouts` of the batch, in the plan's order; with a memory, of what trains (None: nothing)."""
        method, step = self.run.method, self.global_steps - 1
        self.metrics["training/rollouts_failed"] = self.failed
        self.fields = self._fetched(sorted({"response_mask", "entropy", *TRAINED, *OPTIONAL}))
        self.scored, self.replayed = self.arm.recalled(step, replace(self.scored, queued=self.fields))
        self.fields = self.scored and self.scored.queued
        if self.scored is None:
            self.rollouts = None
            return
        lengths = self.scored.lengths(self.config.data.max_response_length)
        advantages_N = method.advantages(step, self.scored.rewards_N, self.scored.group_N, lengths)
        self.rollouts = rollouts_of(self.scored, self.fields, advantages_N)

    def _choose(self) -> None:
        """`selected`, `parts`, `row_U`, `costs_U` and `chosen`, by the arm's samplers and random streams."""
        self.selected = None if self.rollouts is None else self._selected()
        self.parts = [] if self.selected is None else self._minibatches(self.selected)
        self.row_U = np.unique(np.concatenate([part.row_M for part in self.parts] or [np.zeros(0, int)]))
        self.costs_U = self.rollouts.costs_N[self.row_U] if len(self.row_U) else self.row_U
        self.chosen = selected_rows(self.fields, self.row_U) if len(self.row_U) else None

    def _selected(self) -> Rollouts | None:
        step = self.global_steps - 1
        progress = step / self.run.settings.steps_of(self.run.arm)  # a shortened run keeps its schedule
        offered = self.rollouts if "entropy" in self.fields else Unscored.of(self.rollouts, self._signals)
        selected = self.arm.select(step, offered, progress)
        if "entropy" in self.fields:
            self.rollouts = replace(self.rollouts, **self._signals())
        return selected.plain if isinstance(selected, Unscored) else selected

    def _minibatches(self, selected: Rollouts) -> list[MiniBatch]:
        parts = self.arm.minibatches(self.global_steps - 1, selected, self.run.updates)
        every_row = has_terms(self.config.actor_rollout_ref.actor)
        return [merged(part, self.run.method.aggregation, every_row=every_row) for part in parts]

    # scoring

    def _signals(self) -> dict[str, np.ndarray]:
        """Entropies and log-probabilities of the whole batch, scored when a sampler first reads one."""
        if "entropy" not in self.fields:
            self._score_all()
            found = self._fetched(["entropy", "old_log_probs"])
            for name, values in found.items():
                self.fields[name] = values
        return signals_of(self.fields, self.rollouts.response_mask_N_T)

    def _score_all(self) -> None:
        """verl's first pass, of every rollout."""
        self._charge_scoring(np.array([tag["seq_len"] for tag in self.batch.tags if not tag.get("is_padding", False)]))
        super()._compute_old_log_prob(self.batch, self.metrics)

    def _score_chosen(self, compute: Callable[[KVBatchMeta, dict], Any], name: str) -> None:
        """One of verl's passes over the chosen rows; `chosen` gets its result, the field `name`."""
        rows, place_U = scoring_rows(self.fields, self.row_U, self.costs_U, self.ranks)
        with self._queued(rows) as queued:
            compute(queued, self.metrics)
            found = rows_of(tq.kv_batch_get(keys=queued.keys, partition_id=CHOSEN, select_fields=[name])[name])
        self.chosen[name] = nested([found[place] for place in place_U])

    def _charge_scoring(self, costs_M: np.ndarray) -> None:
        self.record.ledger.charge_scoring(self.record.flops, costs_M)

    def _fetched(self, names: list[str]) -> TensorDict:
        """Fields of the batch's rollouts."""
        keys = self.scored.keys_N.tolist()
        return tq.kv_batch_get(keys=keys, partition_id=self.batch.partition_id, select_fields=names)

    @contextmanager
    def _queued(self, rows: TensorDict) -> Iterator[KVBatchMeta]:
        """Put rows into the queue under new keys while verl reads them."""
        keys = [f"{self.global_steps}_{next(self.serial)}" for _ in range(len(rows))]
        tags = [{"seq_len": len(row)} for row in rows_of(rows["input_ids"])]
        tq.kv_batch_put(keys=keys, partition_id=CHOSEN, fields=rows, tags=tags)
        try:
            yield KVBatchMeta(partition_id=CHOSEN, keys=keys, tags=tags)
        finally:
            tq.kv_clear(keys=keys, partition_id=CHOSEN)

    # verl's correction of the difference between the sampler's probabilities and the trainer's

    @property
    def _bypasses(self) -> bool:
        correction = self.config.algorithm.get("rollout_correction", None)
        return bool(correction and correction.get("bypass_mode", False))

    @property
    def _corrects_all(self) -> bool:
        """Whether a rollout's correction depends on others, or drops tokens before samplers may choose them."""
        correction = self.config.algorithm.get("rollout_correction", None)
        asked = correction and (correction.get("rollout_rs") or correction.get("rollout_is_batch_normalize"))
        return bool(asked and not self._bypasses)

    @contextmanager
    def _correction(self, on: bool) -> Iterator[None]:
        """verl corrects with its advantages wherever there are two log-probabilities; here not before the choice."""
        algorithm = self.config.algorithm
        before = algorithm.get("rollout_correction", None)
        with open_dict(algorithm):
            algorithm.rollout_correction = before if on else None
        try:
            yield
        finally:
            with open_dict(algorithm):
                algorithm.rollout_correction = before

    def _correct(self, rows: TensorDict) -> None:
        names = ("old_log_probs", "rollout_log_probs", "response_mask")
        correction = self.config.algorithm.get("rollout_correction", None)
        if correction is None or self._bypasses or "rollout_log_probs" not in rows:
            return
        masks = rows_of(self.fields["response_mask"])
        mask = nested([masks[row] for row in self.row_U])
        data = rows.select(*names[:2])
        data["response_mask"] = mask
        data, measured = compute_rollout_correction_and_add_to_batch(
            DataProto(batch=data.to_padded_tensor()), correction
        )
        self.metrics.update(measured)
        if RATIOS in data.batch:
            rows[RATIOS] = response_to_nested(data.batch[RATIOS], mask)
