"""Rank correlation."""

import numpy as np
from scipy.stats import rankdata


def spearman(x_Q: np.ndarray, y_Q: np.ndarray) -> float:
    """Spearman's rank correlation, ties at their mean rank; NaN where all values of one array are equal."""
    ranks = [rankdata(values_Q) for values_Q in (x_Q, y_Q)]
    if any(np.ptp(rank_Q) == 0 for rank_Q in ranks):
        return float("nan")
    return float(np.corrcoef(*ranks)[0, 1])
