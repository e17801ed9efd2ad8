"""Samplers: which rollouts train the policy, with what weight, and which of their tokens.

A sampler is a pure function `(rollouts, progress, rng, *, parameters) -> rollouts` in a module of the same name;
`progress` is the fraction of training steps done, from 0 to (steps − 1)/steps. Samplers chain: each gets the output of
the one before, read-only (`take` copies), and may read what the engine measured. To add one, write
`samplers/my_sampler.py` with a function `my_sampler` and name it in an arm of `params.yaml`; nothing else is needed.
"""

from collections.abc import Callable, Sequence

import numpy as np

from repro.errors import brief
from repro.methods.guard import MethodError, call, name_of
from repro.methods.rollouts import NoSignal, Rollouts

MOST = 100  # times a batch's rows that a sampler may return
Sampler = Callable[[Rollouts, float, np.random.Generator], Rollouts]


def apply_chain(chain: Sequence[Sampler], rollouts: Rollouts, progress: float, rng: np.random.Generator) -> Rollouts:
    """The output of the last sampler; NoSignal if it is empty or has no advantage other than zero. MethodError, with
    the sampler's name, if one fails or returns what is no part of its input. A sampler cannot write to its input.

    >>> from repro.methods.samplers.cost_aware import cost_aware
    >>> from repro.methods.samplers.zero_variance import zero_variance
    >>> batch = Rollouts.from_batch(
    ...     group_N=[0, 0, 1, 1], rewards_N=[1, 0, 1, 1],
    ...     advantages_N=[1.0, -1.0, 0.0, 0.0],
    ...     prompt_tokens_N=[8, 8, 8, 8], response_tokens_N=[10, 44, 16, 53],
    ... )
    >>> apply_chain([zero_variance, cost_aware], batch, 0.0, np.random.default_rng(0)).row_N
    array([1, 0])
    """
    batch = rollouts
    for sampler in chain:
        chosen = call("sampler", sampler, rollouts.frozen(), progress, rng, rng=rng)
        if not isinstance(chosen, Rollouts):
            said = f"returned {type(chosen).__name__}; it should return Rollouts, by `take`"
        else:
            said = _wrong(chosen, rollouts, len(batch))
        if said:
            raise MethodError(f"sampler {name_of(sampler)} {said}")
        rollouts = chosen
    if not (rollouts.advantages_N[:, None] * rollouts.response_mask_N_T).any():
        raise NoSignal("no token left to train on has an advantage; skip the update")
    return rollouts


def _wrong(chosen: Rollouts, given: Rollouts, n: int) -> str:
    """What of `chosen` is not of the sampler's input, `given`, and the cure; "" if all is. n: rows of the batch, which
    bound what a chain may return, however few an earlier sampler has left."""
    try:
        chosen.check()
    except Exception as error:
        return f"returned what is no batch: {error}"
    row_M = chosen.row_N
    if len(row_M) > MOST * n:
        return f"returned {len(row_M)} rows of a batch of {n}; take at most {MOST} times as many"
    order = np.argsort(given.row_N, kind="stable")
    row_U, start_U = np.unique(given.row_N[order], return_index=True)
    there = f"the batch of {n}" + (", or what an earlier sampler left of it," if len(row_U) < n else "")
    if row_M.dtype.kind not in "iu" or not np.isin(row_M, row_U).all():
        return f"returned rows that {there} does not have; choose among its rows, by `take`"
    at_M = np.searchsorted(row_U, row_M)
    for name in ("prompt_tokens_N", "response_tokens_N"):
        if (getattr(chosen, name) != getattr(given, name)[order][start_U][at_M]).any():
            return f"changed {name}; choose among the batch's rows, by `take`, and leave their lengths as they are"
    mask_U_T = np.logical_or.reduceat(given.response_mask_N_T[order], start_U)  # copies may be masked differently
    mask_M_T = mask_U_T[at_M]
    if chosen.response_mask_N_T.shape != mask_M_T.shape or (chosen.response_mask_N_T & ~mask_M_T).any():
        return "selected tokens that the responses do not have, or no more; narrow the mask, by `with_mask`"
    steps = chosen.minibatches
    if steps is not None and not (isinstance(steps, int | np.integer) and 1 <= steps <= MOST * n):
        return f"asks for {brief(steps)} mini-batches; give a whole number of at least 1"
    return ""


def effective_sample_size(weights_N: np.ndarray) -> float:
    """Kish's (Σw)²/Σw²: the number of equally weighted rollouts the weighted ones are worth; N if all are equal.

    >>> effective_sample_size(np.array([1.0, 1.0, 2.0]))
    2.6666666666666665
    """
    return float(weights_N.sum() ** 2 / np.square(weights_N).sum())
