"""What training adds to the base policy, by temperature and number of samples."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from repro.experiments.sharpening.scores import BASE
from repro.stats.nested import nested


def gains(scores: pd.DataFrame, arms: Sequence[str], confidence: float) -> pd.DataFrame:
    """A row per arm and column of `scores` (temperature, k): gain, the arm's pass@k less its base policy's, mean over
    base policies and seeds, with gain_low, gain_high; by_policy, on each of them."""
    parts = []
    for temperature, k in scores:
        fit = nested(_from_base(scores[temperature, k], arms))
        low_A, high_A = fit.interval(confidence)
        ends = {
            "gain": fit.estimate_A,
            "gain_low": low_A,
            "gain_high": high_A,
            "by_policy": list(map(list, fit.own_A_P)),
        }
        parts.append(pd.DataFrame({"arm": list(arms), "temperature": temperature, "k": k, **ends}))
    return pd.concat(parts, ignore_index=True)


def _from_base(score: pd.Series, arms: Sequence[str]) -> np.ndarray:
    """differences_A_P_S of one column, arm less base policy."""
    wide = score.unstack("seed")
    policies = sorted(score.index.unique("policy"))
    base_P = np.array([wide.loc[(policy, BASE)].dropna().iloc[0] for policy in policies])
    own = [[wide.loc[(policy, arm)].dropna().to_numpy() for policy in policies] for arm in arms]
    return np.array(own) - base_P[None, :, None]
