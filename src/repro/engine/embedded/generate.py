"""Sample responses in groups: shared prefill, a cache that does not copy, finished rows leave the batch.

The log-probability and the entropy of every sampled token are kept as it is drawn. They are those of the policy that
acts, so no second pass is needed for the PPO ratio or for token selection by entropy.
"""

from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer


@dataclass
class Responses:
    """N sampled responses, padded on the right to width T.

    ids_N_T (int64), logprob_N_T and entropy_N_T (float32, nats; 0 off the mask), mask_N_T (bool, the response tokens,
    end of text included), finished_N (bool: an end of text was drawn, so not truncated), prompt_tokens_N (int64).
    """

    ids_N_T: torch.Tensor
    logprob_N_T: torch.Tensor
    entropy_N_T: torch.Tensor
    mask_N_T: torch.Tensor
    finished_N: torch.Tensor
    prompt_tokens_N: torch.Tensor


class _GrowingLayer(DynamicLayer):
    """A cache layer written in place into room made beforehand; DynamicLayer copies the whole past at every token."""

    def __init__(self, room: int):
        super().__init__()
        self.room, self.used = room, 0

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            shape = (*key_states.shape[:2], key_states.shape[2] + self.room)
            self.buffers = [states.new_empty(*shape, states.shape[3]) for states in (key_states, value_states)]
        end = self.used + key_states.shape[2]
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:, :, self.used : end] = states
        self.used = end
        self.keys, self.values = (buffer[:, :, :end] for buffer in self.buffers)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self.used

    def take(self, rows: torch.Tensor) -> None:
        """Keep the given rows (with repetition, to expand a prompt into its group)."""
        self.buffers = [buffer.index_select(0, rows) for buffer in self.buffers]
        self.keys, self.values = (buffer[:, :, : self.used] for buffer in self.buffers)


@torch.inference_mode()
def generate(
    model: Any,
    prompts_Q: list[list[int]],
    group_sizes_Q: list[int],
    *,
    max_new_tokens: int,
    eos: int,
    pad: int,
    temperature: float,
    generator: torch.Generator,
) -> Responses:
    """Sample `group_sizes_Q[q]` responses to each prompt; rows come out prompt by prompt.

    Rows that are finished leave the batch as soon as a quarter of it is, so late steps are cheap. `temperature` divides
    the logits; log-probabilities and entropies are those of the tempered distribution, the one that was sampled.
    """
    device = model.device
    width = max(map(len, prompts_Q))
    ids_Q_P = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts_Q], device=device)
    lengths_Q = torch.tensor([len(prompt) for prompt in prompts_Q], device=device)
    attend = (torch.arange(width, device=device) >= width - lengths_Q[:, None]).long()
    cache = Cache(layers=[_GrowingLayer(max_new_tokens) for _ in range(model.config.num_hidden_layers)])
    logits = _last_logits(model, ids_Q_P, attend, attend.cumsum(1).sub(1).clamp(min=0), cache)

    expand = torch.repeat_interleave(
        torch.arange(len(prompts_Q), device=device), torch.tensor(group_sizes_Q).to(device)
    )
    n = len(expand)
    _take(cache, expand)
    logits, attend, position = logits[expand], attend[expand], lengths_Q[expand]
    ids = torch.full((n, max_new_tokens), pad, device=device)
    logprob, entropy = (torch.zeros(n, max_new_tokens, device=device) for _ in range(2))
    mask = torch.zeros(n, max_new_tokens, dtype=torch.bool, device=device)
    finished = torch.zeros(n, dtype=torch.bool, device=device)
    alive = torch.arange(n, device=device)  # the batch's rows, as indices into the N responses

    for t in range(max_new_tokens):
        log_p = torch.log_softmax(logits.float() / temperature, -1)
        p = log_p.exp()
        token = torch.multinomial(p, 1, generator=generator)
        live = ~finished[alive]
        rows = alive[live]
        ids[rows, t] = token[live, 0]
        logprob[rows, t] = log_p.gather(1, token)[live, 0]
        entropy[rows, t] = -(p * log_p).sum(-1)[live]
        mask[rows, t] = True
        finished[rows] = token[live, 0] == eos
        still = ~finished[alive]
        count = int(still.sum())
        if count == 0 or t == max_new_tokens - 1:
            break
        if count <= 0.75 * len(alive):
            keep = still.nonzero()[:, 0]
            alive, attend, position, token = alive[keep], attend[keep], position[keep], token[keep]
            _take(cache, keep)
        attend = torch.cat([attend, attend.new_ones(len(alive), 1)], 1)
        logits = _last_logits(model, token, attend, position[:, None], cache)
        position = position + 1

    longest = int(mask.any(0).sum())
    columns = slice(0, max(1, longest))
    return Responses(
        ids[:, columns], logprob[:, columns], entropy[:, columns], mask[:, columns], finished, lengths_Q[expand]
    )


def _last_logits(model: Any, ids: torch.Tensor, attend: torch.Tensor, positions: torch.Tensor, cache: Any):
    out = model(
        input_ids=ids,
        attention_mask=attend,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return out.logits[:, -1]


def _take(cache: Cache, rows: torch.Tensor) -> None:
    for layer in cache.layers:
        layer.take(rows)
