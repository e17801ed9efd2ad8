"""TRL's side of benchmarks.scoring: `python -m benchmarks.scoring_trl` answers requests.

`ArmTrainer` on a given batch in place of generation, as it is, and with every rollout scored and every draw read.
"""

import tempfile
import time
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from trl import GRPOConfig

from benchmarks.scoring_work import GROUP, GROUPS, KL, LONGEST, SEED, UPDATES, flat, policy_folder, work
from benchmarks.worker import Requests
from repro.engine.backends.load import SMOLLM2, fetch
from repro.methods.objectives.aggregate import token_coefficients
from repro.methods.rollouts import Rollouts
from repro.protocol.ledger import Ledger
from repro.settings import load
from repro.trl import ArmTrainer
from repro.trl.batch import OLD, REFERENCE, Batch
from repro.trl.slices import Slice

ACCUMULATE = 2


class Timed(ArmTrainer):
    """CPU seconds of the scoring passes in `spent`."""

    spent = 0.0

    def _score(self, *arguments: Any, **options: Any) -> Any:
        started = time.process_time()
        try:
            return super()._score(*arguments, **options)
        finally:
            self.spent += time.process_time() - started


class Everything(Timed):
    """Scores the whole batch before the samplers choose, and reads every draw."""

    def _select(self, batch: Batch) -> Rollouts | None:
        rows = np.arange(len(batch))
        batch.tensors[OLD], entropy_N_T = self._score(self.model, batch, rows, entropy=True)
        batch.tensors[REFERENCE], _ = self._score(self.ref_model, batch, rows)
        plain = batch.rollouts(self.method.advantages(0, batch.rewards_N, batch.group_N, batch.lengths))
        mask_N_T = plain.response_mask_N_T
        seen = {"entropy_N_T": entropy_N_T, "logprob_N_T": batch.tensors[OLD]}
        arrays = {name: values.float().cpu().numpy() * mask_N_T for name, values in seen.items()}
        return self.method.select(0, Rollouts(**{**vars(plain), **arrays}), 0.0, self._rng("sample"))

    def _slices(self, examples: list[dict[str, Any]]) -> list[Slice]:
        batch = self._collect(examples)
        parts, count = self._parts(self._select(batch)), self.args.gradient_accumulation_steps
        return [slice for part in parts for slice in every_draw(batch, part, self.update_settings, count)]


def every_draw(batch: Batch, part: Rollouts, settings: Any, count: int) -> list[Slice]:
    """As repro.trl.slices.slices_of, with a row for each draw."""
    how = settings.aggregation, settings.max_tokens, part.group_weight_N
    coefficient_M_T = token_coefficients(part.response_mask_N_T, *how)
    weighted_M, order, slices = part.advantages_N * part.weights_N, np.argsort(part.costs_N, kind="stable"), []
    for place, chunk in enumerate(np.array_split(order, count)):
        rows = batch.cut(part.row_N[chunk])
        width = rows["completion_ids"].shape[1]
        slices.append(
            Slice(
                rows,
                torch.arange(len(chunk)),
                torch.as_tensor(weighted_M[chunk], dtype=torch.float32),
                torch.as_tensor(part.response_mask_N_T[chunk, :width]),
                torch.as_tensor(coefficient_M_T[chunk, :width], dtype=torch.float32),
                part.costs_N[chunk],
                updates=int(place == count - 1),
            )
        )
    return slices


class TRLSide:
    """Both trainers of each arm, on one model."""

    def __init__(self):
        self.batch, self.trainers = work(), {}

    def pair(self, arm: str, turn: int) -> dict[str, Any]:
        """As VerlSide.pair."""
        kinds = {"before": Everything, "after": Timed}
        answers, gradients = {}, {}
        for name in ("before", "after")[:: -1 if turn % 2 else 1]:
            trainer = self.trainers.setdefault((arm, name), self._trainer(kinds[name], arm))
            answers[name], gradients[name] = self._step(trainer)
        gap = [float((a - b).norm() / b.norm()) for a, b in zip(*map(gradients.get, ("after", "before")), strict=True)]
        return {**answers, "gradient_error": max(gap), "minibatches": len(gap)}

    def _step(self, trainer: Timed) -> tuple[dict[str, float], list[torch.Tensor]]:
        trainer.ledger, trainer.spent, gradients, trained = Ledger(), 0.0, [], 0.0
        trainer.model.train()
        slices = trainer._slices([{"prompt": text} for text in self.prompts for _ in range(GROUP)])
        for at in range(0, len(slices), ACCUMULATE):
            trainer.model.zero_grad()
            started = time.process_time()
            for part in slices[at : at + ACCUMULATE]:
                trainer.compute_loss(trainer.model, part).backward()
            trained += time.process_time() - started
            gradients.append(flat([p.grad.clone() for p in trainer.model.parameters()]))
        row = trainer.ledger.row()
        return {"score_seconds": trainer.spent, "train_seconds": trained, **row}, gradients

    @property
    def prompts(self) -> list[str]:
        return [f"question {group}" for group in range(GROUPS)]

    def _trainer(self, kind: type, arm: str) -> Timed:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        config = GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            max_steps=10**6,
            per_device_train_batch_size=GROUPS * GROUP // UPDATES // ACCUMULATE,
            gradient_accumulation_steps=ACCUMULATE,
            steps_per_generation=UPDATES * ACCUMULATE,
            num_generations=GROUP,
            max_completion_length=LONGEST,
            beta=KL,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            seed=SEED,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        entry = load().arm(arm)
        own = entry.model_copy(update={"plan": ("uniform", {}), "engine": type(entry.engine)()})
        trainer = kind(
            model=AutoModelForCausalLM.from_pretrained(policy_folder()),
            reward_funcs=lambda completions, **_: self.batch.verdicts_N.tolist(),
            args=config,
            train_dataset=Dataset.from_list([{"prompt": text} for text in self.prompts]),
            processing_class=AutoTokenizer.from_pretrained(policy_folder()),
            arm=own,
            objective="arm",
            refill_rounds=1,
        )
        reference = AutoModelForCausalLM.from_pretrained(fetch(SMOLLM2))
        trainer.ref_model.load_state_dict(reference.state_dict())
        ids_N, rows = self.batch.prompts_N, self.batch.responses_N
        texts = trainer._tokenizer.batch_decode(rows)
        trainer._generate = lambda prompts: (ids_N, rows, None, texts, None, {}, None, [])
        return trainer


if __name__ == "__main__":
    torch.set_num_threads(1)
    requests = Requests()
    requests.serve({"pair": TRLSide().pair})
