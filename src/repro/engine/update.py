"""Policy updates on selected rollouts: mini-batches, slices of similar length, the arm's objective, AdamW.

The PPO ratio uses the log-probabilities kept at sampling time. Both passes run the same weights in the same precision
(they agree to rounding, tests/test_engine_generate.py), so a second scoring pass would gain nothing.

Only rollouts that have a gradient are read, each once: at kl = 0 a rollout whose advantage is zero, or of whose tokens
none was selected, adds nothing but its place in the divisor, and copies of a rollout share one pass.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from repro.engine.diverged import Diverged
from repro.engine.log_probabilities import Batch, log_probabilities, slices
from repro.methods.method import Method
from repro.methods.objectives.aggregate import Aggregation, TokenLoss, token_coefficients
from repro.methods.rollouts import Rollouts
from repro.policy.flops import FlopCounter
from repro.protocol.ledger import Ledger
from repro.protocol.log import UPDATED

Objective = Callable[..., TokenLoss]


@dataclass(frozen=True)
class UpdateSettings:
    """Parameters of the update apart from the objective: the arm's aggregation, and `engine` in params.yaml.
    `every_row`: read also rollouts whose advantage is zero, for an objective that gives them a gradient."""

    aggregation: Aggregation
    temperature: float
    kl: float
    gradient_clip: float
    slice_tokens: int
    max_tokens: int  # maximum response length
    every_row: bool = False


# Log-probabilities (new, old) at which an objective is tried: log-ratios from -5 to 5, tokens from certain to unlikely.
TRIED_N_T = torch.tensor(
    [
        [(-0.1, -0.3), (-1.0, -1.0), (-3.0, -1.0)],
        [(-2.0, -1.9), (-0.5, -2.5), (-1.0, -0.1)],
        [(-0.001, -5.001), (-0.001, -0.001), (-5.001, -0.001)],
        [(-8.0, -13.0), (-8.0, -8.0), (-8.0, -3.0)],
        [(-20.0, -25.0), (-20.0, -20.0), (-20.0, -15.0)],
        [(-0.001, -0.3), (-8.0, -7.5), (-20.0, -20.5)],
    ]
)


def silent_without_advantage(method: Method) -> bool:
    """Whether a rollout with advantage 0 has no gradient under the method's objective at any point of `TRIED_N_T`;
    MethodError if the objective fails there. A gradient that lies between these points alone is not noticed."""
    logprob_N_T, old_N_T = TRIED_N_T.unbind(-1)
    logprob_N_T, n = logprob_N_T.clone().requires_grad_(), len(logprob_N_T)
    mask_N_T = torch.ones(logprob_N_T.shape, dtype=torch.bool)
    loss_N_T, _ = method.token_loss(0, logprob_N_T, old_N_T, torch.zeros(n), mask_N_T)
    if not loss_N_T.requires_grad:
        return True
    [gradient_N_T] = torch.autograd.grad(loss_N_T.sum(), [logprob_N_T])
    return not gradient_N_T.any()


def with_gradient(rollouts: Rollouts, settings: UpdateSettings) -> np.ndarray:
    """wanted_M: the rollouts of a mini-batch that must be read."""
    if settings.kl > 0 or settings.every_row:
        return np.arange(len(rollouts))
    return np.flatnonzero((rollouts.advantages_N * rollouts.weights_N != 0) & rollouts.response_mask_N_T.any(1))


def accumulate_gradients(
    model: Any,
    objective: Objective,
    batch: Batch,
    rollouts: Rollouts,
    pad: int,
    settings: UpdateSettings,
    reference: Any | None = None,
) -> dict[str, float]:
    """Add the gradient of one mini-batch's loss to `model`; returns sums for the metrics.

    Loss: Σ coefficient · (token loss + kl · k3), k3 = π_ref/π − 1 − log(π_ref/π) (Schulman, 2020). The weight of a
    rollout multiplies its advantage, not the KL term.
    """
    device = batch.responses.ids_N_T.device
    how = settings.aggregation, settings.max_tokens, rollouts.group_weight_N
    coefficients_M_T = token_coefficients(rollouts.response_mask_N_T, *how)
    weighted_M = rollouts.advantages_N * rollouts.weights_N
    wanted_M = with_gradient(rollouts, settings)
    rows_U, first_U, place_M = np.unique(rollouts.row_N[wanted_M], return_index=True, return_inverse=True)
    costs_U = rollouts.costs_N[wanted_M][first_U]
    sums = {"loss": 0.0, "clipped": 0.0, "tokens": float(rollouts.response_mask_N_T.sum()), "rows": len(rows_U)}
    for part in slices(model, costs_U, settings.slice_tokens):
        at_U = np.full(len(rows_U), -1)
        at_U[part] = np.arange(len(part))
        copies = np.flatnonzero(at_U[place_M] >= 0)
        members, copy_of_M = wanted_M[copies], torch.as_tensor(at_U[place_M[copies]], device=device)
        logprob_M_T = log_probabilities(model, batch, rows_U[part], pad, settings.temperature)[copy_of_M]
        width = logprob_M_T.shape[1]
        old_M_T = batch.responses.logprob_N_T[torch.as_tensor(rollouts.row_N[members], device=device)][:, :width]
        mask_M_T = torch.as_tensor(rollouts.response_mask_N_T[members][:, :width], device=device)
        advantages_M = torch.as_tensor(weighted_M[members], dtype=torch.float32, device=device)
        coefficient_M_T = torch.as_tensor(coefficients_M_T[members][:, :width], dtype=torch.float32, device=device)
        loss_M_T, clipped_M_T = objective(logprob_M_T, old_M_T, advantages_M, mask_M_T)
        if settings.kl > 0:
            with torch.no_grad():
                reference_U_T = log_probabilities(reference, batch, rows_U[part], pad, settings.temperature)
            gap_M_T = (reference_U_T[copy_of_M] - logprob_M_T) * mask_M_T
            loss_M_T = loss_M_T + settings.kl * (gap_M_T.exp() - 1 - gap_M_T)
        loss = (loss_M_T * coefficient_M_T).sum()
        loss.backward()
        sums["loss"] += float(loss.detach())
        sums["clipped"] += int(clipped_M_T.sum())
    for parameter in model.parameters():  # AdamW skips a parameter without a gradient, but moves on at a zero one
        if parameter.requires_grad and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return sums


def computed_costs(rollouts: Rollouts, settings: UpdateSettings) -> np.ndarray:
    """costs_U: prompt + response tokens of each distinct rollout that must be read."""
    wanted_M = with_gradient(rollouts, settings)
    _, first_U = np.unique(rollouts.row_N[wanted_M], return_index=True)
    return rollouts.costs_N[wanted_M][first_U]


def run_updates(
    model: Any,
    optimiser: torch.optim.Optimizer,
    objective: Objective,
    batch: Batch,
    parts: list[Rollouts],
    pad: int,
    settings: UpdateSettings,
    ledger: Ledger,
    flops: FlopCounter,
    reference: Any | None = None,
) -> dict[str, float]:
    """One optimiser step on each of `parts`, charged to `ledger`; `UPDATED`, means over the steps.

    Raises Diverged, before the weights change, if a gradient is not finite.
    """
    sums: dict[str, float] = defaultdict(float)
    for part in parts:
        optimiser.zero_grad(set_to_none=True)
        for name, value in accumulate_gradients(model, objective, batch, part, pad, settings, reference).items():
            sums[name] += value
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), settings.gradient_clip))
        finite = math.isfinite(norm)
        computed_U = computed_costs(part, settings)
        ledger.charge_update(flops, computed_U, steps=int(finite), paper_tokens=part.costs_N.sum())
        if settings.kl > 0:
            ledger.charge_scoring(flops, computed_U)
        if not finite:
            raise Diverged(f"a gradient norm of {norm}: the run stops training here")
        sums["gradient_norm"] += norm
        sums["gradient_clipped"] += norm > settings.gradient_clip
        optimiser.step()
    values = (
        sums["loss"] / len(parts),
        sums["gradient_norm"] / len(parts),
        sums["gradient_clipped"] / len(parts),
        sums["clipped"] / max(1.0, sums["tokens"]),
        sums["rows"],
        sums["tokens"],
    )
    return dict(zip(UPDATED, values, strict=True))
