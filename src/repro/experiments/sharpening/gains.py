"""What training adds to the base policy, by temperature and number of samples."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from repro.experiments.sharpening.scores import BASE
from repro.stats.nested import nested


def gains(scores: pd.DataFrame, arms: Sequence[str], confidence: float, over: str = BASE) -> pd.DataFrame:
    """A row per arm and column of `scores` (temperature, k): gain, pass@k less that of `over`, the base policy or
    another arm with the same seed, mean over base policies and seeds, with gain_low, gain_high; by_policy, its mean on
    each base policy."""
    parts = []
    for temperature, k in scores:
        fit = nested(_differences(scores[temperature, k], arms, over))
        low_A, high_A = fit.interval(confidence)
        ends = {
            "gain": fit.estimate_A,
            "gain_low": low_A,
            "gain_high": high_A,
            "by_policy": list(map(list, fit.own_A_P)),
        }
        parts.append(pd.DataFrame({"arm": list(arms), "temperature": temperature, "k": k, **ends}))
    return pd.concat(parts, ignore_index=True)


def _differences(score: pd.Series, arms: Sequence[str], over: str) -> np.ndarray:
    """differences_A_P_S of one column; a base policy has one score for all seeds."""
    wide = score.unstack("seed")
    policies = sorted(score.index.unique("policy"))
    values = {
        arm: np.array([wide.loc[(policy, arm)].dropna().to_numpy() for policy in policies]) for arm in (*arms, over)
    }
    return np.array([values[arm] - values[over] for arm in arms])
