"""The base policy of the settings: pre-trained here, or loaded from a folder or hub id."""

import time
from collections.abc import Callable
from typing import Any

import pandas as pd

from repro.policy.model import build_qwen2, load_policy
from repro.policy.pretrain import pretrain
from repro.settings import Policy
from repro.tasks.demonstrations import Mixture
from repro.tasks.queries import QueryPools


def make_base_policy(policy: Policy, pools: QueryPools, say: Callable[[str], None] = print) -> tuple[Any, pd.DataFrame]:
    """(model, history): history has one row per pre-training step (step, loss, gradient_norm), none for a loaded model.

    The number of threads comes from the settings, because it determines the order of summation and so the bits.
    """
    import torch

    if policy.source is not None:
        return load_policy(policy.source)[0], pd.DataFrame(columns=["step", "loss", "gradient_norm"])
    threads = torch.get_num_threads()
    torch.set_num_threads(policy.threads)
    torch.manual_seed(policy.seed)
    model = build_qwen2(policy.hidden, policy.layers, policy.heads, policy.max_length, policy.key_value_heads)
    started = time.monotonic()

    def progress(step: int, loss: float) -> None:
        left = (time.monotonic() - started) / step * (policy.steps - step)
        say(f"policy  step {step:>4}/{policy.steps}  loss {loss:.3f} nats/token, about {left:.0f} s left")

    history = pretrain(
        model,
        pools.pretraining,
        Mixture(**policy.demonstrations.model_dump(exclude={"clean"})),
        steps=policy.steps,
        batch=policy.batch,
        learning_rate=policy.learning_rate,
        seed=policy.seed,
        clean=policy.demonstrations.clean,
        progress=progress,
    )
    torch.set_num_threads(threads)
    return model, pd.DataFrame(history)
