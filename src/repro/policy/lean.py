"""A forward pass of a Qwen2 or Llama policy in few calls, on the weights of the transformers model itself.

With a small policy, transformers spends half of a step outside matrix products. Here tokens are rows: x_S_D holds S
tokens of width D, of whichever sequences, since only attention looks from one token at another. The layers are written
once; the caller brings its own `attend`: left-padded prompts, one new token per row on a cache, or packed sequences.

H heads of queries share K heads of keys and values (H = K without sharing), each W wide.

The numbers are those of transformers up to rounding. The dimensions of queries and keys are permuted alike, which
leaves their products as they are and turns the rotary embedding into one complex product. Autograd undoes the
permutation, so gradients arrive in the model's own parameters. Forward hooks on the model are bypassed.

Of a model with adapters (repro.policy.adapters) the layers from `low` on learn; what enters that layer is the same in
every pass. It may be in bfloat16, but for rotations, norms' sums and logits, which have single precision, and on a GPU.
"""

import warnings
from collections.abc import Callable
from operator import is_not
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.nn import functional as F
from torch.nn.utils import parametrize

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]  # (layer, q_S_HW, k_S_KW, v_S_KW)
KINDS = ("LlamaForCausalLM", "Qwen2ForCausalLM")  # not classes derived from them, nor wrappers
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}  # of the logits of the one comparison, relative to the largest

_known: WeakKeyDictionary = WeakKeyDictionary()


class Weights(NamedTuple):
    """One layer's, as `Lean.run` multiplies by them: norm_D, qkv_(H+2K)W_D, qkv_(H+2K)W or None, out_D_HW, …"""

    norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    out: torch.Tensor
    second_norm: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor


def lean_of(model: Any) -> "Lean | None":
    """The lean view of `model`, None if it does something that this file does not; compared with transformers at first
    use, and again once a part of the model has been replaced."""
    if model not in _known or ((lean := _known[model]) and lean.replaced()):
        with torch.inference_mode(False):  # its tensors take part in training, even if first used in generation
            _known[model] = _compared(model) if _supported(model) else None
    return _known[model]


def _compared(model: Any) -> "Lean | None":
    lean = Lean(model)
    if lean.agrees():
        return lean
    kind = type(model).__name__
    warnings.warn(f"{kind}: the lean forward pass differs from transformers', used instead and slower", stacklevel=3)
    return None


def _supported(model: Any) -> bool:
    if type(model).__name__ not in KINDS:
        return False
    config = model.config
    return (
        config.hidden_act == "silu"
        and (getattr(config, "rope_parameters", None) or {}).get("rope_type") == "default"
        and not getattr(config, "use_sliding_window", False)
        and not getattr(config, "mlp_bias", False)
        and model.lm_head.bias is None
        and not (model.training and config.attention_dropout)
        and (_adapted(model.model.layers) or (model.device.type == "cpu" and model.dtype == torch.float32))
        and all(_plain(layer) for layer in model.model.layers)
    )


def _plain(layer: Any) -> bool:
    """No other layers in place of the linear ones, such as quantised ones, and no bias on the attention's output."""
    attention, mlp = layer.self_attn, layer.mlp
    linear = (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
    linear += (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
    plain = all(parametrize.type_before_parametrizations(part) is torch.nn.Linear for part in linear)
    return plain and attention.o_proj.bias is None


def _adapted(layers: Any) -> list[int]:
    """Which layers have weights that are computed from others."""
    parts = [[parametrize.is_parametrized(part) for part in layer.modules()] for layer in layers]
    return [number for number, own in enumerate(parts) if any(own)]


class Lean:
    """A view of `model`; it holds no weights of its own."""

    def __init__(self, model: Any):
        # Without a reference to the model itself, which the dictionary above must not keep alive.
        config, self.body, self.head = model.config, model.model, model.lm_head
        self.heads, self.key_heads = config.num_attention_heads, config.num_key_value_heads
        self.shared, self.eps = self.key_heads < self.heads, config.rms_norm_eps
        self.width = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.device, self.dtype = model.device, model.dtype
        half = torch.arange(self.width // 2, device=self.device)
        pairs = torch.stack([half, half + self.width // 2], 1).flatten()  # x_i next to its partner x_{i + width/2}
        heads = torch.arange(self.heads + self.key_heads, device=self.device)
        qk = (heads[:, None] * self.width + pairs).flatten()
        values = torch.arange(len(qk), len(qk) + self.key_heads * self.width, device=self.device)
        self.order = torch.cat([qk, values])
        self.low = min(_adapted(self.body.layers), default=None)  # None: all layers learn
        self.rotation_L_W = self._rotation(config.max_position_embeddings)
        # What every module holds, and the objects themselves: the id of one that is gone may become another's.
        held = [part for module in model.modules() for part in (module._modules, module._parameters)]
        self.held = [(part, tuple(part.values())) for part in held]
        self.captured: dict[tuple[int, int], Any] = {}  # steps of decoding as CUDA graphs (repro.engine.decoders)

    def replaced(self) -> bool:
        """Whether a module or a parameter was put in, taken out or exchanged since this view was made."""
        return any(len(part) != len(was) or any(map(is_not, part.values(), was)) for part, was in self.held)

    def _rotation(self, length: int) -> torch.Tensor:
        positions = torch.arange(length, device=self.device)[None]
        cos, sin = self.body.rotary_emb(torch.zeros(1, device=self.device), positions)
        half = self.width // 2
        return torch.complex(cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous())

    def reach(self, length: int) -> None:
        """Be ready for sequences of this length, which may exceed the model's own maximum."""
        if length > len(self.rotation_L_W):
            self.rotation_L_W = self._rotation(length)

    def weights(self, first: int = 0, end: int | None = None) -> list[Weights]:
        """Of the layers from `first` to before `end`; differentiable where gradients are on. Read once per optimiser
        step."""
        return [self._layer(layer.self_attn, layer.mlp, layer) for layer in self.body.layers[first:end]]

    def _layer(self, attention: Any, mlp: Any, layer: Any) -> Weights:
        parts = attention.q_proj, attention.k_proj, attention.v_proj
        bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts])[self.order]
        return Weights(
            layer.input_layernorm.weight,
            torch.cat([part.weight for part in parts])[self.order],
            bias,
            attention.o_proj.weight,
            layer.post_attention_layernorm.weight,
            mlp.gate_proj.weight,
            mlp.up_proj.weight,
            mlp.down_proj.weight,
        )

    def run(
        self,
        weights: list[Weights],
        ids_S: torch.Tensor,
        position_S: torch.Tensor,
        attend: Attend,
        entering: list[torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """x_S_D before the last norm. entering: a list that is given what enters layer `low`."""
        embedding = self.body.embed_tokens
        x_S_D = F.embedding(ids_S, embedding.weight, embedding.padding_idx)
        return self.through(weights, x_S_D, position_S, attend, entering)

    def through(
        self,
        weights: list[Weights],
        x_S_D: torch.Tensor,
        position_S: torch.Tensor,
        attend: Attend,
        entering: list[torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """`run` from some layer on: x_S_D that enters the first of `weights`."""
        queries, keys = self.heads * self.width, self.key_heads * self.width
        rotation_S_1_W = self.rotation_L_W[position_S][:, None]
        for layer, w in enumerate(weights):
            if layer == self.low and entering is not None:
                entering.append(x_S_D)
            qkv_S = F.linear(self.normalise(x_S_D, w.norm), w.qkv, w.qkv_bias)
            qk_S = rotate(qkv_S[:, : queries + keys], rotation_S_1_W)
            attended_S_HW = attend(layer, qk_S[:, :queries], qk_S[:, queries:], qkv_S[:, queries + keys :])
            x_S_D = torch.addmm(x_S_D, attended_S_HW, w.out.T)
            h_S_D = self.normalise(x_S_D, w.second_norm)
            x_S_D = torch.addmm(x_S_D, F.silu(F.linear(h_S_D, w.gate)) * F.linear(h_S_D, w.up), w.down.T)
        return x_S_D

    def logits(self, x_S_D: torch.Tensor) -> torch.Tensor:
        """logits_S_V of the tokens that predict one."""
        return F.linear(self.normalise(x_S_D, self.body.norm.weight).float(), self.head.weight.float())

    def normalise(self, x_S_D: torch.Tensor, weight_D: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x_S_D, weight_D.shape, weight_D, self.eps)

    @torch.no_grad()
    def agrees(self) -> bool:
        """Whether logits of three rows of sixteen tokens are those of transformers' own forward pass."""
        shape = (3, min(16, len(self.rotation_L_W)))
        vocabulary = min(len(self.head.weight), len(self.body.embed_tokens.weight))
        ids = torch.arange(shape[0] * shape[1], device=self.device).view(shape) * 7919 % vocabulary
        position_S = torch.arange(shape[1], device=self.device).repeat(shape[0])
        x_S_D = self.run(self.weights(), ids.flatten(), position_S, self.causal([shape]))
        hidden = self.body(input_ids=ids, use_cache=False).last_hidden_state
        expected = self.head(hidden).flatten(0, 1)
        tolerance = TOLERANCE[expected.dtype] * float(expected.abs().max())
        return float((self.logits(x_S_D) - expected).abs().max()) <= tolerance

    def causal(self, shapes: list[tuple[int, int]]) -> Attend:
        """Causal attention of packed sequences: `shapes` (rows, length) of one block of rows after the other."""
        sizes = [rows * length for rows, length in shapes]

        def block(q_S_HW, k_S_KW, v_S_KW, shape) -> torch.Tensor:
            q, k, v = (z.reshape(*shape, -1, self.width).transpose(1, 2) for z in (q_S_HW, k_S_KW, v_S_KW))
            return self.mixed(q, k, v, is_causal=True)

        def attend(layer: int, *qkv: torch.Tensor) -> torch.Tensor:
            parts = zip(*(z.split(sizes) for z in qkv), shapes, strict=True)
            return torch.cat([block(*part) for part in parts])

        return attend

    def mixed(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **how: Any) -> torch.Tensor:
        """mixed_S_HW: the values that q_R_H_L_W attends to, of k_R_K_L_W and v_R_K_L_W; a token is a row again."""
        x_R_H_L_W = F.scaled_dot_product_attention(q, k, v, enable_gqa=self.shared, **how)
        return x_R_H_L_W.transpose(1, 2).flatten(0, 1).flatten(1)


def rotate(qk_S: torch.Tensor, rotation_S_1_W: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of queries and keys whose pairs stand side by side."""
    pairs = torch.view_as_complex(qk_S.float().unflatten(-1, (-1, rotation_S_1_W.shape[-1], 2)))
    return torch.view_as_real(pairs * rotation_S_1_W).flatten(-3).to(qk_S.dtype)
