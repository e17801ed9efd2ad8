"""A mini-batch as TRL's micro-batches: each rollout that has a gradient once, its copies beside it.

The loss is Σ coefficient · token loss as in repro.engine.update; coefficients are those of the whole mini-batch, so a
rollout that is not read keeps its place in the divisor, and the losses of the slices add up to the mini-batch's.
"""

from dataclasses import dataclass

import numpy as np
import torch

from repro.engine.update import UpdateSettings, with_gradient
from repro.methods.objectives.aggregate import token_coefficients
from repro.methods.rollouts import Rollouts
from repro.trl.batch import Batch


@dataclass
class Slice:
    """U distinct rollouts for one forward and backward pass, and the M selected copies of them.

    rows                             TRL's tensors of the U rollouts, U × P or U × T; None if there is nothing to read
    copy_of_M                        which of the U rollouts each copy is
    advantages_M                     times the sampler's weight
    mask_M_T, coefficient_M_T        which tokens enter the loss, and with which factor
    costs_U, paper_tokens, updates   for the ledger; `updates` is 1 in the last slice of a mini-batch
    idle                             there is no mini-batch: the optimiser must not move
    """

    rows: dict[str, torch.Tensor] | None
    copy_of_M: torch.Tensor | None = None
    advantages_M: torch.Tensor | None = None
    mask_M_T: torch.Tensor | None = None
    coefficient_M_T: torch.Tensor | None = None
    costs_U: np.ndarray | None = None
    paper_tokens: int = 0
    updates: int = 0
    idle: bool = False


def wanted_rows(parts: list[Rollouts], settings: UpdateSettings) -> np.ndarray:
    """The distinct rollouts, positions in the batch, that the mini-batches must read."""
    return np.unique(np.concatenate([part.row_N[_read(part, settings)] for part in parts]))


def _read(part: Rollouts, settings: UpdateSettings) -> np.ndarray:
    """wanted_M, without those of which a sampler left no token: they have no KL term either."""
    wanted_M = with_gradient(part, settings)
    return wanted_M[part.response_mask_N_T[wanted_M].any(1)]


def slices_of(
    batch: Batch, part: Rollouts | None, settings: UpdateSettings, count: int, *, trim: bool = True
) -> list[Slice]:
    """One mini-batch as `count` slices, its rollouts sorted by length; None: as many idle ones."""
    if part is None:
        return [Slice(None, idle=True)] * count
    how = settings.aggregation, settings.max_tokens, part.group_weight_N
    coefficients_M_T = token_coefficients(part.response_mask_N_T, *how)
    wanted_M = _read(part, settings)
    rows_U, place_M = np.unique(part.row_N[wanted_M], return_inverse=True)
    order = np.argsort(batch.costs_N[rows_U], kind="stable")
    return [
        _slice(batch, part, coefficients_M_T, wanted_M, rows_U, place_M, chunk, trim, last=place == count - 1)
        for place, chunk in enumerate(np.array_split(order, count))
    ]


def _slice(batch, part, coefficients_M_T, wanted_M, rows_U, place_M, chunk, trim, last) -> Slice:
    charged = {"paper_tokens": int(part.costs_N.sum()), "updates": 1} if last else {}
    if len(chunk) == 0:
        return Slice(None, costs_U=np.zeros(0, int), **charged)
    at_U = np.full(len(rows_U), -1)
    at_U[chunk] = np.arange(len(chunk))
    copies = np.flatnonzero(at_U[place_M] >= 0)
    members = wanted_M[copies]
    rows = batch.cut(rows_U[chunk], trim)
    width, device = rows["completion_ids"].shape[1], rows["completion_ids"].device
    weighted_M = (part.advantages_N * part.weights_N)[members]
    return Slice(
        rows,
        torch.as_tensor(at_U[place_M[copies]], device=device),
        torch.as_tensor(weighted_M, dtype=torch.float32, device=device),
        torch.as_tensor(part.response_mask_N_T[members, :width], device=device),
        torch.as_tensor(coefficients_M_T[members, :width], dtype=torch.float32, device=device),
        batch.costs_N[rows_U[chunk]],
        **charged,
    )
