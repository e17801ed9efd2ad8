"""Sample responses in groups: shared prefill, a KV cache without copies, and finished rows leave the batch.

The log-probability and the entropy of every token are recorded when it is sampled. They are those of the behaviour
policy, so neither the PPO ratio nor token selection by entropy needs a second pass.
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

    `temperature` divides the logits; log-probabilities and entropies are those of the tempered distribution that is
    sampled from. Every (response, token) has its own uniform number, so the samples do not depend on the order in which
    rows leave the batch.
    """
    device = model.device
    width = max(map(len, prompts_Q))
    ids_Q_P = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts_Q], device=device)
    lengths_Q = torch.tensor([len(prompt) for prompt in prompts_Q], device=device)
    column_L = torch.arange(width + max_new_tokens, device=device)
    attend_Q_L = (column_L >= width - lengths_Q[:, None]).long()
    position_Q_P = (column_L[:width] - (width - lengths_Q)[:, None]).clamp(min=0)
    cache = Cache(layers=[_GrowingLayer() for _ in range(model.config.num_hidden_layers)])
    logits_Q_V = _last_logits(model, ids_Q_P, attend_Q_L[:, :width], position_Q_P, cache)

    query_N = torch.repeat_interleave(torch.arange(len(prompts_Q)), torch.tensor(group_sizes_Q)).to(device)
    cache.batch_select_indices(query_N)
    n, logits_B_V = len(query_N), logits_Q_V[query_N]
    uniform_N_T = torch.rand(n, max_new_tokens, dtype=torch.float64, device=device, generator=generator)
    ids_N_T = torch.full((n, max_new_tokens), pad, device=device)
    logprob_N_T, entropy_N_T = (torch.zeros(n, max_new_tokens, device=device) for _ in range(2))
    tokens_N = torch.full((n,), max_new_tokens, device=device)
    finished_N = torch.zeros(n, dtype=torch.bool, device=device)
    alive_B = torch.arange(n, device=device)  # which response each row of the batch is

    for t in range(max_new_tokens):
        log_p_B_V = torch.log_softmax(logits_B_V.float() / temperature, -1)
        p_B_V = log_p_B_V.exp()
        token_B_1 = invert(p_B_V, uniform_N_T[alive_B, t])
        ids_N_T[alive_B, t] = token_B_1[:, 0]
        logprob_N_T[alive_B, t] = log_p_B_V.gather(1, token_B_1)[:, 0]
        entropy_N_T[alive_B, t] = -(p_B_V * log_p_B_V).sum(-1)
        done_B = token_B_1[:, 0] == eos
        count = len(alive_B) - int(done_B.sum())
        if count < len(alive_B):
            leaving = alive_B[done_B]
            tokens_N[leaving], finished_N[leaving] = t + 1, True
            # Rows from the end of the batch move into the gaps: at most one copy per response in total.
            gaps, movers = done_B[:count].nonzero()[:, 0], (~done_B[count:]).nonzero()[:, 0] + count
            for layer in cache.layers:
                layer.move(movers, gaps)
            alive_B[gaps], token_B_1[gaps] = alive_B[movers], token_B_1[movers]
            alive_B, token_B_1 = alive_B[:count], token_B_1[:count]
        if count == 0 or t == max_new_tokens - 1:
            break
        query_B = query_N[alive_B]
        position_B_1 = (lengths_Q[query_B] + t)[:, None]
        logits_B_V = _last_logits(model, token_B_1, attend_Q_L[query_B, : width + t + 1], position_B_1, cache)

    used = slice(0, int(tokens_N.max()))
    mask_N_T = column_L[used] < tokens_N[:, None]
    columns = (ids_N_T[:, used], logprob_N_T[:, used], entropy_N_T[:, used])
    return Responses(*columns, mask_N_T, finished_N, lengths_Q[query_N])


def invert(p_B_V: torch.Tensor, uniform_B: torch.Tensor) -> torch.Tensor:
    """token_B_1: the first token at which the cumulative probability exceeds uniform · total (inverse CDF in float64,
    so that a token of probability 0 is never drawn)."""
    cumulative_B_V = p_B_V.cumsum(-1, dtype=torch.float64)
    return torch.searchsorted(cumulative_B_V, uniform_B[:, None] * cumulative_B_V[:, -1:], right=True)


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
