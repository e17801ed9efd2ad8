"""DAPO's soft punishment of responses that come near the longest allowed."""

from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.lengths import Lengths


def overlong(
    rewards_N: np.ndarray,
    rng: np.random.Generator,
    lengths: Lengths,
    *,
    cache: Annotated[float, Field(gt=0, le=1)] = 0.2,
    penalty: Annotated[float, Field(gt=0)] = 0.5,
) -> np.ndarray:
    """rewards_N: the verifier's, less a punishment that grows linearly over the last tokens allowed (DAPO: Yu et al.,
    2025, eq. 13).

        r_i − penalty · clip((T_i − (L_max − L_cache)) / L_cache, 0, 1),   L_cache = cache · L_max

    T_i and L_max in tokens, rewards without a unit. DAPO has L_max = 20480 with L_cache = 4096, a fifth. Its rewards
    are 1 and −1 and it takes off up to 1; ours are 1 and 0, so `penalty` is a half: the same up to scale and shift,
    which a normalised advantage does not see. Groups whose answers are all right or all wrong may differ in reward, so
    filters by variance keep them.

    Deviations: none known; the cache is a share of the longest response, so that it goes with any limit.

    >>> lengths = Lengths(np.array([60, 90, 100]), np.array([False, False, True]), 100)
    >>> overlong(np.array([1.0, 1.0, 0.0]), np.random.default_rng(0), lengths)
    array([ 1.  ,  0.75, -0.5 ])
    """
    room = cache * lengths.longest
    excess_N = (lengths.tokens_N - (lengths.longest - room)) / room
    return rewards_N - penalty * np.clip(excess_N, 0.0, 1.0)
