"""Pass-rate filtering: groups that are solved too seldom or too often are dropped."""

from typing import Annotated

import numpy as np
from pydantic import Field

Rate = Annotated[float, Field(ge=0, le=1)]


def pass_rate(rewards_N: np.ndarray, group_N: np.ndarray, *, low: Rate = 0.2, high: Rate = 0.8) -> np.ndarray:
    """keep_Q: the groups whose mean reward lies in the band, bounds included,

        low ≤ (1/G) Σ_i r_i ≤ high.

    Source: balanced online difficulty filtering (Bae et al., 2025, arXiv:2504.03380), and the reward range of OpenRLHF.
    ValueError if low exceeds high.
    Deviation: the engine generates only what is missing, as for `zero_variance`.

    >>> pass_rate(np.array([1, 0, 1, 1, 0, 0]), np.array([0, 0, 1, 1, 2, 2]))
    array([ True, False, False])
    """
    if low > high:
        raise ValueError(f"pass_rate: low {low} is above high {high}: exchange them")
    _, index_N = np.unique(group_N, return_inverse=True)
    mean_Q = np.bincount(index_N, rewards_N) / np.bincount(index_N)
    return (low <= mean_Q) & (mean_Q <= high)
