"""Floating-point operations of a decoder, counted as in the scaling literature."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class FlopCounter:
    """FLOPs of passes over token sequences.

    A multiply-add is 2 FLOPs. A forward pass over a token at position t (1-based) costs

        2 · matmul_parameters + 4 · layers · width · t

    (Kaplan et al., 2020, §2.1; PaLM, App. B): every weight matrix once, including the tied output head but not the
    input embedding (a look-up), plus queries against t keys and attention over t values. A backward pass costs twice
    its forward pass. Norms, softmax and activations are left out, as in these papers.
    """

    matmul_parameters: int
    layers: int
    width: int

    @classmethod
    def of(cls, model: Any) -> "FlopCounter":
        """The counter of a transformers causal model; AttributeError without a transformers config."""
        config = model.config
        embedding = model.get_input_embeddings().weight.numel()
        head = config.hidden_size * config.vocab_size
        added = (".A", ".B")  # of adapters, which are added to a weight once
        total = sum(p.numel() for name, p in model.named_parameters() if p.dim() > 1 and not name.endswith(added))
        matmul = total - embedding + (head if config.tie_word_embeddings else 0)
        return cls(matmul, config.num_hidden_layers, config.num_attention_heads * _head_width(config))

    def forward(self, lengths_N: np.ndarray, start_N: np.ndarray | int = 0) -> float:
        """FLOPs of reading `lengths_N` tokens after `start_N` cached ones, summed over N sequences."""
        lengths_N = np.asarray(lengths_N, float)
        positions = (lengths_N * start_N + lengths_N * (lengths_N + 1) / 2).sum()
        return float(2.0 * self.matmul_parameters * lengths_N.sum() + 4.0 * self.layers * self.width * positions)

    def forward_backward(self, lengths_N: np.ndarray) -> float:
        """FLOPs of one training pass over N sequences of `lengths_N` tokens."""
        return 3.0 * self.forward(lengths_N)


def _head_width(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
