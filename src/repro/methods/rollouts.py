"""Rollouts: a batch of scored responses as samplers see it, whichever engine generated it.

Two identities decouple samplers from engines. A positive weight folds into the advantage, since it commutes with the
PPO clip: min(r·wA, clip(r)·wA) = w·min(rA, clip(r)A). A token selection folds into the response mask. The output of a
sampler is therefore again a batch of rollouts: rows taken (possibly repeated), weights multiplied, masks narrowed.
"""

import copy
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from repro.errors import Refused

POSITIVE = ("prompt_tokens_N", "response_tokens_N", "weights_N", "group_weight_N")


class NotMeasured(Refused, AttributeError):
    """An array of the rollouts that this engine, or this setting of it, does not measure."""


class Unmeasured(NDArrayOperatorsMixin):
    """Stands for an array that was not measured: it may be carried along, and says so to whoever reads it."""

    def __init__(self, name: str):
        self._name = name

    def _read(self, *_: Any, **__: Any) -> NoReturn:
        raise NotMeasured(
            f"{self._name} was not measured for these rollouts: give it to `Rollouts.from_batch`, let the engine "
            "compute it, or choose a sampler that does not read it"
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # what copying and pickling ask for
            raise AttributeError(name)
        self._read()

    __array__ = __array_ufunc__ = __getitem__ = __iter__ = __len__ = __bool__ = __float__ = __int__ = _read


class NoSignal(ValueError):
    """Nothing to select by: every advantage in the batch is zero. The engine skips the update and logs it."""


@dataclass(frozen=True)
class Rollouts:
    """N rollouts, their response tokens padded on the right to width T.

    group_N            int    rollouts of one query in this batch share it
    rewards_N          float  the raw reward; 0 or 1 in the papers
    advantages_N       float  relative to the group (repro.methods.advantages)
    prompt_tokens_N    int    tokens of the prompt, at least 1
    response_tokens_N  int    tokens of the response, end of text included, at least 1
    response_mask_N_T  bool   the tokens that enter the loss
    entropy_N_T        float  entropy in nats of the sampling policy at each position, 0 off the mask
    logprob_N_T        float  log-probability in nats of each token under the sampling policy, 0 off the mask
    weights_N          float  importance weight, above 0; it multiplies the advantage in the loss
    group_weight_N     float  mean group size of the generated batch over the size of this rollout's group: each group
                              counts equally under `group-mean` (repro.methods.objectives.aggregate); averages 1
    row_N              int    position in the generated batch; repeats after a draw with replacement
    minibatches        int    optimiser steps to spend on these rows; None: as many as the whole batch would get
    """

    group_N: np.ndarray
    rewards_N: np.ndarray
    advantages_N: np.ndarray
    prompt_tokens_N: np.ndarray
    response_tokens_N: np.ndarray
    response_mask_N_T: np.ndarray
    entropy_N_T: np.ndarray
    logprob_N_T: np.ndarray
    weights_N: np.ndarray
    group_weight_N: np.ndarray
    row_N: np.ndarray
    minibatches: int | None = None

    @classmethod
    def from_batch(
        cls,
        *,
        group_N,
        rewards_N,
        advantages_N,
        prompt_tokens_N,
        response_tokens_N,
        response_mask_N_T=None,
        entropy_N_T=None,
        logprob_N_T=None,
    ) -> "Rollouts":
        """The whole batch as generated, every weight 1. Without a mask it is derived from the lengths; without entropy
        or log-probability, a sampler that reads it gets NotMeasured."""
        lengths_N = np.asarray(response_tokens_N)
        _, index_N, size_Q = np.unique(group_N, return_inverse=True, return_counts=True)
        if response_mask_N_T is None:
            whole_N = np.nan_to_num(lengths_N.astype(float), posinf=0.0)  # __post_init__ rejects a bad length
            response_mask_N_T = np.arange(max(1, int(np.max(whole_N, initial=1)))) < whole_N[:, None]
        mask_N_T = np.asarray(response_mask_N_T, bool)
        return cls(
            group_N=np.asarray(group_N),
            rewards_N=np.asarray(rewards_N, float),
            advantages_N=np.asarray(advantages_N, float),
            prompt_tokens_N=np.asarray(prompt_tokens_N),
            response_tokens_N=lengths_N,
            response_mask_N_T=mask_N_T,
            entropy_N_T=Unmeasured("entropy_N_T") if entropy_N_T is None else np.asarray(entropy_N_T),
            logprob_N_T=Unmeasured("logprob_N_T") if logprob_N_T is None else np.asarray(logprob_N_T),
            weights_N=np.ones(len(lengths_N)),
            group_weight_N=len(index_N) / max(1, len(size_Q)) / size_Q[index_N],
            row_N=np.arange(len(lengths_N)),
        )

    def __post_init__(self):
        self.check()

    def check(self) -> None:
        """ValueError, with the array and the place, on what is no batch."""
        for name, values in self._arrays.items():
            axes = 2 if name.endswith("_N_T") else 1
            if not isinstance(values, np.ndarray) or values.ndim != axes:
                raise ValueError(f"rollouts: {name} should be a numpy array of {axes} {'axes' if axes > 1 else 'axis'}")
        lengths = {name: len(values) for name, values in self._arrays.items()}
        n = lengths["advantages_N"]
        if odd := {name: length for name, length in lengths.items() if length != n}:
            raise ValueError(f"rollouts: {odd} do not match advantages_N with {n} rows; every array needs one row each")
        if n == 0:
            raise ValueError("rollouts: the batch is empty; generate at least one group before sampling from it")
        for name in ("rewards_N", "advantages_N", *POSITIVE):
            values = getattr(self, name)
            if values.dtype.kind not in "biuf":
                raise ValueError(f"rollouts: {name} should be one real number for each row")
            if not np.isfinite(values).all():
                where = int(np.flatnonzero(~np.isfinite(values))[0])
                raise ValueError(f"rollouts: {name}[{where}] is {values[where]}; every entry must be a finite number")
        for name in POSITIVE:
            values = getattr(self, name)
            if (values <= 0).any():
                where = int(np.flatnonzero(values <= 0)[0])
                raise ValueError(f"rollouts: {name}[{where}] is {values[where]}; a cost and a weight must be above 0")
        if self.response_mask_N_T.dtype != bool:
            raise ValueError(f"rollouts: response_mask_N_T is of {self.response_mask_N_T.dtype}; it should be of bool")
        for name in ("entropy_N_T", "logprob_N_T"):
            if (values := self._arrays.get(name)) is None:
                continue
            if values.shape != self.response_mask_N_T.shape:
                raise ValueError(
                    f"rollouts: {name} has shape {values.shape}, response_mask_N_T {self.response_mask_N_T.shape}; "
                    "they describe the same tokens and must agree"
                )
            if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
                raise ValueError(f"rollouts: {name} holds a NaN or an infinity; every entry must be a finite number")

    def __len__(self) -> int:
        return len(self.advantages_N)

    def __repr__(self) -> str:
        rollouts, groups = (len(np.unique(array)) for array in (self.row_N, self.group_N))
        return (
            f"Rollouts: {len(self)} draws of {rollouts} rollouts in {groups} groups, {(self.advantages_N != 0).sum()} "
            f"with an advantage; mean reward {self.rewards_N.mean():.3g}, {self.costs_N.mean():.3g} tokens"
        )

    def _repr_html_(self) -> str | None:
        # by its name, so that the picture is no part of the code that an arm's runs depend on
        return import_module("repro.methods.picture").shown(self)

    @property
    def _arrays(self) -> dict[str, np.ndarray]:
        """The arrays that were measured, by name."""
        entries = {f.name: vars(self)[f.name] for f in fields(self) if f.name != "minibatches"}
        return {name: values for name, values in entries.items() if not isinstance(values, Unmeasured)}

    def frozen(self) -> "Rollouts":
        """The same rollouts, whose arrays cannot be written to."""
        same = copy.copy(self)
        for name, values in vars(self).items():
            if isinstance(values, np.ndarray):
                vars(same)[name] = values.view()
                vars(same)[name].flags.writeable = False
        return same

    def measured(self, name: str) -> bool:
        """Whether the array of this name was measured, for a log that does without it."""
        return not isinstance(vars(self)[name], Unmeasured)

    @property
    def entropy_N(self) -> np.ndarray:
        """Mean entropy of each response in nats; NotMeasured if it was not measured."""
        return (self.entropy_N_T * self.response_mask_N_T).sum(1) / self.response_tokens_N

    def mean_entropy(self) -> float:
        """Mean entropy of the response tokens in nats; NotMeasured if it was not measured."""
        return float(self.entropy_N_T[self.response_mask_N_T].mean())

    @property
    def costs_N(self) -> np.ndarray:
        """c_i = prompt + response tokens, the cost of a pass over the rollout (Cost-Aware Learning §5.2)."""
        return self.prompt_tokens_N + self.response_tokens_N

    def take(self, rows_M: np.ndarray, weights_M: np.ndarray | None = None, minibatches: int | None = None):
        """The rollouts `rows_M` (positions, repeats allowed, order kept; or a boolean mask), their weights multiplied
        by `weights_M`. NoSignal if that leaves none."""
        rows_M = np.arange(len(self))[rows_M]  # turns a boolean mask into positions
        if len(rows_M) == 0:
            raise NoSignal("rollouts: no row was taken; a sampler must keep at least one rollout")
        taken = {name: vars(self)[name] for name in ("entropy_N_T", "logprob_N_T")}
        taken |= {name: values[rows_M] for name, values in self._arrays.items()}
        if weights_M is not None:
            taken["weights_N"] = taken["weights_N"] * weights_M
        return Rollouts(**taken, minibatches=minibatches if minibatches is not None else self.minibatches)

    def with_mask(self, response_mask_N_T: np.ndarray):
        """The same rollouts with their loss restricted to the given tokens."""
        return replace(self, response_mask_N_T=self.response_mask_N_T & response_mask_N_T)
