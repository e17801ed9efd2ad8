"""The exact subset of maximum variance, by one sort and one scan.

For a given size n it is the k smallest and the n − k largest values for some k (Xu et al., 2025, PODS; used by D³S
§3.1). Going from k to k + 1, the value a = v[k] enters, the value b = v[G − n + k] leaves, and the sum of squared
deviations changes by

    (a − b) · D_k,   D_k = a + b − 2 μ_k − (a − b)/n,   μ_k the mean before the swap.

a and b increase with k and μ_k decreases, so D_k increases: the variance grows while D_k < 0 and then shrinks. The best
k follows from the signs of D_k, that is, from prefix sums of the values; sums of squares, which cancel, are not needed.

A lower bound: of G values with population variance 1, some n have Var ≥ (n−1)/n · G/(G−1). (Dropping one of n + 1 at
random preserves the sample variance, which divides by n − 1, in expectation; so some choice does not lower it.) D³S's
Lemma 1 has 1 in place of that bound. It fails for odd n: 3 of {−1, −1, 1, 1} have at most 8/9, which attains the bound
above. Its proof lacks a factor (n + 1)/n in eq. 44; it holds for sample variances.
"""

import numpy as np

MINIMUM = 2  # a subset of one has no variance; Lemma 1 of D³S starts at two


def group_quotas(group_N: np.ndarray, share: float) -> np.ndarray:
    """keep_Q: how many of each group's rollouts to keep, groups in sorted order: share · size rounded half up, at
    least 2 (1 of a group of one)."""
    size_Q = np.unique(group_N, return_counts=True)[1]
    return np.minimum(size_Q, np.maximum(MINIMUM, np.floor(share * size_Q + 0.5).astype(int)))


def max_variance_rows(values_N: np.ndarray, group_N: np.ndarray, keep_Q: np.ndarray) -> np.ndarray:
    """rows_M, ascending: in every group the `keep_Q` values of maximum variance. Groups may differ in size.

    keep_Q is in sorted order of the groups; pass zeros as group_N for one subset of the whole batch. Ties: among equal
    values the first in the batch is taken; among splits that are equally good up to rounding, the one with more large
    values; a group of equal values therefore keeps its first ones. ValueError on a value that is not finite or an
    impossible size.

    >>> max_variance_rows([1.7, 0.1, -0.6, -0.6], np.zeros(4, int), [2])
    array([0, 2])
    """
    values_N, keep_Q = np.asarray(values_N, float), np.asarray(keep_Q)
    if not np.isfinite(values_N).all():
        raise ValueError("max_variance_rows: values_N holds a NaN or an infinity; variance needs finite numbers")
    _, index_N, size_Q = np.unique(group_N, return_inverse=True, return_counts=True)
    if len(keep_Q) != len(size_Q) or (keep_Q < 1).any() or (keep_Q > size_Q).any():
        raise ValueError(f"max_variance_rows: keep_Q is {keep_Q}, group sizes {size_Q}; keep from 1 to all of each")
    order_N = np.lexsort((values_N, index_N))  # by group, then value, then position
    start_Q = np.cumsum(size_Q) - size_Q
    rows = []
    for size, keep in np.unique(np.stack([size_Q, keep_Q], 1), axis=0):
        alike = (size_Q == size) & (keep_Q == keep)
        order_Q_G = order_N[start_Q[alike, None] + np.arange(size)]
        rows.append(order_Q_G[_chosen(values_N[order_Q_G], keep)])
    return np.sort(np.concatenate(rows))


def _chosen(sorted_Q_G: np.ndarray, keep: int) -> np.ndarray:
    """chosen_Q_G: which columns of each ascending row make its subset of `keep` values of maximum variance."""
    size = sorted_Q_G.shape[1]
    values_Q_G = sorted_Q_G - sorted_Q_G.mean(1, keepdims=True)
    prefix_Q_G1 = np.pad(np.cumsum(values_Q_G, 1), ((0, 0), (1, 0)))
    enters_Q_k, leaves_Q_k = values_Q_G[:, :keep], values_Q_G[:, size - keep :]
    sum_Q_k = prefix_Q_G1[:, :keep] + prefix_Q_G1[:, [size]] - prefix_Q_G1[:, size - keep : size]
    d_Q_k = enters_Q_k + leaves_Q_k - (2 * sum_Q_k + enters_Q_k - leaves_Q_k) / keep
    # Equally good splits differ by rounding, so a D that is 0 up to rounding is no increase. Nor is D < 0 with a = b.
    rounding_Q_1 = 1e-9 * np.abs(values_Q_G).max(1, keepdims=True)
    climbs_Q_k = (d_Q_k < -rounding_Q_1) & (enters_Q_k < leaves_Q_k)
    low_Q_1 = np.max(climbs_Q_k * np.arange(1, keep + 1), 1, keepdims=True)
    high_Q_1 = keep - low_Q_1
    # The n − k largest; if several equal the smallest of them, the first ones in the batch, not the last.
    least_Q_1 = np.take_along_axis(sorted_Q_G, np.minimum(size - high_Q_1, size - 1), 1)
    below_Q_1 = (sorted_Q_G < least_Q_1).sum(1, keepdims=True)
    above_Q_1 = (sorted_Q_G > least_Q_1).sum(1, keepdims=True)
    column_G = np.arange(size)
    tied_Q_G = (column_G >= below_Q_1) & (column_G < below_Q_1 + high_Q_1 - above_Q_1)
    return (column_G < low_Q_1) | (column_G >= size - above_Q_1) | tied_Q_G
