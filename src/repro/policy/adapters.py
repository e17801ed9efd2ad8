"""What of a language model a CPU can train: adapters of low rank in its upper layers.

An adapter is a parametrisation of a linear layer's weight (Hu et al., 2021), which then *is* the adapted one, for
transformers as for `repro.policy.lean`: sampling and updates multiply by the same matrices, also where these are
rounded to eight bits.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from repro.policy.model import load_policy
from repro.settings import Engine

SCALE = 2.0


class LowRank(nn.Module):
    """W ↦ W + 2·B·A in W's own precision: A_R_I drawn with variance 1/I, and B_O_R zero at first."""

    def __init__(self, weight_O_I: torch.Tensor, rank: int, generator: torch.Generator):
        super().__init__()
        outputs, inputs = weight_O_I.shape
        drawn_R_I = torch.randn(rank, inputs, generator=generator) / inputs**0.5
        self.A = nn.Parameter(drawn_R_I.to(weight_O_I.device))
        self.B = nn.Parameter(torch.zeros(outputs, rank, device=weight_O_I.device))

    def forward(self, weight_O_I: torch.Tensor) -> torch.Tensor:
        return weight_O_I + (SCALE * self.B @ self.A).to(weight_O_I.dtype)


def adapt(model: Any, rank: int, layers: int, seed: int) -> Any:
    """`model` itself, of which adapters in the last `layers` layers alone will train; what it computes stays."""
    generator = torch.Generator().manual_seed(seed)
    model.requires_grad_(False)
    for layer in model.model.layers[-layers:]:
        for part in [part for part in layer.modules() if type(part) is nn.Linear]:
            parametrize.register_parametrization(part, "weight", LowRank(part.weight, rank, generator), unsafe=True)
    return model


def merge(model: Any, dtype: torch.dtype) -> Any:
    """`model` itself, its adapters added to its weights in double precision, so that every machine rounds alike."""
    model.double()
    for part in [part for part in model.modules() if parametrize.is_parametrized(part)]:
        parametrize.remove_parametrizations(part, "weight", leave_parametrized=True)
    return model.to(dtype)


def trained(model: Any) -> dict[str, torch.Tensor]:
    """Of the model's state, what trains: all of it, or the adapters."""
    state, own = model.state_dict(), dict(model.named_parameters())
    learn = {name: state[name] for name, parameter in own.items() if parameter.requires_grad}
    return state if len(learn) == len(own) else learn


def load_learner(folder: Path, engine: Engine, seed: int = 0) -> tuple[Any, Any]:
    """(model, tokenizer) of the policy in `folder`, as `engine` trains it. seed: of the adapters, where these train."""
    model, tokenizer = load_policy(folder, engine.device, engine.dtype)
    if engine.adapter is not None:
        adapt(model, engine.adapter.rank, engine.adapter.layers, seed)
    return model, tokenizer
