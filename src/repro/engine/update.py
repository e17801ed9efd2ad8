"""Policy updates on selected rollouts: mini-batches, slices of similar length, the arm's objective, AdamW.

The PPO ratio uses the log-probabilities kept at sampling time. Both passes run the same weights in the same precision
(they agree to rounding, tests/test_engine_generate.py), so a second scoring pass would gain nothing.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from repro.engine.generate import Responses
from repro.engine.ledger import Ledger
from repro.methods.objectives.aggregate import Aggregation, TokenLoss, token_coefficients
from repro.methods.rollouts import Rollouts
from repro.policy.flops import FlopCounter

Objective = Callable[..., TokenLoss]

# Metrics of an update; NaN in a step that was skipped because its batch had no signal.
UPDATED = ("loss", "gradient_norm", "gradient_clipped", "clipped", "padding", "loss_tokens")


@dataclass(frozen=True)
class UpdateSettings:
    """Parameters of the update beside the objective: the arm's aggregation, and `engine` in params.yaml."""

    aggregation: Aggregation
    temperature: float
    kl: float
    gradient_clip: float
    slice_tokens: int
    max_tokens: int  # maximum response length


class Diverged(ArithmeticError):
    """A gradient that is not finite: the update was not made, and the run cannot continue."""


@dataclass
class Batch:
    """The rollouts of one step: prompts_N (token ids, ragged) and the responses to them."""

    prompts_N: list[list[int]]
    responses: Responses

    @cached_property
    def costs_N(self) -> torch.Tensor:
        """Prompt + response tokens."""
        return self.responses.prompt_tokens_N + self.responses.mask_N_T.sum(1)

    @cached_property
    def ids_N_L(self) -> torch.Tensor:
        """Prompt and response concatenated; entries to the right of them are arbitrary."""
        responses, width = self.responses, max(map(len, self.prompts_N))
        prompt_N_P = torch.tensor([prompt + [0] * (width - len(prompt)) for prompt in self.prompts_N])
        apart_N_L = torch.cat([prompt_N_P.to(responses.ids_N_T.device), responses.ids_N_T], 1)
        column_L = torch.arange(apart_N_L.shape[1], device=apart_N_L.device)
        shift_N_L = (width - responses.prompt_tokens_N[:, None]) * (column_L >= responses.prompt_tokens_N[:, None])
        return apart_N_L.gather(1, (column_L + shift_N_L).clamp(max=len(column_L) - 1))


def response_log_probabilities(
    model: Any, batch: Batch, rows: np.ndarray, pad: int, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(logprob_M_T of the response tokens, log_p_M_T_V over the vocabulary), T the longest response among `rows`.

    Padding is on the right, so causal attention masks it. Logits are computed from the end of the shortest prompt on,
    the first position that predicts a response token.
    """
    rows_M = torch.as_tensor(rows, device=batch.ids_N_L.device)
    prompt_M, costs_M = batch.responses.prompt_tokens_N[rows_M], batch.costs_N[rows_M]
    length, first, width = int(costs_M.max()), int(prompt_M.min()) - 1, int((costs_M - prompt_M).max())
    beyond_M_L = torch.arange(length, device=rows_M.device) >= costs_M[:, None]
    ids_M_L = batch.ids_N_L[rows_M, :length].masked_fill(beyond_M_L, pad)
    logits = model(input_ids=ids_M_L, use_cache=False, logits_to_keep=length - first).logits
    predict_M_T = prompt_M[:, None] - 1 - first + torch.arange(width, device=rows_M.device)
    predict_M_T_1 = predict_M_T.clamp(max=logits.shape[1] - 1)[:, :, None]
    picked_M_T_V = logits.gather(1, predict_M_T_1.expand(-1, -1, logits.shape[-1])).float() / temperature
    log_p_M_T_V = torch.log_softmax(picked_M_T_V, -1)
    tokens_M_T_1 = batch.responses.ids_N_T[rows_M, :width, None]
    return log_p_M_T_V.gather(2, tokens_M_T_1)[:, :, 0], log_p_M_T_V


def slices_of_like_length(lengths_M: np.ndarray, slice_tokens: int) -> list[np.ndarray]:
    """Split rows, sorted by length, so that no slice has more than `slice_tokens` tokens with its padding, and its
    longest row is at most a quarter (or 8 tokens) longer than its shortest."""
    order = np.argsort(lengths_M, kind="stable")
    slices, start = [], 0
    for end in range(1, len(order) + 1):
        if end < len(order):
            longest, shortest = lengths_M[order[end]], lengths_M[order[start]]
            fits = longest * (end + 1 - start) <= slice_tokens and longest <= max(1.25 * shortest, shortest + 8)
            if fits:
                continue
        slices.append(order[start:end])
        start = end
    return slices


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
    coefficients_M_T = token_coefficients(rollouts.response_mask_N_T, settings.aggregation, settings.max_tokens)
    weighted_M = rollouts.advantages_N * rollouts.weights_N
    sums = dict.fromkeys(("loss", "clipped", "tokens", "padded"), 0.0)
    for part in slices_of_like_length(rollouts.costs_N, settings.slice_tokens):
        rows = rollouts.row_N[part]
        logprob_M_T, _ = response_log_probabilities(model, batch, rows, pad, settings.temperature)
        width = logprob_M_T.shape[1]
        old_M_T = batch.responses.logprob_N_T[torch.as_tensor(rows)][:, :width]
        mask_M_T = torch.as_tensor(rollouts.response_mask_N_T[part][:, :width], device=device)
        advantages_M = torch.as_tensor(weighted_M[part], dtype=torch.float32, device=device)
        coefficient_M_T = torch.as_tensor(coefficients_M_T[part][:, :width], dtype=torch.float32, device=device)
        loss_M_T, clipped_M_T = objective(logprob_M_T, old_M_T, advantages_M, mask_M_T)
        if settings.kl > 0:
            with torch.no_grad():
                reference_M_T, _ = response_log_probabilities(reference, batch, rows, pad, settings.temperature)
            gap_M_T = (reference_M_T - logprob_M_T) * mask_M_T
            loss_M_T = loss_M_T + settings.kl * (gap_M_T.exp() - 1 - gap_M_T)
        loss = (loss_M_T * coefficient_M_T).sum()
        loss.backward()
        sums["loss"] += float(loss.detach())
        sums["clipped"] += int(clipped_M_T.sum())
        sums["tokens"] += int(mask_M_T.sum())
        sums["padded"] += len(part) * int(rollouts.costs_N[part].max())
    return sums


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
        ledger.charge_update(flops, part.costs_N, steps=int(finite))
        if settings.kl > 0:
            ledger.charge_scoring(flops, part.costs_N)
        if not finite:
            raise Diverged(f"a gradient norm of {norm}: the run stops training here")
        sums["gradient_norm"] += norm
        sums["gradient_clipped"] += norm > settings.gradient_clip
        optimiser.step()
    cost = sum(float(part.costs_N.sum()) for part in parts)
    values = (
        sums["loss"] / len(parts),
        sums["gradient_norm"] / len(parts),
        sums["gradient_clipped"] / len(parts),
        sums["clipped"] / max(1.0, sums["tokens"]),
        1.0 - cost / sums["padded"],
        sums["tokens"],
    )
    return dict(zip(UPDATED, values, strict=True))
