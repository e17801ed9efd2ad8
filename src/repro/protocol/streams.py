"""The random streams of a run, each named by (seed, step, purpose).

A resumed run draws what the uninterrupted one would have, and arms with the same seed start from the same groups.
"""

import numpy as np

PURPOSES = ("plan", "generate", "sample", "shuffle", "evaluate", "probe", "reward", "profile", "final", "memory")


def stream_seed(seed: int, step: int, purpose: str) -> int:
    """A 63-bit seed for one purpose at one step of one run."""
    words = np.random.SeedSequence([seed, step, PURPOSES.index(purpose)]).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))
