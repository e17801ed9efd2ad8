"""Decoders: the logits of the next token of every row of a batch. The sampling loop is in repro.engine.generate.

prefill(ids_Q_P, lengths_Q) → logits_Q_V after prompts padded on the left; spread(query_N, room) makes a row for every
response, with room for its tokens; step(token_B) → logits_B_V after one more token in every row; keep(count, gaps,
movers) drops the rows that have ended: the rows `movers` move to the places `gaps`, and the first `count` stay.
"""

from typing import Any

import torch
from torch.nn import functional as F
from transformers.cache_utils import Cache, DynamicLayer

from repro.engine.lean import Lean, lean_of


def decoder_of(model: Any) -> "LeanDecoder | AnyDecoder":
    """The fastest decoder that fits the model."""
    lean = lean_of(model)
    return LeanDecoder(lean) if lean else AnyDecoder(model)


class LeanDecoder:
    """On a static cache of keys and values, state_LAYER_2_C_B_HW, column by column: what a new token adds is written in
    one piece. All rows are at the same column, since prompts are padded on the left."""

    def __init__(self, lean: Lean):
        self.lean, self.weights, self.size = lean, lean.weights(), lean.heads * lean.width

    def prefill(self, ids_Q_P: torch.Tensor, lengths_Q: torch.Tensor) -> torch.Tensor:
        rows, self.end = ids_Q_P.shape
        self.lengths_B = lengths_Q
        self.state = torch.empty(len(self.weights), 2, self.end, rows, self.size)
        column_P = torch.arange(self.end)
        hidden_Q_P = column_P < (self.end - lengths_Q)[:, None]
        self.hidden_B_1_C = torch.zeros(rows, 1, self.end).masked_fill_(hidden_Q_P[:, None], -torch.inf)
        later_P_P = torch.full((self.end, self.end), -torch.inf).triu(1)
        # Finite, since a column of padding attends to nothing and its softmax would be NaN.
        mask_Q_1_P_P = (self.hidden_B_1_C + later_P_P).clamp(min=torch.finfo(torch.float32).min)[:, None]
        position_Q_P = (column_P - (self.end - lengths_Q)[:, None]).clamp(min=0)

        def attend(layer: int, qk_S_2HW: torch.Tensor, v_S_HW: torch.Tensor) -> torch.Tensor:
            q, k, v = (z.unflatten(0, (rows, -1)) for z in (*qk_S_2HW.chunk(2, -1), v_S_HW))
            self.state[layer, 0], self.state[layer, 1] = k.transpose(0, 1), v.transpose(0, 1)
            q, k, v = (z.unflatten(-1, (self.lean.heads, -1)).transpose(1, 2) for z in (q, k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask_Q_1_P_P)
            return mixed.transpose(1, 2).reshape(-1, self.size)

        x_S_D = self.lean.run(self.weights, ids_Q_P.flatten(), position_Q_P.flatten(), attend)
        return self.lean.logits(x_S_D.unflatten(0, (rows, -1))[:, -1])

    def spread(self, query_N: torch.Tensor, room: int) -> None:
        prompts, columns = self.state, self.end + room
        self.state = prompts.new_empty(*prompts.shape[:2], columns, len(query_N), self.size)
        self.state[:, :, : self.end] = prompts[:, :, :, query_N]
        self.hidden_B_1_C = F.pad(self.hidden_B_1_C, (0, room))[query_N]
        self.lengths_B = self.lengths_B[query_N]

    def step(self, token_B: torch.Tensor) -> torch.Tensor:
        """One product for every row and head, G = B · H of them: in this layout they lie a constant distance apart, so
        the batched product needs no copy."""
        column, rows, heads, width = self.end, len(token_B), self.lean.heads, self.lean.width
        self.end += 1

        def attend(layer: int, qk_B_2HW: torch.Tensor, v_B_HW: torch.Tensor) -> torch.Tensor:
            keys_C_B_HW, values_C_B_HW = self.state[layer, :, : self.end]
            q_B_HW, keys_C_B_HW[column] = qk_B_2HW.chunk(2, -1)
            values_C_B_HW[column] = v_B_HW
            keys_C_G_W, values_C_G_W = (
                z.unflatten(-1, (heads, -1)).flatten(1, 2) for z in (keys_C_B_HW, values_C_B_HW)
            )
            score_G_1_C = torch.bmm(q_B_HW.reshape(-1, 1, width), keys_C_G_W.permute(1, 2, 0))
            score_B_H_C = score_G_1_C.view(rows, heads, -1).mul_(width**-0.5).add_(self.hidden_B_1_C[:, :, : self.end])
            p_G_1_C = score_B_H_C.softmax(-1).view(score_G_1_C.shape)
            return torch.bmm(p_G_1_C, values_C_G_W.transpose(0, 1)).view(rows, -1)

        x_B_D = self.lean.run(self.weights, token_B, self.lengths_B, attend)
        self.lengths_B += 1
        return self.lean.logits(x_B_D)

    def keep(self, count: int, gaps: torch.Tensor, movers: torch.Tensor) -> None:
        past = self.state[:, :, : self.end]
        past.index_copy_(3, gaps, past.index_select(3, movers))
        self.state = self.state[:, :, :, :count]
        self.hidden_B_1_C, self.lengths_B = (
            _moved(x, count, gaps, movers) for x in (self.hidden_B_1_C, self.lengths_B)
        )


class AnyDecoder:
    """Any causal model of transformers, on any device, through its own forward pass and cache."""

    def __init__(self, model: Any):
        self.model = model
        self.cache = Cache(layers=[_GrowingLayer() for _ in range(model.config.num_hidden_layers)])

    def prefill(self, ids_Q_P: torch.Tensor, lengths_Q: torch.Tensor) -> torch.Tensor:
        self.end, self.lengths_B = ids_Q_P.shape[1], lengths_Q
        padding_Q_1 = (self.end - lengths_Q)[:, None]
        column_P = torch.arange(self.end, device=ids_Q_P.device)
        self.attend_B_C = (column_P >= padding_Q_1).long()
        return self._logits(ids_Q_P, (column_P - padding_Q_1).clamp(min=0))

    def spread(self, query_N: torch.Tensor, room: int) -> None:
        self.cache.batch_select_indices(query_N)
        self.attend_B_C = F.pad(self.attend_B_C, (0, room), value=1)[query_N]
        self.lengths_B = self.lengths_B[query_N]

    def step(self, token_B: torch.Tensor) -> torch.Tensor:
        self.end += 1
        logits_B_V = self._logits(token_B[:, None], self.lengths_B[:, None])
        self.lengths_B += 1
        return logits_B_V

    def keep(self, count: int, gaps: torch.Tensor, movers: torch.Tensor) -> None:
        for layer in self.cache.layers:
            layer.move(movers, gaps)
        self.attend_B_C = _moved(self.attend_B_C, count, gaps, movers)
        self.lengths_B = _moved(self.lengths_B, count, gaps, movers)

    def _logits(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        out = self.model(
            input_ids=ids,
            attention_mask=self.attend_B_C[:, : self.end],
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return out.logits[:, -1]


def _moved(x_B: torch.Tensor, count: int, gaps: torch.Tensor, movers: torch.Tensor) -> torch.Tensor:
    """In place; every row moves at most once in its life."""
    x_B[gaps] = x_B[movers]
    return x_B[:count]


class _GrowingLayer(DynamicLayer):
    """A cache layer written in place; DynamicLayer copies the whole past at every token.

    Capacity grows by a quarter at a time, and only for the rows still in the batch: an `update` with fewer rows than
    the one before drops the last ones.
    """

    room = 0

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states, value_states
            return self.keys, self.values
        rows, start = len(key_states), self.keys.shape[2]
        end = start + key_states.shape[2]
        if end > self.room:
            self.room = end + max(8, end // 4)
            self.buffers = [self._with_room(states[:rows]) for states in (self.keys, self.values)]
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:rows, :, start:end] = states
        self.keys, self.values = (buffer[:rows, :, :end] for buffer in self.buffers)
        return self.keys, self.values

    def move(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Overwrite rows of the batch with others."""
        for states in (self.keys, self.values):
            states[target] = states[source]

    def _with_room(self, states: torch.Tensor) -> torch.Tensor:
        rows, heads, used, width = states.shape
        buffer = states.new_empty(rows, heads, self.room, width)
        buffer[:, :, :used] = states
        return buffer
