"""What a sampler that knows only a proxy of the gradient norm pays, relative to one that knows the norm.

Array names: N is the axis of rollouts. Unlike `repro.theory.cost_aware_sgd`, norms and probabilities may be zero here,
since a rollout without an advantage has neither gradient nor, under most proxies, a chance to be drawn. 0/0 counts as
0: what has no gradient and is never drawn costs nothing. What has a gradient and is never drawn costs infinitely much.
"""

import numpy as np


def sampling(signal_N: np.ndarray, costs_N: np.ndarray) -> np.ndarray:
    """p_N ∝ signal/√c (Cost-Aware Learning eq. 5, `signal` in the place of the norm). ValueError if all are 0."""
    score_N = signal_N / np.sqrt(costs_N)
    if not score_N.any():
        raise ValueError("every signal is zero, so there is no distribution to draw from; probe more queries")
    return score_N / score_N.sum()


def cost_biased(p_N: np.ndarray, costs_N: np.ndarray) -> np.ndarray:
    """p̃_i = p_i c_i / Σ_j p_j c_j: the share of the cost that goes to rollout i (Theorem 4.2)."""
    return p_N * costs_N / (p_N @ costs_N)


def chi_square(P_N: np.ndarray, Q_N: np.ndarray) -> float:
    """Pearson's χ²(P‖Q) = Σ (P_i − Q_i)²/Q_i."""
    return _sum_of_ratios((P_N - Q_N) ** 2, Q_N)


def excess(norms_N: np.ndarray, costs_N: np.ndarray, p_N: np.ndarray) -> float:
    """χ²(p̃*‖p̃), p* ∝ norm/√c: Theorem 4.2's J(p)/J(p*) − 1, the cost beyond what is needed, as a share of it."""
    ideal_N = sampling(norms_N, costs_N)
    return chi_square(cost_biased(ideal_N, costs_N), cost_biased(p_N, costs_N))


def product(norms_N: np.ndarray, costs_N: np.ndarray, p_N: np.ndarray) -> float:
    """J(p)/J(p*) ≥ 1 directly: mean cost Σ p_i c_i times second moment Σ g_i²/p_i, over their least, (Σ g_i √c_i)²
    (Cost-Aware Learning eq. 3 and 6). The cost to reach an error is proportional to it."""
    return float(p_N @ costs_N) * _sum_of_ratios(norms_N**2, p_N) / float(norms_N @ np.sqrt(costs_N)) ** 2


def _sum_of_ratios(above_N: np.ndarray, below_N: np.ndarray) -> float:
    ratio_N = np.divide(above_N, below_N, out=np.zeros(len(above_N)), where=below_N > 0)
    return float(np.where((below_N == 0) & (above_N > 0), np.inf, ratio_N).sum())
