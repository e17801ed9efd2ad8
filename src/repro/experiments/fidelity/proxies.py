"""Proxies of a rollout's gradient norm, and what each of them needs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

# What a proxy needs beyond advantages and lengths, from free to expensive.
Needs = Literal["nothing", "log-probabilities", "entropies", "errors", "error vectors", "hidden states"]
UNIFORM = "uniform"  # in tables, the row for p = 1/N, the reference for all proxies
WHILE_SAMPLING = ("nothing", "log-probabilities", "entropies", "errors")  # at most one number per token


@dataclass(frozen=True)
class Known:
    """Inputs of the proxies for N rollouts. Sums run over response tokens, T of them; e_t = onehot(y_t) − π_t.

    divisor_N is what the aggregation divides a rollout's summed token losses by: T for the sequence mean, else 1.
    """

    advantages_N: np.ndarray
    tokens_N: np.ndarray
    divisor_N: np.ndarray
    entropy_N: np.ndarray  # Σ_t H_t, nats
    surprise_square_N: np.ndarray  # Σ_t (1 − π(y_t))²
    error_square_N: np.ndarray  # Σ_t ‖e_t‖²
    error_sum_N: np.ndarray  # ‖Σ_t e_t‖
    output_layer_N: np.ndarray  # ‖Σ_t e_t ⊗ h_t‖


@dataclass(frozen=True)
class Proxy:
    """`formula` is TeX, d the divisor; `label` is for figures, which show only the sequence mean, d = T. `of` leaves
    out the factor |A|, which all but one have."""

    label: str
    formula: str
    needs: Needs
    of: Callable[[Known], np.ndarray]
    signed: bool = True  # whether |A| is a factor of it

    def __call__(self, known: Known) -> np.ndarray:
        """proxy_N; its scale has no meaning."""
        return self.of(known) * np.abs(known.advantages_N) if self.signed else self.of(known)


# The scores of a response's tokens are a martingale difference sequence, so E‖Σ_t ∇log π(y_t)‖² = Σ_t E‖∇log π(y_t)‖²:
# contributions of tokens add up in squares, hence the roots of sums. d is the aggregation's divisor.
PROXIES: dict[str, Proxy] = {
    "constant": Proxy("1", "1", "nothing", lambda k: np.ones(len(k.tokens_N)), signed=False),
    "advantage": Proxy("|A|", r"\lvert A\rvert", "nothing", lambda k: np.ones(len(k.tokens_N))),
    "times-root-length": Proxy("|A| √T", r"\lvert A\rvert\sqrt{T}", "nothing", lambda k: np.sqrt(k.tokens_N)),
    "over-root-length": Proxy("|A| / √T", r"\lvert A\rvert/\sqrt{T}", "nothing", lambda k: k.tokens_N**-0.5),
    "mean-entropy": Proxy(
        "|A| · mean H", r"\lvert A\rvert\,\frac{1}{T}\sum_t H_t", "entropies", lambda k: k.entropy_N / k.tokens_N
    ),
    "root-entropy": Proxy(
        "|A| √ΣH / T", r"\lvert A\rvert\sqrt{\sum_t H_t}/d", "entropies", lambda k: np.sqrt(k.entropy_N) / k.divisor_N
    ),
    "surprise": Proxy(
        "|A| √Σ(1−π)² / T",
        r"\lvert A\rvert\sqrt{\sum_t (1-\pi(y_t))^2}/d",
        "log-probabilities",
        lambda k: np.sqrt(k.surprise_square_N) / k.divisor_N,
    ),
    "error": Proxy(
        "|A| √Σ‖e‖² / T",
        r"\lvert A\rvert\sqrt{\sum_t \lVert e_t\rVert^2}/d",
        "errors",
        lambda k: np.sqrt(k.error_square_N) / k.divisor_N,
    ),
    "error-sum": Proxy(
        "|A| ‖Σe‖ / T",
        r"\lvert A\rvert\,\lVert\sum_t e_t\rVert/d",
        "error vectors",
        lambda k: k.error_sum_N / k.divisor_N,
    ),
    "output-layer": Proxy(
        "|A| ‖Σ e⊗h‖ / T",
        r"\lvert A\rvert\,\lVert\sum_t e_t\otimes h_t\rVert/d",
        "hidden states",
        lambda k: k.output_layer_N / k.divisor_N,
    ),
}
