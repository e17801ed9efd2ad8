"""Log-probabilities of responses under a policy, with gradients: packed where the lean forward pass fits the model."""

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from repro.engine.generate import Responses
from repro.policy.lean import Lean, lean_of
from repro.policy.shared import response_logits

PACKED_TOKENS = 1024  # per packed slice: activations that stay in the processor's cache
PAD_RATIO, PAD_TOKENS = 1.2, 4  # rows whose lengths differ by less are padded to the same length


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


def slices(model: Any, lengths_M: np.ndarray, slice_tokens: int) -> list[np.ndarray]:
    """Rows, sorted by length, in parts of a size that suits the model: one forward and backward pass each. Those of a
    model with adapters stay in order, in which responses to a prompt stand together."""
    if (lean := lean_of(model)) is None:
        return slices_of_like_length(lengths_M, slice_tokens)
    adapted = lean.low is not None
    order = np.arange(len(lengths_M)) if adapted else np.argsort(lengths_M, kind="stable")
    ends = np.cumsum(lengths_M[order])
    parts = max(1, round(float(ends[-1]) / (slice_tokens if adapted else PACKED_TOKENS))) if len(ends) else 0
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, parts) / parts) if parts else []
    return [part for part in np.split(order, cuts) if len(part)]


def log_probabilities(model: Any, batch: Batch, rows: np.ndarray, pad: int, temperature: float) -> torch.Tensor:
    """logprob_M_T of the response tokens of `rows`, T the longest response among them; 0 off the mask."""
    lean = lean_of(model)
    if lean is not None and lean.low is not None:
        return _shared(lean, batch, rows, temperature)
    if lean is not None:
        return _packed(lean, batch, rows, pad, temperature)
    logprob_M_T, _ = response_log_probabilities(model, batch, rows, pad, temperature)
    return logprob_M_T.where(batch.responses.mask_N_T[torch.as_tensor(rows)][:, : logprob_M_T.shape[1]], 0.0)


def _shared(lean: Lean, batch: Batch, rows: np.ndarray, temperature: float) -> torch.Tensor:
    """Neighbouring rows with the same prompt read it once."""
    responses, groups, trunk = batch.responses, [], []
    mask_M_T = responses.mask_N_T[torch.as_tensor(rows)]
    ids_M_T = responses.ids_N_T[torch.as_tensor(rows)].cpu()
    ids_M = [ids_T[mask_T] for ids_T, mask_T in zip(ids_M_T, mask_M_T.cpu(), strict=True)]
    for prompt, same in groupby(range(len(rows)), key=lambda member: batch.prompts_N[rows[member]]):
        members = list(same)
        groups.append((prompt, [ids_M[member] for member in members]))
        if responses.entering_N_T_D is not None:
            trunk += [responses.entering_N_T_D[rows[member]] for member in members]
    logits_K_V, target_K = response_logits(lean, groups, trunk or None)
    logprob_K = -F.cross_entropy(logits_K_V / temperature, target_K, reduction="none")
    mask_M_T = mask_M_T[:, : int(mask_M_T.sum(1).max())]
    return logprob_K.new_zeros(mask_M_T.shape).masked_scatter(mask_M_T, logprob_K)


def _packed(lean: Lean, batch: Batch, rows: np.ndarray, pad: int, temperature: float) -> torch.Tensor:
    """All rows go through the layers as one list of tokens. Rows of like length form a block, padded to its longest,
    for which attention is called once. A response's last token predicts nothing and is not read."""
    order = np.argsort(batch.costs_N[torch.as_tensor(rows)].numpy(), kind="stable")
    rows_M = torch.as_tensor(rows[order])
    prompt_M, read_M = batch.responses.prompt_tokens_N[rows_M], batch.costs_N[rows_M] - 1
    ids, positions, targets, predicts, shapes = [], [], [], [], []
    for block in _blocks(read_M.numpy()):
        length = int(read_M[block.stop - 1])
        column_L = torch.arange(length)
        ids_R_L1 = batch.ids_N_L[rows_M[block], : length + 1]
        inside_R_L = column_L < read_M[block, None]
        ids.append(ids_R_L1[:, :-1].masked_fill(~inside_R_L, pad).flatten())
        positions.append(column_L.repeat(len(ids_R_L1)))
        predicts.append((inside_R_L & (column_L >= prompt_M[block, None] - 1)).flatten())
        targets.append(ids_R_L1[:, 1:].flatten())
        shapes.append((len(ids_R_L1), length))
    lean.reach(max(length for _, length in shapes))
    x_S_D = lean.run(lean.weights(), torch.cat(ids), torch.cat(positions), lean.causal(shapes))
    predict_K = torch.cat(predicts).nonzero()[:, 0]
    logits_K_V = lean.logits(x_S_D[predict_K]) / temperature
    logprob_K = -F.cross_entropy(logits_K_V, torch.cat(targets)[predict_K], reduction="none")
    mask_M_T = batch.responses.mask_N_T[rows_M]
    mask_M_T = mask_M_T[:, : int(mask_M_T.sum(1).max())]
    sorted_M_T = torch.zeros(mask_M_T.shape).masked_scatter(mask_M_T, logprob_K)
    return sorted_M_T[torch.as_tensor(np.argsort(order))]


def _blocks(lengths_M: np.ndarray) -> list[slice]:
    """Runs of ascending lengths, the longest of each at most PAD_RATIO times or PAD_TOKENS above the shortest."""
    cuts, shortest = [0], lengths_M[0]
    for index, length in enumerate(lengths_M):
        if length > max(PAD_RATIO * shortest, shortest + PAD_TOKENS):
            cuts.append(index)
            shortest = length
    return [slice(start, end) for start, end in zip(cuts, [*cuts[1:], len(lengths_M)], strict=True)]


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
