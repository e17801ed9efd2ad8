"""How long responses are: what a reward or an advantage may know of them apart from the verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Lengths:
    """Of N responses, read-only:

    tokens_N      int    response tokens, end of text included, at least 1
    truncated_N   bool   whether the response was cut off at the longest that is allowed
    longest       int    tokens of the longest response allowed
    """

    tokens_N: np.ndarray
    truncated_N: np.ndarray
    longest: int

    def __post_init__(self):
        for name in ("tokens_N", "truncated_N"):
            view = np.asarray(getattr(self, name)).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)

    def take(self, rows_M: np.ndarray) -> "Lengths":
        """Those of the responses `rows_M` (positions, repeats allowed; or a boolean mask)."""
        return Lengths(self.tokens_N[rows_M], self.truncated_N[rows_M], self.longest)

    @classmethod
    def joined(cls, parts: Sequence["Lengths"]) -> "Lengths":
        """Those of several batches of one run."""
        tokens_N, truncated_N = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("tokens_N", "truncated_N")
        )
        return cls(tokens_N, truncated_N, parts[0].longest)
