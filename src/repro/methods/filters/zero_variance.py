"""Zero-variance filtering: a group whose rewards are all equal cannot teach."""

import numpy as np

from repro.methods.advantages import equal_rewards


def zero_variance(rewards_N: np.ndarray, group_N: np.ndarray) -> np.ndarray:
    """keep_Q: the groups whose raw rewards are not all equal (dynamic sampling: DAPO, Yu et al., 2025; ZVF in
    Cost-Aware Learning §5.3).

    Equal means exactly equal: the largest raw reward of the group is its smallest
    (`repro.methods.advantages.equal_rewards`); no threshold on a standard deviation, and not read off the advantages.
    Rewards that differ by rounding differ.

    Refill, by the engine: while the batch is not full and `engine.refill_rounds` are not used up, as many further
    groups as are missing are taken from the plan and generated; every one is paid for in the ledger, kept or not.
    Deviation: DAPO generates whole batches and throws away what is over; we generate what is missing, so nothing is.
    """
    return ~equal_rewards(rewards_N, group_N)
