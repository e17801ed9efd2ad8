"""Rewards normalised within the group."""

from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.advantages import deviations, equal_rewards


def group_normalised(
    rewards_N: np.ndarray, group_N: np.ndarray, *, delta: Annotated[float, Field(ge=0)] = 1e-6
) -> np.ndarray:
    """A_N: A_i = (r_i − mean_group) / (std_group + δ), GRPO's advantage (Shao et al., 2024; Cost-Aware Learning §5.2).

    The standard deviation is the population's (divides by G), as in D³S eq. 35; D³S eq. 2 has no δ. A group whose
    rewards are all equal gets exactly 0 rather than rounding noise divided by δ. ValueError on a reward that is not
    finite.

    >>> group_normalised(np.array([1, 0, 1, 1]), np.array([0, 0, 1, 1])).round(3)
    array([ 1., -1.,  0.,  0.])
    """
    centred_N, index_N = deviations(rewards_N, group_N)
    std_Q = np.sqrt(np.bincount(index_N, centred_N**2) / np.bincount(index_N))
    silent_N = equal_rewards(rewards_N, group_N)[index_N]
    return np.where(silent_N, 0.0, centred_N / np.where(silent_N, 1.0, std_Q[index_N] + delta))
