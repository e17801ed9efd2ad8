"""verl's trainer with an arm's samplers before its scoring passes and its actor update.

Advantages, selection and mini-batches use the embedded engine's code and random streams, so the same batch gives the
same selection on both engines. Each mini-batch is one call of verl's `update_actor`, however many rollouts it has.
Everything else (generation, scoring, losses, optimiser, weights to the replicas, checkpoints) is verl's.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf, open_dict
from transfer_queue import KVBatchMeta
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict

from repro.errors import Refused
from repro.evaluation.model import without_weights
from repro.methods.choice import shares
from repro.methods.rollouts import Rollouts
from repro.policy.flops_lora import counter_of
from repro.protocol.collect import join
from repro.verl import best
from repro.verl.batch import MiniBatch, loss_of, padded, rows_of, training_rows
from repro.verl.best import STATE, mend_latest
from repro.verl.choosing import ChoosingTrainer
from repro.verl.data import PREDICTED, with_samples
from repro.verl.host import Ahead, register_trainer
from repro.verl.loss import own_loss
from repro.verl.record import Record, describe
from repro.verl.version import AHEAD, NAME

UNFILTERED = ("reward", "accuracy", "groups_without_signal", "refill_rounds")  # verl's own are of what passed
TORCH_WRITES = "inline_container"  # in what torch says when it cannot write a file, without the system's reason


class NotSaved(Refused, OSError):
    """One sentence: which checkpoint could not be written, and the remedy."""


@register_trainer(NAME)  # trainer.v1.trainer_mode
class ArmTrainer(ChoosingTrainer):
    """One run of one arm. The methods are in the order in which verl calls them."""

    def __init__(self, config: Any):
        super().__init__(config)
        self.diverged = False
        self.samples_of = dict(config.repro.get("validation_samples") or {})
        model = config.actor_rollout_ref.model
        flops = counter_of(without_weights(model.path), lora=model.lora_rank > 0)
        every = max(1, config.trainer.test_freq)
        kept, budget = self.run.settings.engine.kept_rollouts, self.run.settings.evaluation.budget_gflops
        self.record = Record(self.run.seed, every, kept, flops, budget)

    def on_init_end(self) -> None:
        super().on_init_end()
        actor = omega_conf_to_dataclass(self.config.actor_rollout_ref.actor)
        if (loss := own_loss(self.run.method, actor)) is not None:
            self.actor_rollout_wg.set_loss_fn(loss)
        if self.global_steps == 0 and (profile := self.run.profile) is not None:
            self.record.ledger.charge_profile(self.record.flops, profile.prompt_tokens_Q, profile.response_tokens_Q_K)

    # the update

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        updates = []
        with self._states_on_the_device() as options:
            for part in self.parts:
                if not self.diverged:
                    updates.append(self._update(part, options))
        of_step = self._write_step(self.global_steps - 1, self.selected, updates)
        metrics.update(_for_verl(updates) | self._measured(of_step))
        return batch  # all of it: verl measures it, then clears exactly its keys

    def _measured(self, of_step: Mapping[str, float]) -> dict[str, float]:
        """For verl's loggers: what was generated, what the arm made of it, and the cost so far."""
        named = {name: of_step[name] for name in UNFILTERED}
        choice = shares(self.selected, len(self.rollouts or [0]))
        return {f"arm/{name}": value for name, value in {**named, **choice, **self.record.ledger.row()}.items()}

    @contextmanager
    def _states_on_the_device(self) -> Iterator[dict[str, bool]]:
        """With offloading, verl moves weights and optimiser states to the device and back in each call of
        `update_actor`, which is one mini-batch here; they move once a step instead. Yields what tells verl so."""
        moved = offloaded(self.config.actor_rollout_ref.actor.fsdp_config)
        if not moved or len(self.parts) < 2:
            yield {}
            return
        self.actor_rollout_wg.to("device", **moved)
        try:
            yield {"disable_auto_offload": True}
        finally:
            self.actor_rollout_wg.to("cpu", **moved)

    def _update(self, minibatch: MiniBatch, options: Mapping[str, bool]) -> dict[str, float]:
        """One optimiser step on the whole of a mini-batch."""
        actor, part, read = self.config.actor_rollout_ref.actor, minibatch.part, minibatch.read
        here = replace(read, row_N=np.searchsorted(self.row_U, read.row_N))  # their places among the chosen
        of_verl = training_rows(self.chosen, here, self.ranks, self.run.method.aggregation, minibatch.copies_M)
        with self._queued(of_verl) as rows:
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
                **options,
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
        return {**values, **extra, "clipped": values["actor/pg_clipfrac"], "rows": float(len(read))}

    # log and evaluation

    def _write_step(
        self, step: int, selected: Rollouts | None, updates: Sequence[Mapping[str, float]]
    ) -> dict[str, float]:
        """Into the record; what was measured of everything that the step generated."""
        measured = describe(join(self.seen)) | {"entropy": self._entropy(), "kl": self._kl()}
        measured |= {"refill_rounds": len(self.seen) - 1, **self.replayed}
        self.record.add_step(step, measured, selected, [] if self.diverged else updates)
        if self.rollouts is not None and step % self.record.every == 0:
            responses = rows_of(self.fields["responses"])[: self.record.kept]
            ends = [row[:-1] if done else row for row, done in zip(responses, self.scored.finished_N, strict=False)]
            texts = self.tokenizer.batch_decode([row.tolist() for row in ends])
            self.record.add_rollouts(step, self.scored, self.queries, self.rollouts, selected, texts)
        return measured

    def _entropy(self) -> float:
        """Mean entropy of the response tokens in nats. Where no sampler asked verl for it, the mean of −log π of the
        sampled tokens, which has the same expectation; NaN without the sampler's log-probabilities."""
        if self.rollouts is None:
            return float("nan")
        if "entropy" in self.fields:
            return self.rollouts.mean_entropy()
        if "rollout_log_probs" not in self.fields:
            return float("nan")
        mask_N_T = self.rollouts.response_mask_N_T
        return -float(padded(rows_of(self.fields["rollout_log_probs"]), np.float32)[mask_N_T].mean())

    def _kl(self) -> float:
        """KL(π‖base policy) in nats per token by the k3 estimator, over the rollouts that are trained on, if verl
        evaluated the reference; else NaN."""
        if self.chosen is None or "ref_log_prob" not in self.chosen:
            return float("nan")
        pairs = zip(rows_of(self.chosen["ref_log_prob"]), rows_of(self.chosen["old_log_probs"]), strict=True)
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
        kept = (
            "acc",
            PREDICTED,
        )  # verl's mean@, best@, worst@ and, where answers are known, maj@, of the verdict alone
        verdicts = {name: reward_extra_infos_dict[name] for name in kept if name in reward_extra_infos_dict}
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

    # checkpoints: verl's, and next to them the ledger and log

    @property
    def _folder(self) -> Path:
        return Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"

    def _save_record(self) -> None:
        self.record.save(self._folder / STATE, diverged=self.diverged)

    def _save_checkpoint(self) -> None:
        self._save_record()  # first, since verl's last action is to mark this checkpoint as the latest
        try:
            super()._save_checkpoint()
        except RuntimeError as error:
            if TORCH_WRITES not in str(error):
                raise
            raise NotSaved(
                f"{self._folder} could not be written, as where the disk is full: free some, then run the same command "
                "again, which goes on from the checkpoint before"
            ) from error

    def _load_checkpoint(self) -> None:
        """Afterwards, verl evaluates before training only if the uninterrupted run would have evaluated here."""
        mend_latest(Path(self.config.trainer.default_local_dir))
        super()._load_checkpoint()
        if self.global_steps > 0:
            trainer = self.config.trainer
            folder = Path(trainer.resume_from_path) if trainer.resume_mode == "resume_path" else self._folder
            self.diverged = self.record.restore(folder / STATE, diverged=bool)["diverged"]
            if self.diverged:
                self.total_training_steps = self.global_steps
            due = self._last or self.global_steps % self.record.every == 0
            with open_dict(self.config):
                trainer.val_before_train &= due and not self.record.evaluated(self.global_steps)


@register_trainer(AHEAD)
class AheadTrainer(Ahead, ArmTrainer):
    """A step waits for as many groups as its plan has, whichever of those in flight are finished first, so no response
    is waited for alone. The arm chooses among them, and verl's importance ratios correct what older weights sampled."""

    def on_train_begin(self) -> None:
        """Submit the batches that are in flight between steps, or those that were at the checkpoint."""
        waiting, self.arm.flying = list(self.arm.flying.values()), {}
        if self.global_steps <= self.total_training_steps:
            batches = range(self.config.trainer.v1.colocate_async.num_warmup_batches)
            filled = [self.arm.plan.fill_step(self.run.rollouts_per_step) for _ in ([] if waiting else batches)]
            self._submit(waiting or [group for step in filled for group in step])

    def _measured(self, of_step: Mapping[str, float]) -> dict[str, float]:
        """Also the staleness of what was drawn: the updates since a rollout's first token, over draws."""
        drawn = [] if self.selected is None else self.scored.keys_N[self.selected.row_N]
        age_M = [self.global_steps - 1 - self.tags[key]["min_global_steps"] for key in drawn]
        stale = {"arm/staleness": float(np.mean(age_M)), "arm/staleness_max": float(max(age_M))} if age_M else {}
        return super()._measured(of_step) | stale


def offloaded(fsdp: Any) -> dict[str, bool]:
    """What verl moves off the device between its phases, as arguments of its workers' `to`; {} if nothing."""
    moved = {"model": bool(fsdp.param_offload), "optimizer": bool(fsdp.optimizer_offload)}
    if fsdp.get("offload_policy") or not any(moved.values()):  # FSDP2's own policy leaves them where they are
        return {}
    return {**moved, "grad": moved["model"]}


def _for_verl(updates: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means over the updates under verl's names, for its loggers."""
    if not updates:
        return {}
    means = {name: float(np.mean([update[name] for update in updates])) for name in updates[0]}
    renamed = rename_dict(means, "actor/")
    return {{"actor/mfu": "perf/mfu/actor"}.get(name, name): value for name, value in renamed.items()}  # as verl does
