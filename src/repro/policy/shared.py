"""One pass over several responses to a prompt: [prompt, response 1, …, response G] as one sequence, whose positions
start again after the prompt; a response sees the prompt and itself. So a prompt is read once, not G times."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn import functional as F

from repro.policy.lean import Attend, Lean

Group = tuple[list[int], list[torch.Tensor]]  # a prompt, and responses to it of one token or more, on the CPU


class Packed(NamedTuple):
    """S tokens that are read, group by group, and K of responses that are predicted, response by response: the token
    target_K by row predict_K. visible: of each group, whether its token (row) sees another (column)."""

    ids_S: torch.Tensor
    position_S: torch.Tensor
    predict_K: torch.Tensor
    target_K: torch.Tensor
    visible: list[torch.Tensor]


def pack(groups: Sequence[Group], device: torch.device) -> Packed:
    ids, positions, predicts, visible, start = [], [], [], [], 0
    for prompt, responses in groups:
        width, owner = len(prompt), [torch.zeros(len(prompt), dtype=torch.long)]
        ids.append(torch.tensor(prompt))
        positions.append(torch.arange(width))
        place = start + width
        for number, response in enumerate(responses, 1):
            fed = len(response) - 1  # the last token predicts nothing
            ids.append(response[:-1])
            positions.append(torch.arange(width, width + fed))
            predicts += [torch.tensor([start + width - 1]), torch.arange(place, place + fed)]
            owner.append(torch.full((fed,), number))
            place += fed
        owner_T = torch.cat(owner)
        same_T_T = (owner_T[:, None] == owner_T) | (owner_T == 0)
        visible.append(same_T_T & torch.ones_like(same_T_T).tril())
        start = place
    targets = [response for _, responses in groups for response in responses]
    flat = (torch.cat(parts).to(device) for parts in (ids, positions, predicts, targets))
    return Packed(*flat, [seen_T_T.to(device) for seen_T_T in visible])


def response_logits(
    lean: Lean, groups: Sequence[Group], trunk: Sequence[torch.Tensor] | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(logits_K_V, target_K) of the response tokens. trunk: what entered layer `lean.low` for the tokens of each
    response but the last, as decoding has left it; the lower layers, which do not learn, then read the prompts alone.
    """
    packed = pack(groups, lean.device)
    attend = _attend(lean, packed.visible)
    lean.reach(int(packed.position_S.max()) + 1)
    if trunk is None:
        x_S_D = lean.run(lean.weights(), packed.ids_S, packed.position_S, attend)
    else:
        x_S_D = _entering(lean, groups, trunk)
        x_S_D = lean.through(lean.weights(lean.low), x_S_D, packed.position_S, attend)
    return lean.logits(x_S_D[packed.predict_K]), packed.target_K


@torch.no_grad()
def _entering(lean: Lean, groups: Sequence[Group], trunk: Sequence[torch.Tensor]) -> torch.Tensor:
    """x_S_D that enters layer `lean.low`."""
    sizes = [len(prompt) for prompt, _ in groups]
    ids_S = torch.tensor([token for prompt, _ in groups for token in prompt], device=lean.device)
    position_S = torch.cat([torch.arange(size) for size in sizes]).to(lean.device)
    causal = lean.causal([(1, size) for size in sizes])
    prompts = lean.run(lean.weights(0, lean.low), ids_S, position_S, causal).split(sizes)
    parts, left = [], iter(trunk)
    for prompt, (_, responses) in zip(prompts, groups, strict=True):
        parts += [prompt, *(next(left)[: len(response) - 1] for response in responses)]
    return torch.cat(parts)


def _attend(lean: Lean, visible: Sequence[torch.Tensor]) -> Attend:
    sizes = [len(seen) for seen in visible]
    if lean.device.type != "cpu":
        return _attend_at_once(lean, visible, sizes)

    def attend(layer: int, *qkv: torch.Tensor) -> torch.Tensor:
        parts = []
        for q, k, v, seen_T_T in zip(*(z.split(sizes) for z in qkv), visible, strict=True):
            heads = (z.unflatten(-1, (-1, lean.width)).transpose(0, 1)[None] for z in (q, k, v))
            parts.append(lean.mixed(*heads, attn_mask=seen_T_T))
        return torch.cat(parts)

    return attend


def _attend_at_once(lean: Lean, visible: Sequence[torch.Tensor], sizes: Sequence[int]) -> Attend:
    """All groups in one call, padded to the same length: on a GPU, calls cost more than padding."""
    torch.backends.cuda.enable_cudnn_sdp(False)  # it plans for every shape anew, in seconds
    groups, length = len(sizes), -(-max(sizes) // 8) * 8
    place_S = torch.cat([torch.arange(size) + number * length for number, size in enumerate(sizes)]).to(lean.device)
    hidden_G_1_T_T = torch.full((groups, 1, length, length), -torch.inf, device=lean.device, dtype=lean.dtype)
    hidden_G_1_T_T[..., 0] = 0.0  # a row of padding sees something, since its softmax would be NaN
    for hidden_1_T_T, seen_T_T in zip(hidden_G_1_T_T, visible, strict=True):
        hidden_1_T_T[0, : len(seen_T_T), : len(seen_T_T)].masked_fill_(seen_T_T, 0.0)
    hidden = hidden_G_1_T_T.expand(-1, lean.heads, -1, -1)

    def attend(layer: int, *qkv: torch.Tensor) -> torch.Tensor:
        padded = [z.new_zeros(groups * length, z.shape[1]).index_copy(0, place_S, z) for z in qkv]
        q, k, v = (z.view(groups, length, -1, lean.width).transpose(1, 2) for z in padded)
        k, v = (z.repeat_interleave(lean.heads // lean.key_heads, 1) for z in (k, v))
        mixed_G_H_T_W = F.scaled_dot_product_attention(q, k, v, attn_mask=hidden)
        return mixed_G_H_T_W.transpose(1, 2).flatten(2).flatten(0, 1)[place_S]

    return attend
