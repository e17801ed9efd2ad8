"""DAPO's overlong filtering: nothing is learnt from a response that was cut off."""

import numpy as np

from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.lengths import Lengths


def finished_only(rewards_N: np.ndarray, group_N: np.ndarray, lengths: Lengths) -> np.ndarray:
    """A_N: the group-normalised advantage, and exactly 0 for a response that was cut off at the longest allowed
    (overlong filtering: DAPO, Yu et al., 2025, §3.4).

        A_i = 0 if response i is truncated, else (r_i − mean_group) / (std_group + δ)

    A cut response may have been on its way to the right answer, so its reward of 0 is noise. It still counts in the
    mean and standard deviation of its group. ValueError on a reward that is not finite.

    Deviations: DAPO masks the tokens of such a response, so that they leave the divisor of its token mean too; here the
    response keeps its place in the divisor.

    >>> lengths = Lengths(np.array([9, 9, 9, 40]), np.array([False, False, False, True]), 40)
    >>> finished_only(np.array([1, 0, 0, 0]), np.zeros(4, int), lengths).round(3)
    array([ 1.732, -0.577, -0.577,  0.   ])
    """
    return np.where(lengths.truncated_N, 0.0, group_normalised(rewards_N, group_N))
