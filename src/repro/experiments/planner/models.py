"""The layer sizes of the models that the papers train, from their public config.json files.

The papers name the models but give no sizes; this transcription is ours. tests/test_planner.py compares every count
with that of transformers' own model, built with the same sizes.
"""

from dataclasses import dataclass

from repro.policy.flops import FlopCounter

BFLOAT16 = 2  # bytes


@dataclass(frozen=True)
class Architecture:
    """A decoder with grouped-query attention and a gated feed-forward layer.

    `biased`: queries, keys and values have biases (Qwen2). `normed`: queries and keys are normalised per head (Qwen3).
    """

    family: str
    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    head_width: int
    feed_forward: int
    vocabulary: int
    tied: bool
    biased: bool = False
    normed: bool = False

    @property
    def matmul_parameters(self) -> int:
        """Weights of the matrix products that every token goes through: with the output head, without the embedding."""
        queries, keys = self.heads * self.head_width, self.key_value_heads * self.head_width
        layer = 2 * self.hidden * queries + 2 * self.hidden * keys + 3 * self.hidden * self.feed_forward
        return self.layers * layer + self.hidden * self.vocabulary

    @property
    def parameters(self) -> int:
        """All weights."""
        embedding = 0 if self.tied else self.hidden * self.vocabulary  # if tied, it is the head, already counted
        queries, keys = self.heads * self.head_width, self.key_value_heads * self.head_width
        small = 2 * self.hidden + self.biased * (queries + 2 * keys) + self.normed * 2 * self.head_width
        return self.matmul_parameters + embedding + self.layers * small + self.hidden

    @property
    def cache_bytes(self) -> int:
        """Bytes of one token's keys and values, in bfloat16."""
        return 2 * self.layers * self.key_value_heads * self.head_width * BFLOAT16

    @property
    def counter(self) -> FlopCounter:
        """The ledger's formulas for this model."""
        return FlopCounter(self.matmul_parameters, self.layers, self.heads * self.head_width)


_QWEN_1_5B = Architecture("qwen2", 1536, 28, 12, 2, 128, 8960, 151936, tied=True, biased=True)
_LLAMA_8B = Architecture("llama", 4096, 32, 32, 8, 128, 14336, 128256, tied=False)

ARCHITECTURES = {
    "Qwen/Qwen2.5-Math-1.5B-Instruct": _QWEN_1_5B,
    "Qwen/Qwen2.5-Math-1.5B": _QWEN_1_5B,
    "Qwen/Qwen2.5-Math-7B": Architecture("qwen2", 3584, 28, 28, 4, 128, 18944, 152064, tied=False, biased=True),
    "Qwen/Qwen3-4B": Architecture("qwen3", 2560, 36, 32, 8, 128, 9728, 151936, tied=True, normed=True),
    "Qwen/Qwen3-8B": Architecture("qwen3", 4096, 36, 32, 8, 128, 12288, 151936, tied=False, normed=True),
    "meta-llama/Llama-3.1-8B-Instruct": _LLAMA_8B,
    "nvidia/OpenMath2-Llama3.1-8B": _LLAMA_8B,
}
