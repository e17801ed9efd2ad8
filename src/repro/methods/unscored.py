"""Rollouts whose entropies and log-probabilities are computed only if a sampler reads them.

Most samplers do not, and the pass that computes them reads every rollout of the batch. Nothing has to be declared: a
sampler says what it needs by reading it.
"""

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from repro.methods.rollouts import Rollouts

SCORES = ("entropy_N_T", "logprob_N_T")


class Unscored(Rollouts):
    """`Rollouts` with a promise in place of `SCORES`: a function that returns them, by name, for the whole batch. It is
    called when one is first read. What is taken from them, or copied by `dataclasses.replace`, has it too."""

    scores: Callable[[], dict[str, np.ndarray]] | None = None

    @classmethod
    def of(cls, rollouts: Rollouts, scores: Callable[[], dict[str, np.ndarray]]) -> "Unscored":
        return cls(**{**vars(rollouts), **dict.fromkeys(SCORES, scores)})

    def __post_init__(self):
        promise = vars(self)[SCORES[0]]
        if callable(promise):
            vars(self).update(dict.fromkeys(SCORES, np.zeros(self.response_mask_N_T.shape, np.float32)))
        super().__post_init__()
        if callable(promise):
            vars(self)["scores"] = promise

    def __getattribute__(self, name: str):
        if name not in SCORES or self.scores is None:
            return super().__getattribute__(name)
        if sys._getframe(1).f_code is replace.__code__:  # it copies every field, and reads none
            return self.scores
        return self.scores()[name][self.row_N]

    @property
    def plain(self) -> Rollouts:
        """The same rollouts without the promise: their `SCORES` are zero."""
        return Rollouts(**{name: value for name, value in vars(self).items() if name != "scores"})

    def take(self, rows_M: np.ndarray, weights_M: np.ndarray | None = None, minibatches: int | None = None):
        return Unscored.of(self.plain.take(rows_M, weights_M, minibatches), self.scores)

    def with_mask(self, response_mask_N_T: np.ndarray):
        return Unscored.of(self.plain.with_mask(response_mask_N_T), self.scores)
