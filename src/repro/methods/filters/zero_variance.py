"""Zero-variance filtering: a group whose rewards are all equal carries no learning signal."""

import numpy as np

from repro.methods.advantages import equal_rewards


def zero_variance(rewards_N: np.ndarray, group_N: np.ndarray) -> np.ndarray:
    """keep_Q: the groups whose raw rewards are not all equal (dynamic sampling: DAPO, Yu et al., 2025; ZVF in
    Cost-Aware Learning §5.3).

    Equal means exactly equal: the group's largest raw reward is its smallest
    (`repro.methods.advantages.equal_rewards`). There is no threshold on a standard deviation, and advantages are not
    consulted; rewards that differ by rounding count as different.

    The engine refills: while the batch is not full and `engine.refill_rounds` are not used up, it generates as many
    further groups of the plan as are missing. The ledger is charged for every group, kept or not.
    Deviation: DAPO generates whole batches and discards the surplus; we generate only what is missing.

    >>> zero_variance(np.array([1, 0, 1, 1]), np.array([0, 0, 1, 1]))
    array([ True, False])
    """
    return ~equal_rewards(rewards_N, group_N)
