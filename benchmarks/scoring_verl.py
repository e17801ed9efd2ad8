"""verl's side of benchmarks.scoring: `python -m benchmarks.scoring_verl` answers requests.

One rank of verl's engine, without Ray; selection, merging and rows are those of repro.verl, in the order in which its
trainer calls them (repro.verl.choosing) and in the one in which it did: every rollout scored, every draw trained on.
"""

import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.scoring_work import KL, LONGEST, SEED, UPDATES, Work, flat, policy_folder, work
from benchmarks.worker import Requests
from repro.arms import build
from repro.engine.backends.load import SMOLLM2, fetch
from repro.experiments.parity.replayed import be_the_only_rank
from repro.methods.lengths import Lengths
from repro.methods.rollouts import Rollouts
from repro.methods.unscored import Unscored
from repro.protocol.ledger import Ledger
from repro.protocol.streams import stream_seed
from repro.settings import load

SLICE = 1024  # tokens of a micro-batch
SINGLE = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}


class VerlSide:
    """Actor and reference of verl, and one batch as its queue holds it."""

    def __init__(self):
        be_the_only_rank()
        from repro.verl.record import flop_counter

        self.batch: Work = work()
        self.actor = self._worker(policy_folder(), 0.0)
        self.reference = self._worker(fetch(SMOLLM2), 0.0)
        self.flops = flop_counter(str(policy_folder()))
        self.gradients: list[torch.Tensor] = []
        self.actor.engine.optimizer.register_step_pre_hook(self._keep)

    def pair(self, arm: str, turn: int) -> dict[str, Any]:
        """Both orders on the same batch: CPU seconds, tokens and FLOPs of each, and how far apart the gradients are."""
        method = build(arm, load().arm(arm))
        answers, gradients = {}, {}
        for name in ("before", "after")[:: -1 if turn % 2 else 1]:
            self.gradients = []
            answers[name] = self._step(method, first=name == "after")
            gradients[name] = self.gradients
        gap = [float((a - b).norm() / b.norm()) for a, b in zip(*map(gradients.get, ("after", "before")), strict=True)]
        return {**answers, "gradient_error": max(gap), "minibatches": len(gap)}

    def _step(self, method: Any, *, first: bool) -> dict[str, float]:
        from repro.verl.batch import merged, selected_rows, training_rows

        ledger, clock = Ledger(), {"score": 0.0, "train": 0.0}
        rows_N, rollouts = self._collected(method)
        fields = self._fields(rows_N)
        self.set_loss(method)

        def score(worker: Any, rows_U: np.ndarray) -> Any:
            started = time.process_time()
            output = self._scored(worker, fields, rows_U, rollouts.costs_N)
            clock["score"] += time.process_time() - started
            ledger.charge_scoring(self.flops, rollouts.costs_N[rows_U])
            return output

        def every() -> dict[str, np.ndarray]:
            """Entropies and log-probabilities of the whole batch."""
            from repro.verl.batch import signals_of

            if "entropy" not in fields:
                fields["old_log_probs"], fields["entropy"] = score(self.actor, np.arange(len(rollouts)))
            return signals_of(fields, rollouts.response_mask_N_T)

        if not first:
            every()
            fields["ref_log_prob"], _ = score(self.reference, np.arange(len(rollouts)))
        rng = {name: np.random.default_rng(stream_seed(SEED, 0, name)) for name in ("sample", "shuffle")}
        selected = method.select(0, Unscored.of(rollouts, every), 0.0, rng["sample"]).plain
        order = rng["shuffle"].permutation(len(selected))
        parts = [selected.take(rows) for rows in np.array_split(order, selected.minibatches or UPDATES)]
        reads = [merged(part, method.aggregation, every_row=True) if first else None for part in parts]
        row_U = np.unique(selected.row_N if not first else np.concatenate([read.row_M for read in reads]))
        chosen = selected_rows(fields, row_U)
        if first:
            if "old_log_probs" not in chosen:
                chosen["old_log_probs"], _ = score(self.actor, row_U)
            chosen["ref_log_prob"], _ = score(self.reference, row_U)
        for part, read in zip(parts, reads, strict=True):
            kept, copies = (read.read, read.copies_M) if read else (part, None)
            here = _renumbered(kept, row_U)
            rows = training_rows(chosen, here, 1, method.aggregation, copies)
            started = time.process_time()
            self._train(rows, len(part))
            clock["train"] += time.process_time() - started
            ledger.charge_update(self.flops, kept.costs_N)
        return {**{f"{name}_seconds": value for name, value in clock.items()}, **ledger.row()}

    def _collected(self, method: Any) -> tuple[np.ndarray, Rollouts]:
        """The rows that pass the arm's filter, and what samplers see of them."""
        batch = self.batch
        keep_Q = np.ones(batch.group_N.max() + 1, bool)
        if method.filter is not None:
            keep_Q = method.kept_groups(0, batch.verdicts_N, batch.group_N)
        rows_N = np.flatnonzero(keep_Q[batch.group_N])
        rewards_N, group_N = batch.verdicts_N[rows_N], batch.group_N[rows_N]
        lengths_N = np.array([len(batch.responses_N[row]) for row in rows_N])
        lengths = Lengths(lengths_N, np.zeros(len(rows_N), bool), int(lengths_N.max()))
        return rows_N, Rollouts.from_batch(
            group_N=group_N,
            rewards_N=rewards_N,
            advantages_N=method.advantages(0, rewards_N, group_N, lengths),
            prompt_tokens_N=np.array([len(batch.prompts_N[row]) for row in rows_N]),
            response_tokens_N=lengths_N,
            response_mask_N_T=np.arange(lengths_N.max()) < lengths_N[:, None],
        )

    def _fields(self, rows_N: np.ndarray) -> Any:
        from tensordict import TensorDict

        from repro.verl.batch import nested

        prompts = [torch.tensor(self.batch.prompts_N[row]) for row in rows_N]
        responses = [torch.tensor(self.batch.responses_N[row]) for row in rows_N]
        whole = [torch.cat(pair) for pair in zip(prompts, responses, strict=True)]
        columns = {
            "prompts": nested(prompts),
            "responses": nested(responses),
            "input_ids": nested(whole),
            "position_ids": nested([torch.arange(len(row)) for row in whole]),
            "response_mask": nested([torch.ones(len(row), dtype=torch.long) for row in responses]),
        }
        return TensorDict(columns, batch_size=[len(whole)])

    def _scored(self, worker: Any, fields: Any, row_U: np.ndarray, costs_N: np.ndarray) -> tuple[Any, Any]:
        """(log-probabilities, entropies) of the rollouts `row_U`; entropies in the actor's pass alone, as in verl."""
        from verl.utils import tensordict_utils as tu
        from verl.workers.utils.padding import response_from_nested

        from repro.verl.batch import nested, rows_of, scoring_rows

        rows, place_U = scoring_rows(fields, row_U, costs_N[row_U], 1)
        lengths = [len(row) for row in rows_of(rows["input_ids"])]
        entropy = worker is self.actor
        tu.assign_non_tensor(
            rows, calculate_entropy=entropy, compute_loss=False, temperature=1.0, global_token_num=lengths
        )
        output, found = worker.infer_batch(rows), []
        for name in ("log_probs", "entropy")[: 1 + entropy]:
            values = rows_of(response_from_nested(output[name], rows["response_mask"]))
            found.append(nested([values[place] for place in place_U]))
        return found[0], found[1] if entropy else None

    def set_loss(self, method: Any) -> None:
        from verl.workers.config import FSDPActorConfig, PolicyLossConfig

        from repro.verl.loss import actor_settings, own_loss

        values = actor_settings(method, LONGEST)
        mode = PolicyLossConfig(loss_mode=values.pop("policy_loss.loss_mode"))
        terms = {"use_kl_loss": True, "kl_loss_coef": KL}
        how = {
            "strategy": "fsdp2",
            "rollout_n": 1,
            "use_dynamic_bsz": True,
            "policy_loss": mode,
            **self.engine_of_actor,
        }
        self.actor.set_loss_fn(own_loss(method, FSDPActorConfig(**how, **terms, **values)))

    def _train(self, rows: Any, size: int) -> None:
        from verl.utils import tensordict_utils as tu

        told = {"temperature": 1.0, "calculate_entropy": False, "global_batch_size": size, "epochs": 1, "seed": 0}
        tu.assign_non_tensor(rows, **told, mini_batch_size=len(rows), dataloader_kwargs={"shuffle": False})
        self.actor.train_mini_batch(rows)

    def _keep(self, *_: Any) -> None:
        grads = [p.grad for p in self.actor.engine.module.parameters()]
        self.gradients.append(flat([getattr(g, "full_tensor", lambda g=g: g)().detach().clone() for g in grads]))

    def _worker(self, policy: Any, rate: float) -> Any:
        from verl.trainer.config import CheckpointConfig
        from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig, TrainingWorkerConfig
        from verl.workers.engine_workers import TrainingWorker

        model = HFModelConfig(
            path=str(policy),
            use_remove_padding=True,
            enable_gradient_checkpointing=False,
            override_config={"attn_implementation": "sdpa"},
        )
        engine = FSDPEngineConfig(
            strategy="fsdp2",
            use_torch_compile=False,
            mixed_precision=SINGLE,
            use_dynamic_bsz=True,
            max_token_len_per_gpu=SLICE,
            infer_max_token_len_per_gpu=SLICE,
        )
        optimiser = FSDPOptimizerConfig(
            lr=rate, optimizer="SGD", weight_decay=0.0, clip_grad=1e9, total_training_steps=10**6
        )
        config = TrainingWorkerConfig(
            model_type="language_model",
            model_config=model,
            engine_config=engine,
            optimizer_config=optimiser,
            checkpoint_config=CheckpointConfig(),
        )
        self.engine_of_actor = {"optim": optimiser, "fsdp_config": engine}
        worker = TrainingWorker(config)
        worker.reset()
        return worker


def _renumbered(part: Rollouts, row_U: np.ndarray) -> Rollouts:
    return replace(part, row_N=np.searchsorted(row_U, part.row_N))


if __name__ == "__main__":
    torch.set_num_threads(1)
    requests = Requests()
    requests.serve({"pair": VerlSide().pair})
