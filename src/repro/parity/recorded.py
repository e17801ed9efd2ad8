"""One batch as the embedded engine sees it: its groups, verdicts and selection, its loss and gradient."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from repro.engine.embedded.runs import Run, make_trainer
from repro.engine.embedded.train import Trainer
from repro.engine.embedded.update import Batch, accumulate_gradients
from repro.rollouts import Rollouts
from repro.settings import Settings


@dataclass(frozen=True)
class Recorded:
    """The first batch of one run: N responses in groups, of which the samplers left `selected`.

    plan: (query, group size) of the groups with which the first step begins, before a filter. query_N, group_N,
    verdicts_N, finished_N as in `Groups`; prompts_N and responses_N ragged token ids. parts: rows of `selected`, one
    array per mini-batch. losses_M and gradients_M_P: of each mini-batch, where the policy is `moved`.
    """

    arm: str
    plan: list[tuple[int, int]]
    query_N: np.ndarray
    group_N: np.ndarray
    prompts_N: list[list[int]]
    responses_N: list[torch.Tensor]
    verdicts_N: np.ndarray
    finished_N: np.ndarray
    selected: Rollouts
    parts: list[np.ndarray]
    losses_M: list[float]
    gradients_M_P: torch.Tensor


def moved_weights(arm: str, seed: int, settings: Settings, policy: Path) -> dict[str, torch.Tensor]:
    """The policy's weights after one step of `arm`. Batches are drawn from the base policy and differentiated here,
    so that ratios differ from 1 and the clip has something to do."""
    trainer = make_trainer(_run(arm, seed, settings, policy, None))
    trainer.step(0)
    return {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


def record(
    arm: str, seed: int, settings: Settings, policy: Path, profiles: Path | None, moved: dict[str, torch.Tensor]
) -> Recorded:
    """The first batch of `arm` with `seed`. `profiles`: as in `Run`. ValueError where it has no signal to train on."""
    trainer = make_trainer(_run(arm, seed, settings, policy, profiles))
    groups, _ = trainer.collect(0)
    rollouts = trainer._rollouts(groups) if groups is not None else None
    selected = trainer._select(0, rollouts) if rollouts is not None else None
    if selected is None:
        raise ValueError(
            f"parity: the first batch of {arm} with seed {seed} has no signal; take another parity.batch_seed"
        )
    batch = Batch([trainer.prompts[query] for query in groups.query_N], groups.responses)
    count = selected.minibatches or settings.engine.rollouts_per_step // settings.engine.minibatch
    order = trainer.rng(0, "shuffle").permutation(len(selected))
    parts = [rows for rows in np.array_split(order, count) if len(rows)]
    trainer.model.load_state_dict(moved)
    outcomes = [_differentiate(trainer, batch, selected.take(rows)) for rows in parts]
    trainer.make_plan(0, trainer.known)  # from its beginning
    lengths_N = groups.responses.mask_N_T.sum(1).tolist()
    return Recorded(
        arm=arm,
        plan=[(group.query, group.size) for group in trainer.plan.fill_step(settings.engine.rollouts_per_step)],
        query_N=groups.query_N,
        group_N=groups.group_N,
        prompts_N=batch.prompts_N,
        responses_N=[ids[:length].clone() for ids, length in zip(groups.responses.ids_N_T, lengths_N, strict=True)],
        verdicts_N=groups.verdicts_N,
        finished_N=groups.responses.finished_N.numpy(),
        selected=selected,
        parts=parts,
        losses_M=[loss for loss, _ in outcomes],
        gradients_M_P=torch.stack([gradient for _, gradient in outcomes]),
    )


def _run(arm: str, seed: int, settings: Settings, policy: Path, profiles: Path | None) -> Run:
    return Run(arm, seed, settings, policy, None, Path(), "", profiles)


def _differentiate(trainer: Trainer, batch: Batch, part: Rollouts) -> tuple[float, torch.Tensor]:
    """(loss, gradient_P of all parameters in the model's order, before clipping) of one mini-batch."""
    trainer.model.zero_grad()
    sums = accumulate_gradients(
        trainer.model,
        trainer.method.objective,
        batch,
        part,
        trainer.tokenizer.pad_token_id,
        trainer.update_settings,
        trainer.reference,
    )
    return sums["loss"], flat_gradient(trainer.model)


def flat_gradient(model: Any) -> torch.Tensor:
    """gradient_P: all parameters' one after the other, whole where FSDP has split them."""
    gradients = [parameter.grad for parameter in model.parameters()]
    whole = [gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient for gradient in gradients]
    return torch.cat([gradient.flatten() for gradient in whole]).clone()
