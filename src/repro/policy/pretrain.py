"""Pre-train the base policy on demonstrations: supervised next-token prediction on response tokens only."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from repro.policy.lean import Lean
from repro.tasks.demonstrations import Mixture, demonstrate
from repro.tasks.queries import Query
from repro.tasks.tokenizer import EOS, SYMBOLS


def pretrain(
    model: Any,
    queries: Sequence[Query],
    mixture: Mixture,
    *,
    steps: int,
    batch: int,
    learning_rate: float,
    seed: int,
    clean: float = 0.0,
    progress: Callable[[int, float], None] | None = None,
) -> list[dict[str, float]]:
    """Train `model` in place for `steps` batches of `batch` fresh demonstrations of random `queries`. clean: the share
    of the steps, from the first, whose demonstrations have no bugs: a policy that sees wrong procedures from the start
    does not learn its facts.

    AdamW, linear warm-up over 5% of the steps and a cosine down to 5% of `learning_rate`, gradient norm clipped at 1.
    Each batch is sorted by length into four blocks to reduce padding. Returns one row per step: step, loss (nats per
    response token), gradient_norm.
    """
    import torch

    rng, right = random.Random(seed), replace(mixture, bugs={})
    optimiser = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    history, lean = [], Lean(model)
    model.train()
    for step in range(steps):
        rate = learning_rate * min(1.0, (step + 1) / max(1, steps // 20))
        rate *= 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps))
        for group in optimiser.param_groups:
            group["lr"] = rate
        texts = []
        for _ in range(batch):
            query = rng.choice(queries)
            shown = right if step < clean * steps else mixture
            texts.append((query.prompt, demonstrate(query, shown, rng) + EOS))
        loss = _accumulate_gradients(lean, sorted(texts, key=lambda pair: len(pair[0] + pair[1])))
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        history.append({"step": step, "loss": loss, "gradient_norm": float(norm)})
        if progress and (step % 100 == 99 or step == steps - 1):
            progress(step + 1, loss)
    model.eval()
    return history


def _accumulate_gradients(lean: Lean, texts: list[tuple[str, str]]) -> float:
    """Backward through the mean loss over all response tokens of `texts`, packed as four blocks of similar length;
    returns it."""
    import torch

    code = {symbol: index for index, symbol in enumerate(SYMBOLS)}
    ids, targets, positions, shapes = [], [], [], []
    for start in range(0, len(texts), max(1, len(texts) // 4)):
        part = texts[start : start + max(1, len(texts) // 4)]
        width = max(len(prompt) + len(response) for prompt, response in part)
        read_R_L, target_R_L = torch.zeros(len(part), width, dtype=torch.long), torch.full((len(part), width), -100)
        for row, (prompt, response) in enumerate(part):
            tokens = torch.tensor([1] + [code[symbol] for symbol in prompt + response])
            read_R_L[row, : len(tokens) - 1] = tokens[:-1]
            target_R_L[row, len(prompt) : len(tokens) - 1] = tokens[1 + len(prompt) :]
        ids.append(read_R_L.flatten())
        targets.append(target_R_L.flatten())
        positions.append(torch.arange(width).repeat(len(part)))
        shapes.append((len(part), width))  # right padding, causal attention: no mask
    target_S = torch.cat(targets)
    lean.reach(max(width for _, width in shapes))
    x_S_D = lean.run(lean.weights(), torch.cat(ids), torch.cat(positions), lean.causal(shapes))
    predict_K = (target_S >= 0).nonzero()[:, 0]
    loss = torch.nn.functional.cross_entropy(lean.logits(x_S_D[predict_K]), target_S[predict_K])
    loss.backward()
    return float(loss.detach())
