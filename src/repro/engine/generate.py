"""Sample responses in groups: one prefill per prompt, and rows leave the batch as they finish.

The log-probability and the entropy of every token are recorded when it is sampled. They are those of the behaviour
policy, so neither the PPO ratio nor token selection by entropy needs a second pass.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils import parametrize

from repro.engine.decoders import decoder_of
from repro.engine.diverged import Diverged
from repro.engine.draws import Independent, Stratified

HELD = 2**20  # logits held back until their log-probabilities are computed


@dataclass
class Responses:
    """N sampled responses, padded on the right to width T.

    ids_N_T (int64), logprob_N_T and entropy_N_T (float32, nats; 0 off the mask), mask_N_T (bool, the response tokens,
    end of text included), finished_N (bool: an end of text was drawn, so not truncated), prompt_tokens_N (int64).
    entering_N_T_D: of a model whose lower layers do not learn, what each token but the last gave to the first that
    does, so that an update need not run the lower ones; else None.
    """

    ids_N_T: torch.Tensor
    logprob_N_T: torch.Tensor
    entropy_N_T: torch.Tensor
    mask_N_T: torch.Tensor
    finished_N: torch.Tensor
    prompt_tokens_N: torch.Tensor
    entering_N_T_D: torch.Tensor | None = None


@torch.inference_mode()
@parametrize.cached()  # adapters are added to their weights once
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
    stratified: bool = False,
) -> Responses:
    """Sample `group_sizes_Q[q]` responses to each prompt; rows come out prompt by prompt.

    `temperature` divides the logits; log-probabilities and entropies are those of the tempered distribution that is
    sampled from. `stratified`: responses to a prompt are spread over their distribution, for means with less variance
    (repro.engine.draws). Diverged if the policy's probabilities are not finite.
    """
    device, width, decoder = model.device, max(map(len, prompts_Q)), decoder_of(model)
    ids_Q_P = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts_Q], device=device)
    lengths_Q = torch.tensor([len(prompt) for prompt in prompts_Q], device=device)
    query_N = torch.repeat_interleave(torch.arange(len(prompts_Q)), torch.tensor(group_sizes_Q)).to(device)
    logits_B_V = decoder.prefill(ids_Q_P, lengths_Q)[query_N]
    decoder.spread(query_N, max_new_tokens)

    n = len(query_N)
    draws = (Stratified if stratified else Independent)(group_sizes_Q, max_new_tokens, device, generator)
    drawn = _Drawn(n, max_new_tokens, pad, device)
    alive_B = torch.arange(n, device=device)  # which response each row of the batch is
    for t in range(max_new_tokens):
        logits_B_V = logits_B_V.float() if temperature == 1 else logits_B_V.float() / temperature
        token_B = draws.token(t, alive_B, logits_B_V.softmax(-1))
        going_B = token_B != eos
        count, largest = torch.stack([going_B.sum(), token_B.max()]).tolist()
        if largest >= logits_B_V.shape[1]:
            raise Diverged(f"the policy's probabilities are not finite at token {t} of a response")
        drawn.add(t, alive_B, token_B, logits_B_V)
        if count == 0 or t == max_new_tokens - 1:
            break
        if count < len(alive_B):
            # Rows from the end of the batch move into the gaps: at most one copy per response in total.
            gaps, movers = (~going_B[:count]).nonzero()[:, 0], going_B[count:].nonzero()[:, 0] + count
            decoder.keep(count, gaps, movers)
            rows_B = torch.arange(count, device=device)
            rows_B[gaps] = movers
            alive_B, token_B = alive_B[rows_B], token_B[rows_B]
        logits_B_V = decoder.step(token_B)
        drawn.fed(t, alive_B, decoder.entering_B_D)
    return drawn.responses(eos, lengths_Q[query_N])


class _Drawn:
    """The tokens drawn so far. Log-probabilities and entropies are computed for many steps at once."""

    def __init__(self, n: int, max_new_tokens: int, pad: int, device: torch.device):
        self.ids_N_T = torch.full((n, max_new_tokens), pad, device=device)
        self.logprob_N_T, self.entropy_N_T = (torch.zeros(n, max_new_tokens, device=device) for _ in range(2))
        self.tokens_N = torch.zeros(n, dtype=torch.int64, device=device)
        self.steps, self.held, self.entering_N_T_D = [], 0, None

    def fed(self, t: int, alive_B: torch.Tensor, entering_B_D: torch.Tensor | None) -> None:
        """What token t of the rows gave to the first layer that learns."""
        if entering_B_D is None:
            return
        if self.entering_N_T_D is None:
            self.entering_N_T_D = entering_B_D.new_zeros(*self.ids_N_T.shape, entering_B_D.shape[1])
        self.entering_N_T_D[alive_B, t] = entering_B_D

    def add(self, t: int, alive_B: torch.Tensor, token_B: torch.Tensor, logits_B_V: torch.Tensor) -> None:
        """One step: `logits_B_V` tempered."""
        self.steps.append((torch.full_like(alive_B, t), alive_B, token_B, logits_B_V))
        self.held += logits_B_V.numel()
        if self.held >= HELD:
            self._write()

    def _write(self) -> None:
        t_K, row_K, token_K, logits_K_V = (torch.cat(parts) for parts in zip(*self.steps, strict=True))
        log_p_K_V = torch.log_softmax(logits_K_V, -1)
        self.ids_N_T[row_K, t_K] = token_K
        self.logprob_N_T[row_K, t_K] = log_p_K_V.gather(1, token_K[:, None])[:, 0]
        self.entropy_N_T[row_K, t_K] = -(log_p_K_V.exp() * log_p_K_V).sum(-1)
        self.tokens_N += torch.bincount(row_K, minlength=len(self.tokens_N))
        self.steps, self.held = [], 0

    def responses(self, eos: int, prompt_tokens_N: torch.Tensor) -> Responses:
        if self.steps:
            self._write()
        used = slice(0, int(self.tokens_N.max()))
        columns = (self.ids_N_T[:, used], self.logprob_N_T[:, used], self.entropy_N_T[:, used])
        mask_N_T = torch.arange(used.stop, device=self.tokens_N.device) < self.tokens_N[:, None]
        finished_N = self.ids_N_T.gather(1, self.tokens_N[:, None] - 1)[:, 0] == eos
        entering_N_T_D = None if self.entering_N_T_D is None else self.entering_N_T_D[:, used]
        return Responses(*columns, mask_N_T, finished_N, prompt_tokens_N, entering_N_T_D)
