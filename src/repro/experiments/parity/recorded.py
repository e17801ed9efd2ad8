"""One training step of the embedded engine: groups, verdicts, selection, loss, gradients and change of the weights."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from repro.arms import build
from repro.engine.log_probabilities import Batch
from repro.engine.run import Run, make_trainer
from repro.engine.train import Trainer
from repro.methods.rollouts import Rollouts
from repro.settings import Settings


@dataclass(frozen=True)
class Recorded:
    """The first batch of one run: N responses in groups, of which the samplers left `selected`; None, and nothing after
    it, where there was no signal. No responses where a filter left no group.

    plan: (query, group size) of the groups at the start of the first step, before a filter. query_N, group_N,
    verdicts_N, finished_N as in `Groups`; prompts_N and responses_N ragged token ids. parts: rows of `selected`, one
    array per mini-batch. loss: mean over mini-batches. gradients_M_P: of each mini-batch as the optimiser receives it,
    clipped. move_P: the change of the weights in the step. adam: AdamW's options.
    """

    arm: str
    plan: list[tuple[int, int]]
    query_N: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    group_N: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    prompts_N: list[list[int]] = field(default_factory=list)
    responses_N: list[torch.Tensor] = field(default_factory=list)
    verdicts_N: np.ndarray = field(default_factory=lambda: np.zeros(0))
    finished_N: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    selected: Rollouts | None = None
    parts: list[np.ndarray] = field(default_factory=list)
    loss: float = float("nan")
    gradients_M_P: torch.Tensor | None = None
    move_P: torch.Tensor | None = None
    adam: dict[str, Any] = field(default_factory=dict)


def record(arm: str, seed: int, settings: Settings, policy: Path, profiles: Path | None) -> Recorded:
    """The first step of `arm` with `seed`. `profiles`: as in `Run`."""
    method = build(arm, settings.arm(arm))
    trainer = make_trainer(Run(arm, seed, method, settings, policy, None, Path(), "", profiles))
    groups, _ = trainer.collect(0)
    rollouts = trainer._rollouts(groups) if groups is not None else None
    selected = None if rollouts is None else trainer.select(0, rollouts, trainer.done(0))
    trainer.make_plan(0, trainer.known)  # from its beginning
    plan = [(group.query, group.size) for group in trainer.plan.fill_step(settings.engine_of(arm).rollouts_per_step)]
    if groups is None:
        return Recorded(arm, plan)
    batch = Batch([trainer.prompts[query] for query in groups.query_N], groups.responses)
    lengths_N = groups.responses.mask_N_T.sum(1).tolist()
    drawn = Recorded(
        arm=arm,
        plan=plan,
        query_N=groups.query_N,
        group_N=groups.group_N,
        prompts_N=batch.prompts_N,
        responses_N=[ids[:length].clone() for ids, length in zip(groups.responses.ids_N_T, lengths_N, strict=True)],
        verdicts_N=groups.verdicts_N,
        finished_N=groups.responses.finished_N.numpy(),
    )
    return drawn if selected is None else _trained(drawn, trainer, batch, selected)


def _trained(drawn: Recorded, trainer: Trainer, batch: Batch, selected: Rollouts) -> Recorded:
    count = selected.minibatches or trainer.engine.rollouts_per_step // trainer.engine.minibatch
    order = trainer.rng(0, "shuffle").permutation(len(selected))
    gradients, before_P = [], flat(trainer.model)
    trainer.optimiser.register_step_pre_hook(lambda *_: gradients.append(flat_gradient(trainer.model)))
    loss = trainer._update(0, batch, selected)["loss"]
    return replace(
        drawn,
        selected=selected,
        parts=[rows for rows in np.array_split(order, count) if len(rows)],
        loss=loss,
        gradients_M_P=torch.stack(gradients),
        move_P=flat(trainer.model) - before_P,
        adam={name: trainer.optimiser.defaults[name] for name in ("lr", "betas", "eps", "weight_decay")},
    )


def flat(model: Any) -> torch.Tensor:
    """weights_P: all parameters concatenated, whole where FSDP has split them."""
    return _joined([parameter.detach() for parameter in model.parameters()])


def flat_gradient(model: Any) -> torch.Tensor:
    """gradient_P: the same of their gradients."""
    return _joined([parameter.grad for parameter in model.parameters()])


def _joined(tensors: list[torch.Tensor]) -> torch.Tensor:
    whole = [tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor for tensor in tensors]
    return torch.cat([tensor.flatten() for tensor in whole]).clone()
