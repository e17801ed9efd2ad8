"""A saturating curve of accuracy over cost, which tells where a method ends from how fast it gets there.

    R(C) = R₀ + (A − R₀) / (1 + (C½ / C)^B)

Khatri et al. (2025), *The Art of Scaling Reinforcement Learning Compute for LLMs*: A is the asymptote, C½ the cost at
which half of the rise is made, B the steepness. R₀, the accuracy before training, is known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    scale = cost_F.max()
    least, most = STEEPNESS if len(cost_F) > 2 else (1.0, 1.0 + 1e-9)  # two evaluations tell no steepness
    low, high = [0.0, np.log(scale / 1000), least], [1.0, np.log(FARTHEST * scale), most]

    def residuals(values: np.ndarray) -> np.ndarray:
        return start + _rise(values[0] - start, values[1] - np.log(cost_F), values[2])[0] - seen_F

    def jacobian(values: np.ndarray) -> np.ndarray:
        return np.stack(_rise(values[0] - start, values[1] - np.log(cost_F), values[2])[1:], axis=1)

    firsts = [(seen_F[-1] + 0.02, np.log(scale * share), 1.0) for share in (0.1, 0.3, 0.8)]
    if near is not None:
        firsts = [(near.asymptote, np.log(near.half), near.steepness)]
    asymptote, half, steepness = _best(residuals, jacobian, firsts, low, high)
    return Saturation(start, asymptote, np.exp(half), steepness, paid)


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
    root_N = np.sqrt(np.ones_like(cost_N) if weight_N is None else np.asarray(weight_N, float))
    scale, others = cost_N.max(), int(arm_N.max())
    is_of_N_O = arm_N[:, None] == np.arange(1, others + 1)
    low = np.r_[0.0, np.log(scale / 1000), STEEPNESS[0], np.full(others, -np.log(WIDEST))]
    high = np.r_[1.0, np.log(FARTHEST * scale), STEEPNESS[1], np.full(others, np.log(WIDEST))]

    def rise(values: np.ndarray) -> tuple[np.ndarray, ...]:
        return _rise(values[0] - start, values[1] + np.r_[0.0, values[3:]][arm_N] - np.log(cost_N), values[2])

    def residuals(values: np.ndarray) -> np.ndarray:
        return root_N * (start + rise(values)[0] - seen_N)

    def jacobian(values: np.ndarray) -> np.ndarray:
        _, by_asymptote_N, by_half_N, by_steepness_N = rise(values)
        by_stretch_N_O = is_of_N_O * by_half_N[:, None]
        return root_N[:, None] * np.column_stack([by_asymptote_N, by_half_N, by_steepness_N, by_stretch_N_O])

    top = seen_N.max()
    firsts = [np.r_[top + 0.02, np.log(scale * share), 1.0, np.zeros(others)] for share in (0.1, 0.3, 0.8)]
    return np.exp(np.r_[0.0, _best(residuals, jacobian, firsts, low, high)[3:]])


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
    root_N = np.sqrt(np.ones_like(cost_N) if weight_N is None else np.asarray(weight_N, float))
    scale = cost_N.max()
    low = np.r_[np.zeros(arms), np.full(arms, np.log(scale / 1000)), STEEPNESS[0]]
    high = np.r_[np.ones(arms), np.full(arms, np.log(FARTHEST * scale)), STEEPNESS[1]]

    is_of_N_A = arm_N[:, None] == np.arange(arms)

    def rise(values: np.ndarray) -> tuple[np.ndarray, ...]:
        return _rise(values[:arms][arm_N] - start, values[arms:-1][arm_N] - np.log(cost_N), values[-1])

    def residuals(values: np.ndarray) -> np.ndarray:
        return root_N * (start + rise(values)[0] - seen_N)

    def jacobian(values: np.ndarray) -> np.ndarray:
        _, by_asymptote_N, by_half_N, by_steepness_N = rise(values)
        own_N_2A = [is_of_N_A * by_N[:, None] for by_N in (by_asymptote_N, by_half_N)]
        return root_N[:, None] * np.column_stack([*own_N_2A, by_steepness_N])

    top_A = np.array([seen_N[arm_N == arm].max() for arm in range(arms)])
    firsts = [np.r_[top_A + 0.02, np.full(arms, np.log(scale * share)), 1.0] for share in (0.1, 0.3, 0.8)]
    best = _best(residuals, jacobian, firsts, low, high)
    return Curves(float(start), best[:arms], np.exp(best[arms:-1]), float(best[-1]))


def _rise(height_N: np.ndarray, away_N: np.ndarray, steepness: float) -> tuple[np.ndarray, ...]:
    """R(C) − R₀ for A − R₀ = `height_N` and log C½ − log C = `away_N`, and its slopes by A, log C½ and B."""
    made_N = 1 / (1 + np.exp(steepness * away_N))
    slope_N = height_N * made_N * (1 - made_N)
    return height_N * made_N, made_N, -steepness * slope_N, -away_N * slope_N


def _best(residuals: Callable, jacobian: Callable, firsts: Sequence, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The parameters of the least squares that are found from any of `firsts`, within bounds."""
    found = [least_squares(residuals, np.clip(first, low, high), jacobian, bounds=(low, high)) for first in firsts]
    return min(found, key=lambda result: result.cost).x


def _check(cost_N: np.ndarray, arm_N: np.ndarray, parameters: int) -> None:
    if not (cost_N > 0).all():
        raise ValueError(f"evaluations after training began have a cost above 0; one has {cost_N.min():g}")
    if len(cost_N) < parameters or set(range(int(arm_N.max(initial=-1)) + 1)) != set(arm_N):
        raise ValueError(f"{len(cost_N)} evaluations for {parameters} parameters, or an arm without any: too few")
