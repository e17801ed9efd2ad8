"""Decoders: the logits of the next token of every row of a batch. The sampling loop is in repro.engine.generate.

prefill(ids_Q_P, lengths_Q) → logits_Q_V after prompts padded on the left; spread(query_N, room) makes a row for every
response, with room for its tokens; step(token_B) → logits_B_V after one more token in every row; keep(count, gaps,
movers) drops the rows that have ended: the rows `movers` move to the places `gaps`, and the first `count` stay.
entering_B_D: of a model whose lower layers do not learn, what the last token of every row gave to the first that does;
else None.
"""

from typing import Any

import torch
from torch.nn import functional as F
from transformers.cache_utils import Cache, DynamicLayer

from repro.policy.lean import Lean, Weights, lean_of


def decoder_of(model: Any) -> "LeanDecoder | AnyDecoder":
    """The fastest decoder that fits the model."""
    if (lean := lean_of(model)) is None:
        return AnyDecoder(model)
    return LeanDecoder(lean) if lean.device.type == "cpu" else CapturedDecoder(lean)


class LeanDecoder:
    """On a static cache of keys and values, state_LAYER_2_B_K_C_W: those that one head of one row attends to lie side
    by side. All rows are at the same column, since prompts are padded on the left."""

    entering_B_D = None

    def __init__(self, lean: Lean):
        self.lean, self.weights = lean, lean.weights()

    def prefill(self, ids_Q_P: torch.Tensor, lengths_Q: torch.Tensor) -> torch.Tensor:
        lean, (rows, self.end) = self.lean, ids_Q_P.shape
        lean.reach(self.end)
        self.lengths_B = lengths_Q
        shape = (len(self.weights), 2, rows, lean.key_heads, self.end, lean.width)
        self.state = self.weights[0].qkv.new_empty(shape)
        column_P = torch.arange(self.end, device=lean.device)
        hidden_Q_P = column_P < (self.end - lengths_Q)[:, None]
        seen_Q_1_P = torch.zeros(rows, 1, self.end, device=lean.device)
        self.hidden_B_1_C = seen_Q_1_P.masked_fill_(hidden_Q_P[:, None], -torch.inf)
        later_P_P = torch.full((self.end, self.end), -torch.inf, device=lean.device).triu(1)
        # Finite, since a column of padding attends to nothing and its softmax would be NaN.
        mask_Q_1_P_P = (self.hidden_B_1_C + later_P_P).clamp(min=torch.finfo(self.state.dtype).min)[:, None]
        position_Q_P = (column_P - (self.end - lengths_Q)[:, None]).clamp(min=0)

        def attend(layer: int, *qkv: torch.Tensor) -> torch.Tensor:
            q, k, v = (z.view(rows, self.end, -1, lean.width).transpose(1, 2) for z in qkv)
            self.state[layer, 0], self.state[layer, 1] = k, v
            return lean.mixed(q, k, v, attn_mask=mask_Q_1_P_P.to(q.dtype))

        x_S_D = lean.run(self.weights, ids_Q_P.flatten(), position_Q_P.flatten(), attend)
        return lean.logits(x_S_D.unflatten(0, (rows, -1))[:, -1])

    def spread(self, query_N: torch.Tensor, room: int) -> None:
        self.lean.reach(self.end + room)
        layers, two, _, heads, _, width = self.state.shape
        prompts = self.state
        self.state = prompts.new_empty(layers, two, len(query_N), heads, self.end + room, width)
        self.state[..., : self.end, :] = prompts[:, :, query_N]
        self.hidden_B_1_C = F.pad(self.hidden_B_1_C, (0, room))[query_N]
        self.lengths_B = self.lengths_B[query_N]

    def step(self, token_B: torch.Tensor) -> torch.Tensor:
        self.end += 1
        return self._next(token_B, slice(self.end - 1, self.end))

    def _next(self, token_B: torch.Tensor, column: slice | torch.Tensor) -> torch.Tensor:
        """logits_B_V after one more token in every row, whose keys and values go to `column`; attended to are the
        columns before `end`. One product for every row and head of keys, G = B · K of them; the R = H / K heads of
        queries that share the keys are its rows."""
        rows, lean = len(token_B), self.lean

        def attend(layer: int, q_B_HW: torch.Tensor, k_B_KW: torch.Tensor, v_B_KW: torch.Tensor) -> torch.Tensor:
            past_2_B_K_C_W = self.state[layer]
            past_2_B_K_C_W[0, :, :, column] = k_B_KW.view(rows, -1, 1, lean.width)
            past_2_B_K_C_W[1, :, :, column] = v_B_KW.view(rows, -1, 1, lean.width)
            keys_G_C_W, values_G_C_W = past_2_B_K_C_W.flatten(1, 2)[:, :, : self.end]
            q_G_R_W = q_B_HW.reshape(len(keys_G_C_W), -1, lean.width)
            score_G_R_C = torch.bmm(q_G_R_W, keys_G_C_W.transpose(1, 2)).mul_(lean.width**-0.5)
            score_B_H_C = score_G_R_C.view(rows, -1, self.end).add_(self.hidden_B_1_C[:, :, : self.end])
            return torch.bmm(score_B_H_C.softmax(-1).view(score_G_R_C.shape), values_G_C_W).view(rows, -1)

        entering: list[torch.Tensor] = []
        x_B_D = lean.run(self.weights, token_B, self.lengths_B, attend, entering)
        if lean.low:
            [self.entering_B_D] = entering
        self.lengths_B += 1
        return lean.logits(x_B_D)

    def keep(self, count: int, gaps: torch.Tensor, movers: torch.Tensor) -> None:
        past = self.state[..., : self.end, :]
        past.index_copy_(2, gaps, past.index_select(2, movers))
        self.state = self.state[:, :, :count]
        self.hidden_B_1_C, self.lengths_B = (
            _moved(x, count, gaps, movers) for x in (self.hidden_B_1_C, self.lengths_B)
        )


class CapturedDecoder(LeanDecoder):
    """On a GPU: a step is a CUDA graph, captured once for as many rows and columns and launched as a whole, since
    launching its hundreds of kernels one by one takes several times as long as they do. Its rows are never fewer, and
    it attends to all columns, those to come being hidden."""

    def spread(self, query_N: torch.Tensor, room: int) -> None:
        rows, columns = _rounded(len(query_N)), _rounded(self.end + room)
        self.lean.reach(columns)
        key = rows, columns
        if key not in self.lean.captured:
            self.lean.captured[key] = CapturedStep(self.lean, self.weights, rows, columns)
        self.run = self.lean.captured[key]
        self.run.begin(self, query_N)

    def step(self, token_B: torch.Tensor) -> torch.Tensor:
        logits_B_V, entering_B_D = self.run.replay(token_B)
        if self.lean.low:
            self.entering_B_D = entering_B_D[: len(token_B)]
        return logits_B_V[: len(token_B)].clone()

    def keep(self, count: int, gaps: torch.Tensor, movers: torch.Tensor) -> None:
        run = self.run
        run.state.index_copy_(2, gaps, run.state.index_select(2, movers))
        for x_B in (run.hidden_B_1_C, run.lengths_B):
            x_B[gaps] = x_B[movers]


class CapturedStep(LeanDecoder):
    """A step of `LeanDecoder` on buffers of its own, B rows and C columns; on a CPU it is run instead of captured."""

    def __init__(self, lean: Lean, weights: list[Weights], rows: int, columns: int):
        on = {"device": lean.device}
        self.lean, self.end, self.rotation = lean, columns, lean.rotation_L_W
        self.weights = [Weights(*(None if part is None else part.clone() for part in own)) for own in weights]
        shape = (len(weights), 2, rows, lean.key_heads, columns, lean.width)
        self.state = torch.zeros(shape, dtype=weights[0].qkv.dtype, **on)
        self.hidden_B_1_C = torch.zeros(rows, 1, columns, **on)
        self.lengths_B, self.token_B = (torch.zeros(rows, dtype=torch.int64, **on) for _ in range(2))
        self.column_1 = torch.zeros(1, dtype=torch.int64, **on)
        self.graph = self._captured() if lean.device.type == "cuda" else None

    def begin(self, prompts: LeanDecoder, query_N: torch.Tensor) -> None:
        """After the prompts that `prompts` has read, with its weights."""
        n, end = len(query_N), prompts.end
        parts = [
            (mine, its)
            for own in zip(self.weights, prompts.weights, strict=True)
            for mine, its in zip(*own, strict=True)
        ]
        torch._foreach_copy_(*zip(*(pair for pair in parts if pair[0] is not None), strict=True))
        self.state[:, :, :n, :, :end] = prompts.state[:, :, query_N]
        self.hidden_B_1_C.fill_(-torch.inf)
        self.hidden_B_1_C[:n, :, :end] = prompts.hidden_B_1_C[query_N]
        self.lengths_B[:n] = prompts.lengths_B[query_N]
        self.column_1.fill_(end)

    def replay(self, token_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(logits_B_V, what entered layer `low`), overwritten by the next call."""
        self.token_B[: len(token_B)] = token_B
        if self.graph is None:
            self._run()
        else:
            self.graph.replay()
        return self.logits_B_V, self.entering_B_D

    def _run(self) -> None:
        self.hidden_B_1_C.index_fill_(2, self.column_1, 0.0)
        self.logits_B_V = self._next(self.token_B, self.column_1)
        self.column_1 += 1

    def _captured(self) -> torch.cuda.CUDAGraph:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._run()  # what is allocated once, such as workspaces, is so before the capture
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # runs may share a process
            self._run()
        return graph


def _rounded(size: int) -> int:
    """Up to 128, 256, 512, …: few graphs are captured then."""
    return max(128, 1 << (size - 1).bit_length())


class AnyDecoder:
    """Any causal model of transformers, on any device, through its own forward pass and cache."""

    entering_B_D = None

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
