"""TRL's own advantages, of groups of any size, and after a filter."""

import numpy as np

from repro.methods.advantages import deviations

SMALL = 1e-4  # TRL's, added to a standard deviation


def of_sum(rewards_N: np.ndarray, group_N: np.ndarray, *, scale: str = "group") -> np.ndarray:
    """advantages_N = (r − mean_group) / (s + 10⁻⁴), s the sample standard deviation of the group or of the batch, as
    `scale_rewards` of TRL's GRPOConfig says; "none": r − mean_group."""
    deviation_N, index_N = deviations(rewards_N, group_N)
    if scale == "none":
        return deviation_N
    if scale == "batch":
        return deviation_N / (np.std(rewards_N, ddof=1) + SMALL) if len(rewards_N) > 1 else deviation_N
    degrees_Q = np.maximum(np.bincount(index_N) - 1, 1)
    return deviation_N / (np.sqrt(np.bincount(index_N, deviation_N**2) / degrees_Q)[index_N] + SMALL)


def of_each(parts_N_F: np.ndarray, weights_F: np.ndarray, group_N: np.ndarray) -> np.ndarray:
    """GDPO's (`multi_objective_aggregation="normalize_then_sum"`): each reward's `of_sum` within its group, their
    weighted sum, normalised over the batch. NaN: a function gave no reward."""
    total_N = np.zeros(len(parts_N_F))
    for parts_N, weight in zip(parts_N_F.T, weights_F, strict=True):
        given_N = np.isfinite(parts_N)
        if given_N.any():
            total_N[given_N] += weight * of_sum(parts_N[given_N], group_N[given_N])
    return of_sum(total_N, np.zeros(len(total_N), int))
