"""Floating-point operations where adapters train and the model's own weights are frozen (LoRA)."""

from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from repro.policy.flops import FlopCounter


@dataclass(frozen=True)
class LoraFlops(FlopCounter):
    """A backward pass is 2 · 2 · matmul_parameters FLOPs a token, half for gradients of activations, half for those of
    weights; the latter are not computed for the `frozen` parameters among them. (Nor are those of the first layer's
    inputs, which count here.)"""

    frozen: int = 0

    def forward_backward(self, lengths_N: np.ndarray) -> float:
        return super().forward_backward(lengths_N) - 2.0 * self.frozen * float(np.sum(lengths_N))


def counter_of(model: Any, lora: bool = False) -> FlopCounter:
    """The counter of a transformers causal model, with PEFT's adapters or without; `lora`: it is yet to have them."""
    counted = FlopCounter.of(model)
    adapters = sum(p.numel() for name, p in model.named_parameters() if "lora_" in name and p.dim() > 1)
    if not (lora or adapters):
        return counted
    return LoraFlops(*astuple(counted), frozen=counted.matmul_parameters - adapters)
