"""A mini-batch as TRL's micro-batches: each rollout that has a gradient once, its copies next to it.

The arm's loss is Σ coefficient · token loss as in repro.engine.update; coefficients are those of the whole mini-batch,
so a rollout that is not read keeps its place in the divisor, and the losses of the slices add up to the mini-batch's.
TRL's own loss divides by numbers that are set to the same end. With several processes each reads its share of a slice.
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
    costs_U, paper_tokens, updates   for the ledger, of all processes; `updates` is 1 in a mini-batch's last slice
    idle                             there is no mini-batch: the optimiser must not move
    passes, items                    for TRL's loss: by what its mean over these M is divided further, and its
                                     `num_items_in_batch`
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
    passes: float = 1.0
    items: float = 1.0


@dataclass(frozen=True)
class Cut:
    """How a mini-batch is cut: into `count` slices for each of `ranks` processes, of which this is `rank`.

    trim             leave out columns without a token
    tokens           for TRL's loss: the mean tokens of a mini-batch, times `steps_per_generation`; None for the arm's
    in_order         keep TRL's micro-batches: every row, in the order in which it was shuffled
    live             of the batch's rows, the share that had a token to learn from: TRL's means count the others too
    """

    count: int
    trim: bool = True
    ranks: int = 1
    rank: int = 0
    tokens: float | None = None
    in_order: bool = False
    live: float = 1.0


def wanted_rows(parts: list[Rollouts], settings: UpdateSettings) -> np.ndarray:
    """The distinct rollouts, positions in the batch, that the mini-batches must read."""
    return np.unique(np.concatenate([part.row_N[_read(part, settings)] for part in parts]))


def _read(part: Rollouts, settings: UpdateSettings) -> np.ndarray:
    """wanted_M, without those of which a sampler left no token: they have no KL term either."""
    wanted_M = with_gradient(part, settings)
    return wanted_M[part.response_mask_N_T[wanted_M].any(1)]


def slices_of(batch: Batch, part: Rollouts | None, settings: UpdateSettings, cut: Cut) -> list[Slice]:
    """One mini-batch as `cut.count` slices; None: as many idle ones."""
    if part is None:
        return [Slice(None, idle=True)] * cut.count
    how = part.response_mask_N_T, settings.aggregation, settings.max_tokens, part.group_weight_N
    coefficients_M_T = token_coefficients(*how) if cut.tokens is None else None
    chunks = _chunks(batch, part, _read(part, settings), cut)
    chunks = chunks[::-1] if cut.ranks > 1 else chunks  # the last pass, in which processes add up, has rows if any has
    slices = [
        _slice(batch, part, coefficients_M_T, chunks[at * cut.ranks : (at + 1) * cut.ranks], cut)
        for at in range(cut.count)
    ]
    slices[-1].updates, slices[-1].paper_tokens = 1, int(part.costs_N.sum())
    return slices


def _chunks(batch: Batch, part: Rollouts, wanted_M: np.ndarray, cut: Cut) -> list[tuple[np.ndarray, np.ndarray]]:
    """(rows, copies) of each pass, positions in the batch and in the mini-batch: rows of like length together."""
    passes = cut.count * cut.ranks
    if cut.in_order:
        return [(np.unique(part.row_N[chunk]), chunk) for chunk in np.array_split(np.arange(len(part)), passes)]
    rows_U, place_M = np.unique(part.row_N[wanted_M], return_inverse=True)
    order = np.argsort(batch.costs_N[rows_U], kind="stable")
    return [(rows_U[chunk], wanted_M[np.isin(place_M, chunk)]) for chunk in np.array_split(order, passes)]


def _slice(batch: Batch, part: Rollouts, coefficients_M_T, chunks: list, cut: Cut) -> Slice:
    """This process's part of one pass. Masked copies fill it up to the most that any process has, since TRL gathers
    one number for each; a process that has none reads a row for its masked copies."""
    costs_U = batch.costs_N[np.concatenate([rows for rows, _ in chunks])]
    most = max(len(members) for _, members in chunks)
    if most == 0:
        return Slice(None, costs_U=costs_U)
    rows_U, members = chunks[cut.rank]
    rows_U, fill = rows_U if len(rows_U) else part.row_N[:1], [(0, most - len(members))]
    order = np.argsort(rows_U, kind="stable")
    copy_of_M = order[np.searchsorted(rows_U, part.row_N[members], sorter=order)]
    rows = batch.cut(rows_U, cut.trim)
    width, device = rows["completion_ids"].shape[1], rows["completion_ids"].device
    passes = len(part) / cut.live / (cut.ranks * most)

    def tensor(values: np.ndarray, kind: torch.dtype) -> torch.Tensor:
        padded = np.pad(values, fill + [(0, 0)] * (values.ndim - 1))
        return torch.as_tensor(padded[:, :width] if padded.ndim > 1 else padded, dtype=kind, device=device)

    return Slice(
        rows,
        tensor(copy_of_M, torch.long),
        tensor((part.advantages_N * part.weights_N)[members], torch.float32),
        tensor(part.response_mask_N_T[members], torch.bool),
        None if coefficients_M_T is None else tensor(coefficients_M_T[members], torch.float32),
        costs_U,
        passes=passes,
        items=(cut.tokens or 0.0) / passes,
    )
