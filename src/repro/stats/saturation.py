"""A saturating curve of accuracy over cost, which tells where a method ends from how fast it gets there.

    R(C) = R₀ + (A − R₀) / (1 + (C½ / C)^B)

Khatri et al. (2025), *The Art of Scaling Reinforcement Learning Compute for LLMs*: A is the asymptote, C½ the cost at
which half of the rise is made, B the steepness. R₀, the accuracy before training, is known.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

STEEPNESS = (0.3, 4.0)  # bounds of B; without them a curve that has not bent yet fits any
FARTHEST = 100.0  # C½ is at most as many times the greatest cost
WIDEST = 20.0  # a factor between the costs of two arms is at most this, and at least its inverse


@dataclass(frozen=True)
class Saturation:
    """A fitted curve. `paid`: what had been spent when training began, on a profile, say."""

    start: float
    asymptote: float
    half: float
    steepness: float
    paid: float = 0.0

    def __call__(self, cost_E: np.ndarray) -> np.ndarray:
        trained_E = np.maximum(np.asarray(cost_E, float) - self.paid, 0.0)
        return curve(trained_E, self.start, self.asymptote, self.half, self.steepness)

    def cost_of(self, level: float) -> float:
        """The cost at which the curve, if it rises, is at `level`; infinite if that is not below its asymptote."""
        if not self.start < level < self.asymptote:
            return self.paid if level <= self.start else np.inf
        left = (self.asymptote - level) / (level - self.start)
        return self.paid + self.half * left ** (-1 / self.steepness)


def curve(cost_E: np.ndarray, start: float, asymptote: float, half: float, steepness: float) -> np.ndarray:
    """R(C); R₀ at cost 0."""
    with np.errstate(divide="ignore", over="ignore"):
        return start + (asymptote - start) / (1 + (half / cost_E) ** steepness)


def fit(cost_E: np.ndarray, accuracy_E: np.ndarray, near: Saturation | None = None) -> Saturation:
    """Least squares. The first evaluation is R₀, at the cost of what was paid before training began; one at which no
    more has been spent than at the one before does not count again. `near`: a curve from which to look, rather than
    from several places. A run that spends nothing is flat."""
    cost_E, accuracy_E = np.asarray(cost_E, float), np.asarray(accuracy_E, float)
    rises_E = np.r_[False, np.diff(cost_E) > 0]
    start, paid = float(accuracy_E[0]), float(cost_E[0])
    cost_F, seen_F = cost_E[rises_E] - paid, accuracy_E[rises_E]
    if not len(cost_F):
        return Saturation(start, start, 1.0, 1.0, paid)
    bounds = STEEPNESS if len(cost_F) > 2 else (1.0, 1.0 + 1e-9)  # two evaluations tell no steepness
    firsts = [[near.asymptote, np.log(near.half), near.steepness]] if near else None
    one_F_1, seen = np.ones((len(cost_F), 1)), _Seen(cost_F, seen_F, start)
    asymptote, half, b = _fitted(seen, seen_F[-1:], one_F_1, one_F_1, steepness=bounds, firsts=firsts)
    return Saturation(start, asymptote, np.exp(half), b, paid)


def scaled(
    cost_N: np.ndarray, accuracy_N: np.ndarray, arm_N: np.ndarray, start: float, weight_N: np.ndarray | None = None
) -> np.ndarray:
    """factor_A: what each arm spends, over what arm 0 spends, to be as accurate: least squares of one curve from
    `start` whose costs are stretched by a factor for each arm.

    accuracy_N: N evaluations after training began, at cost_N > 0, of the arms numbered arm_N. An arm that ends higher
    has, for this model, a factor below 1; it cannot end elsewhere. ValueError names what is out of range.
    """
    cost_N, seen_N, arm_N = np.asarray(cost_N, float), np.asarray(accuracy_N, float), np.asarray(arm_N)
    _check(cost_N, arm_N, parameters=3 + arm_N.max(initial=0))
    half_N_A = (arm_N[:, None] == np.arange(arm_N.max() + 1)).astype(float)
    half_N_A[:, 0] = 1.0  # the half cost of arm 0 is in that of every arm, which adds the logarithm of its factor
    seen = _Seen(cost_N, seen_N, start, weight_N)
    values = _fitted(seen, seen_N.max(keepdims=True), half_N_A[:, :1], half_N_A, factors=int(arm_N.max()))
    return np.exp(np.r_[0.0, values[2:-1]])


@dataclass(frozen=True)
class Curves:
    """Curves of A arms from one start, with one steepness."""

    start: float
    asymptote_A: np.ndarray
    half_A: np.ndarray
    steepness: float

    def __call__(self, arm: int, cost_E: np.ndarray) -> np.ndarray:
        return curve(np.asarray(cost_E, float), self.start, self.asymptote_A[arm], self.half_A[arm], self.steepness)


def together(
    cost_N: np.ndarray, accuracy_N: np.ndarray, arm_N: np.ndarray, start: float, weight_N: np.ndarray | None = None
) -> Curves:
    """Least squares of a curve for each arm, asymptote and half cost its own, one steepness for all: a curve of a dozen
    noisy points tells its steepness only together with its asymptote. Parameters as for `scaled`."""
    cost_N, seen_N, arm_N = np.asarray(cost_N, float), np.asarray(accuracy_N, float), np.asarray(arm_N)
    arms = int(arm_N.max(initial=-1)) + 1
    _check(cost_N, arm_N, parameters=1 + 2 * arms)
    is_N_A = (arm_N[:, None] == np.arange(arms)).astype(float)
    top_A = np.array([seen_N[arm_N == arm].max() for arm in range(arms)])
    values = _fitted(_Seen(cost_N, seen_N, start, weight_N), top_A, is_N_A, is_N_A)
    return Curves(float(start), values[:arms], np.exp(values[arms:-1]), float(values[-1]))


class _Seen(NamedTuple):
    """N evaluations after training began: what was spent, the accuracy, that before training, and their weights."""

    cost_N: np.ndarray
    accuracy_N: np.ndarray
    start: float
    weight_N: np.ndarray | None = None


def _fitted(
    seen: _Seen,
    top_K: np.ndarray,
    asymptote_N_K: np.ndarray,
    half_N_L: np.ndarray,
    factors: int = 0,
    steepness: tuple[float, float] = STEEPNESS,
    firsts: list | None = None,
) -> np.ndarray:
    """Least squares of the K asymptotes, L terms of log C½, and B: an evaluation's asymptote and log C½ are linear in
    the first two. The last `factors` of the L are logarithms of factors. Looked for from `firsts`, else from a little
    above `top_K` and three half costs."""
    root_N = np.ones_like(seen.cost_N) if seen.weight_N is None else np.sqrt(np.asarray(seen.weight_N, float))
    log_N, scale, kinds = np.log(seen.cost_N), seen.cost_N.max(), len(top_K)
    is_factor_L, wide = np.arange(half_N_L.shape[1]) >= half_N_L.shape[1] - factors, np.log(WIDEST)
    low = np.r_[np.zeros(kinds), np.where(is_factor_L, -wide, np.log(scale / 1000)), steepness[0]]
    high = np.r_[np.ones(kinds), np.where(is_factor_L, wide, np.log(FARTHEST * scale)), steepness[1]]

    def rise(values: np.ndarray) -> tuple[np.ndarray, ...]:
        """A − R₀, log C½ − log C, B, and the share of the rise that is made."""
        height_N, away_N = asymptote_N_K @ values[:kinds] - seen.start, half_N_L @ values[kinds:-1] - log_N
        return height_N, away_N, values[-1], 1 / (1 + np.exp(values[-1] * away_N))

    def residuals(values: np.ndarray) -> np.ndarray:
        height_N, _, _, made_N = rise(values)
        return root_N * (seen.start + height_N * made_N - seen.accuracy_N)

    def jacobian(values: np.ndarray) -> np.ndarray:
        height_N, away_N, b, made_N = rise(values)
        slope_N_1 = (height_N * made_N * (1 - made_N))[:, None]
        columns = [made_N[:, None] * asymptote_N_K, -b * slope_N_1 * half_N_L, -away_N[:, None] * slope_N_1]
        return root_N[:, None] * np.concatenate(columns, axis=1)

    firsts = firsts or [
        np.r_[top_K + 0.02, np.where(is_factor_L, 0.0, np.log(scale * share)), 1.0] for share in (0.1, 0.3, 0.8)
    ]
    found = [least_squares(residuals, np.clip(first, low, high), jacobian, bounds=(low, high)) for first in firsts]
    return min(found, key=lambda result: result.cost).x


def _check(cost_N: np.ndarray, arm_N: np.ndarray, parameters: int) -> None:
    if not (cost_N > 0).all():
        raise ValueError(f"evaluations after training began have a cost above 0; one has {cost_N.min():g}")
    if len(cost_N) < parameters or set(range(int(arm_N.max(initial=-1)) + 1)) != set(arm_N):
        raise ValueError(f"{len(cost_N)} evaluations for {parameters} parameters, or an arm without any: too few")
