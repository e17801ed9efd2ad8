"""What samplers chose from a batch, in the few numbers that the logs of every engine and a replay show."""

import numpy as np

from repro.methods.rollouts import Rollouts
from repro.methods.samplers import effective_sample_size


def shares(chosen: Rollouts | None, n: int) -> dict[str, float]:
    """Of a choice from a batch of N rollouts; without one, the first three alone, all 0.

    drawn           draws over N, repeats counted
    distinct        R/N, with R different rollouts drawn that have an advantage
    effective       Kish's (Σw)²/Σw² of these over N, the weights of one rollout added up
    per_distinct    the same over R: 1 where all weigh alike
    silent          share of the draws that have no advantage
    largest_weight  of a draw
    """
    if chosen is None:
        return dict.fromkeys(("drawn", "distinct", "effective"), 0.0)
    with_gradient_M = chosen.advantages_N != 0
    _, index_K = np.unique(chosen.row_N[with_gradient_M], return_inverse=True)
    weights_R = np.bincount(index_K, chosen.weights_N[with_gradient_M])
    effective = effective_sample_size(weights_R) if len(weights_R) else 0.0
    return {
        "drawn": len(chosen) / n,
        "distinct": len(weights_R) / n,
        "effective": effective / n,
        "per_distinct": effective / max(1, len(weights_R)),
        "silent": 1 - float(with_gradient_M.mean()),
        "largest_weight": float(chosen.weights_N.max()),
    }
