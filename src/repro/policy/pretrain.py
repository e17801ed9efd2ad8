"""Pre-train the base policy on demonstrations: supervised next-token prediction on response tokens only."""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

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
    progress: Callable[[int, float], None] | None = None,
) -> list[dict[str, float]]:
    """Train `model` in place for `steps` batches of `batch` fresh demonstrations of random `queries`.

    AdamW, linear warm-up over 5% of the steps and a cosine down to 5% of `learning_rate`, gradient norm clipped at 1.
    Each batch is sorted by length into four slices to reduce padding. Returns one row per step: step, loss (nats per
    response token), gradient_norm.
    """
    import torch

    rng = random.Random(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    history = []
    model.train()
    for step in range(steps):
        rate = learning_rate * min(1.0, (step + 1) / max(1, steps // 20))
        rate *= 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps))
        for group in optimiser.param_groups:
            group["lr"] = rate
        texts = []
        for _ in range(batch):
            query = rng.choice(queries)
            texts.append((query.prompt, demonstrate(query, mixture, rng) + EOS))
        loss = _accumulate_gradients(model, sorted(texts, key=lambda pair: len(pair[0] + pair[1])))
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        history.append({"step": step, "loss": loss, "gradient_norm": float(norm)})
        if progress and (step % 100 == 99 or step == steps - 1):
            progress(step + 1, loss)
    model.eval()
    return history


def _accumulate_gradients(model: Any, texts: list[tuple[str, str]]) -> float:
    """Backward through the mean loss over all response tokens of `texts`, in slices of similar length; returns it."""
    import torch

    code = {symbol: index for index, symbol in enumerate(SYMBOLS)}
    response_tokens = sum(len(response) for _, response in texts)
    total = 0.0
    for start in range(0, len(texts), max(1, len(texts) // 4)):
        part = texts[start : start + max(1, len(texts) // 4)]
        width = max(len(prompt) + len(response) for prompt, response in part) + 1
        ids = torch.zeros(len(part), width, dtype=torch.long)
        labels = torch.full((len(part), width), -100)
        for row, (prompt, response) in enumerate(part):
            tokens = torch.tensor([1] + [code[symbol] for symbol in prompt + response])
            ids[row, : len(tokens)] = tokens
            labels[row, 1 + len(prompt) : len(tokens)] = tokens[1 + len(prompt) :]
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1]  # right padding, causal attention: no mask
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
        (loss / response_tokens).backward()
        total += float(loss.detach())
    return total / response_tokens
