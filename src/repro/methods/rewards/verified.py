"""The verifier's reward, unchanged."""

import numpy as np


def verified(rewards_N: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """rewards_N: 1 for a finished response with the correct answer, else 0.

    >>> verified(np.array([1.0, 0.0]), np.random.default_rng(0))
    array([1., 0.])
    """
    return rewards_N
