"""verl's trainer with an arm's samplers between advantage and actor update.

Advantages, selection and mini-batches use the embedded engine's code and random streams, so the same batch gives the
same selection on both engines. Each mini-batch is one call of verl's `update_actor`, however many rollouts it has.
Everything else (generation, scoring, losses, optimiser, weights to the replicas, checkpoints) is verl's.
"""

import itertools
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import transfer_queue as tq
from omegaconf import OmegaConf, open_dict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict

from repro.engine.train import stream_seed
from repro.methods.rollouts import Rollouts
from repro.methods.samplers import effective_sample_size
from repro.verl import best
from repro.verl.batch import OPTIONAL, TRAINED, in_plan_order, loss_of, merged, rollouts_of, rows_of, training_rows
from repro.verl.data import with_samples
from repro.verl.loss import own_loss
from repro.verl.planned import SCORED
from repro.verl.record import Record, describe, flop_counter
from repro.verl.replanned import ReplannedTrainer
from repro.verl.version import NAME

log = logging.getLogger(__name__)

SELECTED = "selected"  # the queue's partition for the selected rows
STATE = "repro.json"  # beside each of verl's checkpoints


@register_trainer(NAME)  # trainer.v1.trainer_mode
class ArmTrainer(ReplannedTrainer):
    """One run of one arm. The methods are in the order in which verl calls them."""

    def __init__(self, config: Any):
        super().__init__(config)
        self.diverged, self.serial = False, itertools.count()
        self.samples_of = dict(config.repro.get("validation_samples") or {})
        flops, every = flop_counter(config.actor_rollout_ref.model.path), max(1, config.trainer.test_freq)
        kept, budget = self.run.settings.engine.kept_rollouts, self.run.settings.evaluation.budget_gflops
        self.record = Record(self.run.seed, every, kept, flops, budget)

    def on_init_end(self) -> None:
        super().on_init_end()
        actor = omega_conf_to_dataclass(self.config.actor_rollout_ref.actor)
        if (loss := own_loss(self.run.method, actor)) is not None:
            self.actor_rollout_wg.set_loss_fn(loss)
        if self.global_steps == 0 and (profile := self.run.profile) is not None:
            self.record.ledger.charge_profile(self.record.flops, profile.prompt_tokens_Q, profile.response_tokens_Q_K)

    # scores and advantages

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        correction = self.config.algorithm.get("rollout_correction", None)
        if not (correction and correction.get("bypass_mode", False)):
            self._charge_scoring(batch)
        return super()._compute_old_log_prob(batch, metrics)

    def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        self._charge_scoring(batch)
        return super()._compute_ref_log_prob(batch, metrics)

    def _charge_scoring(self, batch: KVBatchMeta) -> None:
        costs_N = np.array([tag["seq_len"] for tag in batch.tags if not tag.get("is_padding", False)])
        self.record.ledger.charge_scoring(self.record.flops, costs_N)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """verl's advantage (for its metrics and importance weights), then the arm's on the same rollouts."""
        batch = super()._compute_advantage(batch, metrics)
        real = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
        keys = in_plan_order(real, self.place)
        metrics["training/rollouts_failed"] = failed = max(0, self.expected - len(keys))
        if failed:  # verl continues without them
            log.warning("step %d: %d of %d rollouts failed, see above", self.global_steps, failed, self.expected)
        wanted = {*SCORED, "response_mask", "entropy", *TRAINED, *OPTIONAL}
        self.fields = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=sorted(wanted))
        self.scored = self._scored(keys, self.fields)
        step = self.global_steps - 1
        rewards_N = self.run.method.rewards(step, self.scored.verdicts_N, self._rng("reward"))
        advantages_N = self.run.method.advantages(step, rewards_N, self.scored.group_N)
        self.rollouts = rollouts_of(self.scored, self.fields, rewards_N, advantages_N)
        return batch

    def _rng(self, purpose: str) -> np.random.Generator:
        return np.random.default_rng(stream_seed(self.run.seed, self.global_steps - 1, purpose))

    # selection and update

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        step = self.global_steps - 1
        for scored in (*self.discarded, self.scored):
            self.record.charge(scored)
        selected = self._select(step)
        updates = self._train_on(selected) if selected is not None else []
        self._write_step(step, selected, updates)
        metrics.update(_for_verl(updates) | self._measured(selected))
        return batch  # all of it: verl measures it, then clears exactly its keys

    def _measured(self, selected: Rollouts | None) -> dict[str, float]:
        """For verl's loggers: what was kept of this batch, and the cost so far."""
        kept = {"kept_share": 0.0, "effective_sample_size": 0.0, "refill_rounds": self.refills}
        if selected is not None:
            kept["kept_share"] = len(np.unique(selected.row_N)) / len(self.rollouts)
            kept["effective_sample_size"] = effective_sample_size(selected.weights_N)
        return {f"arm/{name}": value for name, value in {**kept, **self.record.ledger.row()}.items()}

    def _select(self, step: int) -> Rollouts | None:
        progress = step / self.run.settings.steps_of(self.run.arm)  # a shortened run keeps its schedule
        return self.run.method.select(step, self.rollouts, progress, self._rng("sample"))

    def _train_on(self, selected: Rollouts) -> list[dict[str, float]]:
        """All mini-batches of a step; each row of `selected` trains once, in random order."""
        order = self._rng("shuffle").permutation(len(selected))
        updates = []
        for rows in np.array_split(order, selected.minibatches or self.run.updates):
            if len(rows) and not self.diverged:
                updates.append(self._update(selected.take(rows)))
        return updates

    def _update(self, part: Rollouts) -> dict[str, float]:
        """One optimiser step on the whole of `part`."""
        actor = self.config.actor_rollout_ref.actor
        apart = actor.use_kl_loss or actor.entropy_coeff != 0.0  # terms that count every draw of a rollout
        read = part if apart else merged(part, self.run.method.aggregation)
        with self._queued(training_rows(self.fields, read, self.ranks, self.run.method.aggregation)) as rows:
            rows.extra_info = {
                "calculate_entropy": actor.calculate_entropy or actor.entropy_coeff != 0.0,
                "distillation_use_topk": False,
                "distillation_only": False,
                "global_batch_size": len(part),  # divisor of sequence means; padding rows do not count
                "mini_batch_size": len(rows),
                "epochs": 1,
                "seed": actor.data_loader_seed,
                "dataloader_kwargs": {"shuffle": False},
                "temperature": self.config.actor_rollout_ref.rollout.temperature,
            }
            output = self.actor_rollout_wg.update_actor(rows)
        values = {name: float(value) for name, value in reduce_metrics(dict(output["metrics"])).items()}
        values["loss"] = loss_of(values["loss"], part)
        finite = bool(np.isfinite(values["grad_norm"]))  # verl itself skips an update whose gradient is not
        spent = {"steps": int(finite), "paper_tokens": int(part.costs_N.sum())}
        self.record.ledger.charge_update(self.record.flops, read.costs_N, **spent)
        if not finite:  # ends the run, as in the embedded engine
            self.diverged, self.total_training_steps = True, self.global_steps
        extra = {"limit": float(actor.optim.clip_grad), "tokens": float(part.response_mask_N_T.sum())}
        return {**values, **extra, "clipped": values["actor/pg_clipfrac"]}

    @contextmanager
    def _queued(self, rows: Any) -> Iterator[KVBatchMeta]:
        """Put rows into the queue under new keys while they train."""
        keys = [f"{self.global_steps}_{next(self.serial)}" for _ in range(len(rows))]
        tags = [{"seq_len": len(row)} for row in rows_of(rows["input_ids"])]
        tq.kv_batch_put(keys=keys, partition_id=SELECTED, fields=rows, tags=tags)
        try:
            yield KVBatchMeta(partition_id=SELECTED, keys=keys, tags=tags)
        finally:
            tq.kv_clear(keys=keys, partition_id=SELECTED)

    # log and evaluation

    def _write_step(self, step: int, selected: Rollouts | None, updates: Sequence[Mapping[str, float]]) -> None:
        parts = [(scored, scored.verdicts_N) for scored in self.discarded]
        measured = describe([*parts, (self.scored, self.rollouts.rewards_N)])
        measured["entropy"] = self.rollouts.mean_entropy()
        measured |= {"refill_rounds": self.refills, "kl": self._kl()}
        self.record.add_step(step, measured, selected, [] if self.diverged else updates)
        if step % self.record.every == 0:
            responses = rows_of(self.fields["responses"])[: self.record.kept]
            ends = [row[:-1] if done else row for row, done in zip(responses, self.scored.finished_N, strict=False)]
            texts = self.tokenizer.batch_decode([row.tolist() for row in ends])
            self.record.add_rollouts(step, self.scored, self.queries, self.rollouts, selected, texts)

    def _kl(self) -> float:
        """KL(π‖base policy) in nats per token by the k3 estimator, if verl evaluated the reference; else NaN."""
        if "ref_log_prob" not in self.fields:
            return float("nan")
        pairs = zip(rows_of(self.fields["ref_log_prob"]), rows_of(self.fields["old_log_probs"]), strict=True)
        gap = np.concatenate([(reference - policy).float().numpy() for reference, policy in pairs])
        return float((np.exp(gap) - 1 - gap).mean())

    def _validate(self) -> dict[str, float]:
        """verl's validation with the number of samples per query of the settings, or of `repro.validation_samples`."""
        evaluation, loader = self.run.settings.evaluation, self.val_dataloader
        samples = evaluation.final_samples if self._last else evaluation.samples
        self.val_dataloader = with_samples(loader, samples, self.samples_of)
        try:
            metrics = super()._validate()
        finally:
            self.val_dataloader = loader
        self._keep_best()
        return metrics

    def _keep_best(self) -> None:
        """Keep this step's checkpoint if it is the best so far on the data source `repro.best`."""
        source, here = OmegaConf.select(self.config, "repro.best"), Path(self.config.trainer.default_local_dir)
        rows = [row for row in self.record.sources if row["source"] == source and row["step"] == self.global_steps]
        if rows:
            best.keep_if_best(self._folder, here.parent, source, rows[-1]["accuracy"], self.global_steps)

    @property
    def _last(self) -> bool:
        return self.global_steps >= self.total_training_steps

    def _val_metrics_update(
        self, data_sources: Any, sample_uids: Any, reward_extra_infos_dict: Any, *more: Any, **named: Any
    ) -> dict[str, float]:
        if self.profile_infos is not None:
            self.profile_infos = reward_extra_infos_dict
            return {}
        samples = max(Counter(sample_uids).values())  # a response that failed is missing
        self.record.add_evaluation(
            self.global_steps,
            samples,
            reward_extra_infos_dict,
            self.held_out,
            diverged=self.diverged,
            last=self._last,
            sources=data_sources,
        )
        verdicts = {"acc": reward_extra_infos_dict["acc"]}  # verl's mean@, best@ and worst@, of the verdict alone
        return super()._val_metrics_update(data_sources, sample_uids, verdicts, *more, **named)

    def _compute_metrics(self, batch: Any, metrics: dict, timing_raw: dict, global_steps: int, epoch: int) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        self.record.add_seconds(global_steps - 1, timing_raw)
        if (self._folder / STATE).exists():
            self._save_record()  # again, with the evaluation and seconds that followed the checkpoint
        if global_steps % self.record.every == 0 or self._last:
            self.record.write(self.run.output)

    def on_train_end(self) -> None:
        """Also reached by a run that diverged, and by one that was already finished when it was resumed."""
        super().on_train_end()
        self.global_steps -= 1
        if self.diverged and not self.record.evaluated(self.global_steps):
            self._validate()
        self.record.write(self.run.output)

    # checkpoints: verl's, and beside them the ledger and log

    @property
    def _folder(self) -> Path:
        return Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"

    def _save_record(self) -> None:
        place = {"plan": self.plan_file and str(self.plan_file), "cursor": self.cursor}
        self.record.save(self._folder / STATE, **place, diverged=self.diverged)

    def _save_checkpoint(self) -> None:
        self._save_record()  # first, since verl's last action is to mark this checkpoint as the latest
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        """Afterwards, verl evaluates before training only if the uninterrupted run would have evaluated here."""
        super()._load_checkpoint()
        if self.global_steps > 0:
            trainer = self.config.trainer
            folder = Path(trainer.resume_from_path) if trainer.resume_mode == "resume_path" else self._folder
            state = self.record.restore(folder / STATE)
            if state["plan"]:
                self._follow(Path(state["plan"]))
            self.cursor, self.diverged = state["cursor"], state["diverged"]
            if self.diverged:
                self.total_training_steps = self.global_steps
            due = self._last or self.global_steps % self.record.every == 0
            with open_dict(self.config):
                trainer.val_before_train &= due and not self.record.evaluated(self.global_steps)


def _for_verl(updates: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means over the updates under verl's names, for its loggers."""
    if not updates:
        return {}
    means = {name: float(np.mean([update[name] for update in updates])) for name in updates[0]}
    renamed = rename_dict(means, "actor/")
    return {{"actor/mfu": "perf/mfu/actor"}.get(name, name): value for name, value in renamed.items()}  # as verl does
