"""Samplers: which rollouts train the policy, with what weight, and which of their tokens.

A sampler is a pure function `(rollouts, progress, rng, *, parameters) -> rollouts` in a module of the same name;
`progress` is the fraction of training steps done, from 0 to (steps − 1)/steps. Samplers chain: each gets the output of
the one before. To add one, write `samplers/my_sampler.py` with a function `my_sampler` and name it in an arm of
`params.yaml`; nothing else is needed.
"""

from collections.abc import Callable, Sequence

import numpy as np

from repro.methods.rollouts import NoSignal, Rollouts

Sampler = Callable[[Rollouts, float, np.random.Generator], Rollouts]


def apply_chain(chain: Sequence[Sampler], rollouts: Rollouts, progress: float, rng: np.random.Generator) -> Rollouts:
    """The output of the last sampler; NoSignal if it is empty or has no advantage other than zero."""
    for sampler in chain:
        name = getattr(getattr(sampler, "func", sampler), "__name__", sampler)
        try:
            chosen = sampler(rollouts, progress, rng)
        except NoSignal:
            raise
        except Exception as error:
            raise RuntimeError(f"sampler {name}: {type(error).__name__}: {error}") from error
        if not isinstance(chosen, Rollouts):
            raise TypeError(f"sampler {name} returned {type(chosen).__name__}; it should return Rollouts, by `take`")
        rollouts = chosen
    if not (rollouts.advantages_N[:, None] * rollouts.response_mask_N_T).any():
        raise NoSignal("no token left to train on has an advantage; skip the update")
    return rollouts


def effective_sample_size(weights_N: np.ndarray) -> float:
    """Kish's (Σw)²/Σw²: the number of equally weighted rollouts the weighted ones are worth; N if all are equal."""
    return float(weights_N.sum() ** 2 / np.square(weights_N).sum())
