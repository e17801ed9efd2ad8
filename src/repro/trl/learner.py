"""What a GRPOTrainer computes on a selection: scoring passes after the samplers, and the loss, TRL's own or the arm's.

TRL's loss is computed by TRL, on the rows that were selected, each as often as it was drawn. The model reads a rollout
once; the divisors, TRL's of a micro-batch, are set to those of the mini-batch.
"""

from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing

from repro.trl.batch import OLD, RATIO, REFERENCE, Batch
from repro.trl.slices import Slice


class Learner(GRPOTrainer):
    """GRPOTrainer whose micro-batches are `Slice`s. A subclass sets own_loss (whether the loss is TRL's own), method,
    ledger, flops and updates (per batch and iteration)."""

    _waiting = False  # TRL's scoring passes return nothing: they follow for the rollouts that are selected
    _copies: torch.Tensor | None = None  # of the rows of a pass, of which each is read once

    @contextmanager
    def _with(self, **values: Any):
        """These attributes inside the context."""
        usual = {name: getattr(self, name) for name in values}
        vars(self).update(values)
        try:
            yield
        finally:
            vars(self).update(usual)

    def _measure(self, **values: float) -> None:
        for name, value in values.items():
            self._metrics["train"][f"arm/{name}"].append(float(value))

    # passes

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, **options: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        if self._waiting:
            return input_ids.new_zeros((len(input_ids), logits_to_keep), dtype=torch.float32), None, None
        if self._copies is None:
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, **options
            )
        copy, first_U = self._copies, torch.as_tensor(np.unique(self._copies.cpu(), return_index=True)[1])
        read = input_ids[first_U], attention_mask[first_U], logits_to_keep
        logprob_U_T, entropy_U_T, aux = super()._get_per_token_logps_and_entropies(model, *read, **options)
        return logprob_U_T[copy], entropy_U_T[copy], aux

    def _pass(self, model: Any, rows: dict[str, torch.Tensor], entropy: bool = False) -> tuple[torch.Tensor, Any]:
        """(logprob_U_T, entropy_U_T or None) of the completions."""
        ids = torch.cat([rows["prompt_ids"], rows["completion_ids"]], 1)
        attention = torch.cat([rows["prompt_mask"], rows["completion_mask"]], 1)
        width = rows["completion_ids"].shape[1]
        return self._get_per_token_logps_and_entropies(model, ids, attention, width, compute_entropy=entropy)[:2]

    @torch.no_grad()
    def _score(self, model: Any, batch: Batch, rows: np.ndarray, entropy: bool = False) -> tuple[torch.Tensor, ...]:
        """(logprob_N_T, entropy_N_T if wanted) under `model`, of these rows; 0 elsewhere. Charged. Each process reads
        its share."""
        shape, device = batch.mask_N_T.shape, batch.mask_N_T.device
        scores_2_N_T = torch.zeros((2, *shape), device=device)
        order = rows[np.argsort(batch.costs_N[rows], kind="stable")]
        own = order[self.accelerator.process_index :: self.accelerator.num_processes]
        chunks = max(1, -(-len(own) // self.args.per_device_train_batch_size))
        with disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            for chunk in np.array_split(own, chunks):
                if len(chunk):
                    cut, at = batch.cut(chunk, self.pad_to_multiple_of is None), torch.as_tensor(chunk, device=device)
                    for scores_N_T, values_U_T in zip(scores_2_N_T, self._pass(model, cut, entropy), strict=True):
                        if values_U_T is not None:
                            scores_N_T[at, : values_U_T.shape[1]] = values_U_T.float()
        self.ledger.charge_scoring(self.flops, batch.costs_N[rows])
        return tuple(self.accelerator.reduce(scores_2_N_T, reduction="sum"))

    def _score_selected(self, batch: Batch, rows: np.ndarray) -> None:
        """What the loss needs: old log-probabilities unless the batch's only update starts from them, a reference's."""
        if OLD not in batch.tensors and self.updates * self.num_iterations > 1:
            batch.tensors[OLD], _ = self._score(self.model, batch, rows)
        if REFERENCE not in batch.tensors and self.beta:
            batch.tensors[REFERENCE], _ = self._score(self.ref_model, batch, rows)

    # the loss

    @property
    def _by_micro_batch(self) -> bool:
        """Whether TRL's own loss is of micro-batches that are taken as they are: means within each, or its quantiles;
        a row that has no gradient by itself counts in them."""
        within = self.loss_type == "bnpo" or self.top_entropy_quantile < 1 or self.aux_loss_enabled
        return self.own_loss and (within or self._entropy_bonus_enabled)

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
        return self._trl_loss(model, inputs) if self.own_loss else self._arm_loss(model, inputs)

    def _trl_loss(self, model: Any, part: Slice) -> torch.Tensor:
        rows = {name: tensor[part.copy_of_M] for name, tensor in part.rows.items()}
        rows["advantages"], rows["tool_mask"] = part.advantages_M, part.mask_M_T.to(rows["completion_mask"].dtype)
        rows["num_items_in_batch"] = torch.tensor(part.items, device=part.advantages_M.device)
        with self._with(current_gradient_accumulation_steps=part.passes, _copies=part.copy_of_M):
            return super()._compute_loss(model, rows)

    def _arm_loss(self, model: Any, part: Slice) -> torch.Tensor:
        logprob_U_T, entropy_U_T = self._pass(model, part.rows, entropy=True)
        logprob_M_T, rows, copy = logprob_U_T[part.copy_of_M], part.rows, part.copy_of_M
        old_M_T = rows[OLD][copy] if OLD in rows else logprob_M_T.detach()
        loss_M_T, clipped_M_T = self.method.objective(logprob_M_T, old_M_T, part.advantages_M, part.mask_M_T)
        if RATIO in rows:
            loss_M_T = loss_M_T * rows[RATIO][copy]
        told = {"entropy": entropy_U_T[copy], "clip_ratio/region_mean": clipped_M_T}
        if self.beta:
            gap_M_T = (rows[REFERENCE][copy] - logprob_M_T) * part.mask_M_T
            told["kl"] = gap_M_T.exp() - 1 - gap_M_T
            loss_M_T = loss_M_T + self.beta * told["kl"]
        sums = [(values.detach() * part.mask_M_T).sum().float() for values in told.values()]
        sums = self.accelerator.reduce(torch.stack([*sums, part.mask_M_T.sum().float()]), reduction="sum").tolist()
        for name, value in zip(told, sums, strict=False):
            self._metrics["train"][name].append(value / max(1.0, sums[-1]))
        loss = (loss_M_T.where(part.mask_M_T, 0.0) * part.coefficient_M_T).sum()
        return loss * self.accelerator.num_processes  # over which gradients are averaged
