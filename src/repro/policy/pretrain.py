"""Pre-train the base policy on demonstrations: supervised next-token prediction on response tokens only."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from repro.files import write_whole
from repro.policy.adapters import trained
from repro.policy.lean import Lean
from repro.policy.shared import response_logits
from repro.tasks.demonstrations import Mixture, demonstrate
from repro.tasks.queries import Query
from repro.tasks.tokenizer import EOS, SYMBOLS

KEEP = 20  # steps of a language model between two savings


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
    tokenizer: Any = None,
    each: int = 1,
    kept: Path | None = None,
) -> list[dict[str, float]]:
    """Train `model` in place for `steps` batches of `batch` fresh demonstrations, `each` of every query, of random
    `queries`. clean: the share of the steps, from the first, whose demonstrations have no bugs: a policy that sees
    wrong procedures from the start does not learn its facts. tokenizer: a language model's, of which adapters train.
    kept: a file from which a later call goes on.

    AdamW, linear warm-up over 5% of the steps and a cosine down to 5% of `learning_rate`, gradient norm clipped at 1.
    Returns one row per step: step, loss (nats per
    response token), gradient_norm.
    """
    import torch

    rng, right = random.Random(seed), replace(mixture, bugs={})
    optimiser = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    history, lean, end = [], Lean(model), EOS if tokenizer is None else tokenizer.eos_token
    if kept is not None and kept.exists():
        history = _restore(kept, model, optimiser, rng)
    model.train()
    for step in range(len(history), steps):
        rate = learning_rate * min(1.0, (step + 1) / max(1, steps // 20))
        rate *= 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps))
        for group in optimiser.param_groups:
            group["lr"] = rate
        texts = []
        for _ in range(batch // each):
            query = rng.choice(queries)
            shown = right if step < clean * steps else mixture
            texts += [(query.prompt, demonstrate(query, shown, rng) + end) for _ in range(each)]
        loss = _accumulate_gradients(lean, texts) if tokenizer is None else _shared_gradients(lean, texts, tokenizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        history.append({"step": step, "loss": loss, "gradient_norm": float(norm)})
        if kept is not None and step % KEEP == KEEP - 1:
            _keep(kept, model, optimiser, rng, history)
        if progress and (step % 100 == 99 or step == steps - 1 or (kept and step % KEEP == KEEP - 1)):
            progress(step + 1, loss)
    model.eval()
    return history


def _keep(path: Path, model: Any, optimiser: Any, rng: random.Random, history: list[dict[str, float]]) -> None:
    import torch

    state = {"model": trained(model), "optimiser": optimiser.state_dict(), "rng": rng.getstate(), "history": history}
    write_whole(path, lambda partial: torch.save(state, partial))


def _restore(path: Path, model: Any, optimiser: Any, rng: random.Random) -> list[dict[str, float]]:
    import torch

    state = torch.load(path, weights_only=True)
    model.load_state_dict(model.state_dict() | state["model"])
    optimiser.load_state_dict(state["optimiser"])
    rng.setstate(state["rng"])
    return state["history"]


def _shared_gradients(lean: Lean, texts: list[tuple[str, str]], tokenizer: Any) -> float:
    """As `_accumulate_gradients`, of a language model: neighbours with the same prompt read it once."""
    import torch

    groups = []
    for prompt, same in groupby(texts, key=lambda pair: pair[0]):
        responses = tokenizer([response for _, response in same])["input_ids"]
        groups.append((tokenizer(prompt)["input_ids"], [torch.tensor(ids) for ids in responses]))
    loss = torch.nn.functional.cross_entropy(*response_logits(lean, groups))
    loss.backward()
    return float(loss.detach())


def _accumulate_gradients(lean: Lean, texts: list[tuple[str, str]]) -> float:
    """Backward through the mean loss over all response tokens of `texts`, packed as four blocks of similar length, to
    reduce padding; returns it."""
    import torch

    texts = sorted(texts, key=lambda pair: len(pair[0] + pair[1]))
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
