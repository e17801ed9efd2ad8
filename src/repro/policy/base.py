"""The base policy of the settings: pre-trained here, loaded from a folder or hub id, or tuned from such a model."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from repro.policy.adapters import adapt
from repro.policy.model import build_qwen2, load_policy
from repro.policy.pretrain import pretrain
from repro.policy.vocabulary import cut, tokenizer_of
from repro.settings import Policy
from repro.tasks.demonstrations import Mixture, demonstrate
from repro.tasks.queries import QueryPools

EACH = 4  # demonstrations of a query in a batch of a language model's, which then reads the question once


def make_base_policy(policy: Policy, pools: QueryPools, say: Callable[[str], None] = print) -> tuple[Any, pd.DataFrame]:
    """(model, history): history has one row per pre-training step (step, loss, gradient_norm), none for a loaded model.

    The number of threads comes from the settings, because it determines the order of summation and so the bits.
    """
    if policy.source is not None:
        return load_policy(policy.source)[0], pd.DataFrame(columns=["step", "loss", "gradient_norm"])
    import torch

    torch.manual_seed(policy.seed)
    model = build_qwen2(policy.hidden, policy.layers, policy.heads, policy.max_length, policy.key_value_heads)
    return model, _pretrained(model, policy, pools, say)


def tune(
    policy: Policy, pools: QueryPools, source: Path, kept: Path, say: Callable[[str], None] = print
) -> tuple[Any, Any, pd.DataFrame]:
    """(model, tokenizer, history): the language model in the folder `source`, its vocabulary cut to the task's, with
    adapters of `policy.rank` in all layers that have learnt from demonstrations. kept: a file from which a call that
    was cut off goes on."""
    mixture, rng = _mixture(policy), random.Random(policy.seed)
    shown = (query.prompt + demonstrate(query, mixture, rng) for query in [*pools.pretraining, *pools.pretraining])
    tokenizer = tokenizer_of(shown)
    model, own = load_policy(source, dtype="bfloat16")
    adapt(cut(model, own, tokenizer), policy.rank, len(model.model.layers), policy.seed)
    history = _pretrained(model, policy, pools, say, tokenizer=tokenizer, each=EACH, kept=kept)
    return model, tokenizer, history


def _mixture(policy: Policy) -> Mixture:
    return Mixture(**policy.demonstrations.model_dump(exclude={"clean"}))


def _pretrained(model: Any, policy: Policy, pools: QueryPools, say: Callable[[str], None], **how: Any) -> pd.DataFrame:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(policy.threads)
    started = time.monotonic()

    def progress(step: int, loss: float) -> None:
        left = (time.monotonic() - started) / step * (policy.steps - step)
        say(f"policy  step {step:>4}/{policy.steps}  loss {loss:.3f} nats/token, about {left:.0f} s left")

    history = pretrain(
        model,
        pools.pretraining,
        _mixture(policy),
        steps=policy.steps,
        batch=policy.batch,
        learning_rate=policy.learning_rate,
        seed=policy.seed,
        clean=policy.demonstrations.clean,
        progress=progress,
        **how,
    )
    torch.set_num_threads(threads)
    return pd.DataFrame(history)
