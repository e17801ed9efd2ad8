"""Do estimates hold elsewhere? One part of the runs predicts the rest."""

from collections.abc import Sequence
from itertools import combinations, permutations

import numpy as np
import pandas as pd

from repro.stats.partial import partially_pooled


def one_policy_foretells(differences_A_P_S: np.ndarray, family_A: Sequence[str]) -> pd.DataFrame:
    """A row per number of seeds: how well the arms' differences with as many seeds on one base policy foretell those
    with all seeds on another; over both directions and every choice of seeds:

    raw, pooled, family, nothing   root mean square error of the raw difference, the partially pooled one, the family's
                                   mean, and of foretelling no difference for all
    correlation                    mean rank correlation of the raw differences
    """
    d_A_P_S = np.asarray(differences_A_P_S, float)
    _, policies, seeds = d_A_P_S.shape
    rows = []
    for count in range(2, seeds + 1):
        found = [
            _missed(d_A_P_S[:, [one]][:, :, list(chosen)], d_A_P_S[:, other].mean(1), family_A)
            for one, other in permutations(range(policies), 2)
            for chosen in combinations(range(seeds), count)
        ]
        mean = pd.DataFrame(found).mean()
        errors = {name: float(np.sqrt(mean[name])) for name in ("raw", "pooled", "family", "nothing")}
        rows.append({"seeds": count, **errors, "correlation": float(mean["correlation"])})
    return pd.DataFrame(rows)


def _missed(d_A_P_S: np.ndarray, there_A: np.ndarray, family_A: Sequence[str]) -> dict[str, float]:
    """Mean square errors of what some seeds of one base policy say of another, `there_A`; and the rank correlation."""
    pooled = partially_pooled(d_A_P_S, family_A)
    raw_A = d_A_P_S.mean((1, 2))
    means_A = pd.Series(pooled.mean_G, pooled.families).loc[list(family_A)].to_numpy()
    said = {"raw": raw_A, "pooled": pooled.estimate_A, "family": means_A, "nothing": 0.0}
    errors = {name: float(np.mean((there_A - of) ** 2)) for name, of in said.items()}
    return {**errors, "correlation": float(pd.Series(raw_A).corr(pd.Series(there_A), "spearman"))}
