"""The same batch on verl's side, one rank, without Ray.

verl's worker scores and differentiates; plan, verdict, selection and training rows are those of repro.verl.
"""

import asyncio
import os
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from repro.experiments.parity.compared import nothing_drawn, selections, steps
from repro.experiments.parity.recorded import Recorded, flat, flat_gradient
from repro.methods.plans import PlannedGroup, Queries
from repro.methods.rollouts import Rollouts
from repro.policy.model import load_policy
from repro.protocol.streams import stream_seed
from repro.settings import Settings
from repro.tasks.queries import make_pools
from repro.verl.data import query_rows


def be_the_only_rank() -> None:
    """Set the environment that torchrun gives a single process; before verl is imported."""
    from repro.verl.start import ENVIRONMENT

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update({**ENVIRONMENT, **address, "WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"})
    import verl  # noqa: F401  (loads the plugin)


class VerlSide:
    """verl's actor on this machine's CPU, and every step of repro.verl before it; `be_the_only_rank` comes first."""

    def __init__(self, settings: Settings, seed: int, policy: Path, profiles: Path | None, folder: Path):
        self.settings, self.seed, self.policy, self.profiles, self.folder = settings, seed, policy, profiles, folder
        _, self.tokenizer = load_policy(policy)
        self.rows = query_rows(make_pools(settings.task, pretraining=False).train)
        self.worker = None

    def replay(self, recorded: Recorded) -> dict[str, Any]:
        """How far verl's side is from `recorded`: a row of the report's table."""
        from repro.verl.batch import rollouts_of
        from repro.verl.planned import Planned
        from repro.verl.run import RunOnVerl

        config = self._prepared(recorded.arm)
        run, known = RunOnVerl.of(config), Queries(np.ones(len(self.rows), int))
        plan = Planned(run, run.profile.known() if run.profile else known).plan.fill_step(run.rollouts_per_step)
        row = {"arm": recorded.arm, "same_plan": [(group.query, group.size) for group in plan] == recorded.plan}
        if not recorded.responses_N:  # a filter left no group
            return nothing_drawn(**row)
        self._prepare_worker(config, run)
        fields = self._fields(recorded)
        scored = self._scored(recorded, fields, config)
        lengths = scored.lengths(self.settings.engine.max_new_tokens)
        scored = replace(scored, rewards_N=run.method.rewards(0, scored.verdicts_N, self._rng("reward"), lengths))
        advantages_N = run.method.advantages(0, scored.rewards_N, scored.group_N, lengths)
        rollouts = rollouts_of(scored, fields, advantages_N)
        selected = run.method.select(0, rollouts, 0.0, self._rng("sample"))
        logprob_M_T = None if selected is None else selected.logprob_N_T
        row |= selections(recorded, scored.verdicts_N, scored.finished_N, selected, logprob_M_T)
        if selected is None or not row["same_rollouts"]:
            return row  # gradients of different rollouts cannot be compared
        losses, gradients, before_P = [], [], flat(self.worker.actor.engine.module)
        for rows in recorded.parts:
            loss, gradient_P = self._update(config, run, fields, selected.take(rows))
            losses.append(loss)
            gradients.append(gradient_P)
        move_P = flat(self.worker.actor.engine.module) - before_P
        return row | steps(recorded, losses, gradients, before_P, move_P)

    def _rng(self, purpose: str) -> np.random.Generator:
        return np.random.default_rng(stream_seed(self.seed, 0, purpose))

    def _prepared(self, arm: str) -> Any:
        """verl's configuration for `arm`."""
        from repro.verl import study

        run = study.prepare(study.asked(arm, self.seed, self.policy, self.folder / arm), self.settings)
        return study.write(run, self.profiles)

    def _prepare_worker(self, config: Any, run: Any) -> None:
        """verl's worker with the base policy, a fresh optimiser and the arm's loss."""
        from verl.utils.config import omega_conf_to_dataclass
        from verl.workers.engine_workers import ActorRolloutRefWorker
        from verl.workers.utils.losses import ppo_loss

        from repro.verl.loss import own_loss

        if self.worker is None:
            self.worker = ActorRolloutRefWorker(config.actor_rollout_ref, role="actor")
            self.worker.init_model()
            state = self.worker.actor.engine.module.state_dict()
            self.base = {
                name: getattr(value, "full_tensor", lambda v=value: v)().clone() for name, value in state.items()
            }
            self.worker.actor.engine.optimizer.register_step_pre_hook(self._keep_gradient)
        self._reset()
        actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        for group in self.worker.actor.engine.optimizer.param_groups:  # the worker was made for another arm
            group["lr"], group["weight_decay"] = actor.optim.lr, actor.optim.weight_decay
        self.worker.actor.set_loss_fn(own_loss(run.method, actor) or partial(ppo_loss, config=actor))

    def _reset(self) -> None:
        """The base policy and a fresh optimiser."""
        engine = self.worker.actor.engine
        engine.optimizer.state.clear()
        with torch.no_grad():
            for name, parameter in engine.module.named_parameters():
                local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
                local.copy_(self.base[name])

    def _fields(self, recorded: Recorded) -> Any:
        """The batch as verl's queue holds it, with the log-probabilities and entropies of verl's own scoring pass."""
        from tensordict import TensorDict
        from verl.utils import tensordict_utils
        from verl.workers.utils.padding import response_from_nested

        from repro.verl.batch import nested

        prompts = [torch.tensor(prompt) for prompt in recorded.prompts_N]
        whole = [torch.cat(pair) for pair in zip(prompts, recorded.responses_N, strict=True)]
        mask = nested([torch.ones(len(row), dtype=torch.long) for row in recorded.responses_N])
        columns = {
            "prompts": nested(prompts),
            "responses": nested(recorded.responses_N),
            "input_ids": nested(whole),
            "position_ids": nested([torch.arange(len(row)) for row in whole]),
            "response_mask": mask,
            "loss_mask": mask,
        }
        fields = TensorDict(columns, batch_size=[len(whole)])
        request = fields.clone()
        tensordict_utils.assign_non_tensor(
            request,
            calculate_entropy=True,
            compute_loss=False,
            temperature=self.settings.engine.temperature,
            global_token_num=[len(row) for row in whole],
        )
        output = self.worker.compute_log_prob(request)
        fields["old_log_probs"] = response_from_nested(output["log_probs"], fields["response_mask"])
        fields["entropy"] = response_from_nested(output["entropy"], fields["response_mask"])
        if self.settings.engine_of(recorded.arm).kl > 0:
            fields["ref_log_prob"] = fields["old_log_probs"]  # the base policy is the reference and sampled the batch
        return fields

    def _scored(self, recorded: Recorded, fields: Any, config: Any) -> Any:
        """The verdicts of verl's reward manager, read as the trainer reads them."""
        from repro.verl.batch import Scored, nested

        verdicts_N = asyncio.run(self._verdicts(recorded, config))
        rewarded = fields.clone()
        rewarded["rm_scores"] = nested(
            [
                torch.tensor([0.0] * (len(row) - 1) + [v])
                for row, v in zip(recorded.responses_N, verdicts_N, strict=True)
            ]
        )
        rewarded["index"] = torch.as_tensor(recorded.query_N)
        sizes_Q, ends = np.bincount(recorded.group_N).tolist(), np.cumsum(np.bincount(recorded.group_N))
        planned = [PlannedGroup(int(recorded.query_N[end - 1]), size) for end, size in zip(ends, sizes_Q, strict=True)]
        keys = list(map(str, range(len(verdicts_N))))
        return Scored.read(planned, keys, rewarded, self.tokenizer.eos_token_id, self.settings.engine.max_new_tokens)

    async def _verdicts(self, recorded: Recorded, config: Any) -> list[float]:
        from verl import DataProto

        from repro.verl.reward import Verdict

        manager, verdicts = Verdict(config, self.tokenizer, None), []
        for prompt, response, query in zip(recorded.prompts_N, recorded.responses_N, recorded.query_N, strict=True):
            tensors = {"responses": response[None], "attention_mask": torch.ones(1, len(prompt) + len(response))}
            row = {name: np.array([value], dtype=object) for name, value in self.rows[query].items()}
            verdict = await manager.run_single(DataProto.from_dict(tensors, non_tensors=row))
            verdicts.append(verdict["reward_score"])
        return verdicts

    def _update(self, config: Any, run: Any, fields: Any, part: Rollouts) -> tuple[float, torch.Tensor]:
        """(loss, gradient_P as the optimiser receives it) of one call of verl's `update_actor`, on the rows that
        repro.verl's trainer makes of a mini-batch, each rollout once."""
        from verl.utils import tensordict_utils

        from repro.verl.batch import loss_of, merged, training_rows
        from repro.verl.loss import has_terms

        aggregation = run.method.aggregation
        minibatch = merged(part, aggregation, every_row=has_terms(config.actor_rollout_ref.actor))
        rows = training_rows(fields, minibatch.read, 1, aggregation, minibatch.copies_M)
        tensordict_utils.assign_non_tensor(
            rows,
            calculate_entropy=False,
            distillation_use_topk=False,
            distillation_only=False,
            global_batch_size=len(part),
            mini_batch_size=len(rows),
            epochs=1,
            seed=0,
            dataloader_kwargs={"shuffle": False},
            temperature=self.settings.engine.temperature,
        )
        output = self.worker.update_actor(rows)
        (loss,) = tensordict_utils.get(output, "metrics")["loss"]
        return loss_of(float(loss), part), self.gradient_P

    def _keep_gradient(self, *_: Any) -> None:
        self.gradient_P = flat_gradient(self.worker.actor.engine.module)  # verl drops it after the optimiser's step
