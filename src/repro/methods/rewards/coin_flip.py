"""A control: rewards that are independent of the response."""

from typing import Annotated

import numpy as np
from pydantic import Field


def coin_flip(
    rewards_N: np.ndarray, rng: np.random.Generator, *, probability: Annotated[float, Field(gt=0, lt=1)] = 0.5
) -> np.ndarray:
    """rewards_N: 1 with `probability`, else 0, whatever the response (the random reward of Shao et al., 2025, "Spurious
    rewards"). Any gain of such an arm is due to clipping, regularisation or chance, not to the verifier.

    >>> coin_flip(np.array([1.0, 0.0, 0.0, 1.0]), np.random.default_rng(0))
    array([0., 1., 1., 1.])
    """
    return (rng.random(len(rewards_N)) < probability).astype(float)
