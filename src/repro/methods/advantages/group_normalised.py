"""Rewards normalised within the group."""

from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.advantages import equal_rewards


def group_normalised(
    rewards_N: np.ndarray, group_N: np.ndarray, *, delta: Annotated[float, Field(ge=0)] = 1e-6
) -> np.ndarray:
    """A_N: A_i = (r_i − mean_group) / (std_group + δ), GRPO's advantage (Shao et al., 2024; Cost-Aware Learning §5.2).

    The standard deviation is the population's (divides by G), as in D³S eq. 35; D³S eq. 2 has no δ. A group whose
    rewards are all equal gets exactly 0 rather than rounding noise divided by δ. ValueError on a reward that is not
    finite.
    """
    rewards_N = np.asarray(rewards_N, float)
    if not np.isfinite(rewards_N).all():
        where = int(np.flatnonzero(~np.isfinite(rewards_N))[0])
        raise ValueError(f"advantages: rewards_N[{where}] is {rewards_N[where]}; mend the verifier, rewards are finite")
    _, index_N = np.unique(group_N, return_inverse=True)
    size_Q = np.bincount(index_N)
    centred_N = rewards_N - (np.bincount(index_N, rewards_N) / size_Q)[index_N]
    std_Q = np.sqrt(np.bincount(index_N, centred_N**2) / size_Q)
    silent_N = equal_rewards(rewards_N, group_N)[index_N]
    return np.where(silent_N, 0.0, centred_N / np.where(silent_N, 1.0, std_Q[index_N] + delta))
