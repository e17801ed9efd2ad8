"""Figures of the claims of D³S that are mathematics, or arithmetic on its tables: no run is needed.

γ bounds ‖∇z‖, and ‖∇ log π‖ ≤ 2γ (eq. 18). The gradient over a subset A′ is then at most 2γ·E|A′|.
"""

from collections.abc import Iterator

import numpy as np

from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.selection.max_variance import max_variance_rows
from repro.verl.published import printed

GROUP_SIZES = (2, 4, 8, 16, 32)  # up to the paper's


def best_variance(values_N: np.ndarray, keep: int) -> float:
    """The largest population variance of a subset of `keep` values."""
    values_N = np.asarray(values_N, float)
    return float(values_N[max_variance_rows(values_N, np.zeros(len(values_N), int), np.array([keep]))].var())


def proposition_2(advantages_N: np.ndarray, group_size: int) -> float:
    """Eq. 5's bound on the gradient norm of a subset with these advantages, in units of γ."""
    return float(3 * np.cbrt(2.0 * np.sqrt(group_size - 1) * np.var(advantages_N)))


def lemma_1() -> float:
    """The variance of the best 3 of {−1, −1, 1, 1}, whose own is 1."""
    return best_variance([-1.0, -1.0, 1.0, 1.0], 3)


def proposition_1() -> float:
    """The largest 2·E|A| of any group with rewards 0 and 1: a bound on the gradient norm in units of γ."""
    return max(2 * float(np.abs(advantages_G).mean()) for advantages_G in _groups())


def proposition_2_any_subset() -> float:
    """Eq. 5 less the gradient norm, in units of γ, for the subset {1, 1} of {−1, −1, 1, 1} where ‖∇ log π‖ = γ for the
    mean of both: the gradient is γ·mean(A′), and the variance, hence the bound, is 0."""
    subset_N = np.array([1.0, 1.0])
    return proposition_2(subset_N, 4) - abs(float(subset_N.mean()))


def proposition_2_best_subset() -> float:
    """The least of eq. 5 less 2·E|A′|, in units of γ, over the subsets of maximum variance of every group with rewards
    0 and 1, of every size from 2."""
    margins = []
    for advantages_G in _groups():
        for keep in range(2, len(advantages_G) + 1):
            rows = max_variance_rows(advantages_G, np.zeros(len(advantages_G), int), np.array([keep]))
            chosen_N = advantages_G[rows]
            margins.append(proposition_2(chosen_N, len(advantages_G)) - 2 * float(np.abs(chosen_N).mean()))
    return min(margins)


def largest_advantage() -> float:
    """The largest |A| of a group with rewards 0 and 1 over √(G−1), at the group size where they differ most."""
    ratios = {
        size: max(np.abs(advantages_G).max() for advantages_G in _groups((size,))) / np.sqrt(size - 1)
        for size in GROUP_SIZES
    }
    return max(ratios.values(), key=lambda value: abs(value - 1))


def table_1_average() -> float:
    """The mean of the row of GRPO + D³S on the 7B model in Table 1, as printed."""
    row = printed().query("table == 1 and scale == 'paper-qwen2-5-math-7b' and method == 'GRPO + D³S'")
    return float(row.query("metric == 'pass@1' and source != 'average'")["percent"].mean())


def _groups(sizes: tuple[int, ...] = GROUP_SIZES) -> Iterator[np.ndarray]:
    """advantages_G of every group with 1 to G − 1 successes."""
    for size in sizes:
        for successes in range(1, size):
            rewards_G = (np.arange(size) < successes).astype(float)
            yield group_normalised(rewards_G, np.zeros(size, int), delta=0.0)


EXACT = {
    of.__name__: of
    for of in (
        lemma_1,
        proposition_1,
        proposition_2_any_subset,
        proposition_2_best_subset,
        largest_advantage,
        table_1_average,
    )
}
