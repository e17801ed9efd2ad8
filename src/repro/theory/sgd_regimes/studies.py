"""The four cases in which the cost to reach an error is checked: each knows its steps, its bound and its limit.

A study has `problem` (norms_n, costs_n), a `name`, `exponent` (k of the bound's cost ∝ ε^−k), `powers` (that of the
limit, for each iterate), `repeats` (its runs per trial asked for) and the methods of `Study`. An iterate is "average"
or "last"; where f is not convex, "average" is ‖∇f‖² averaged over the iterates and "last" ‖∇f‖² at the last. Array
names: n components, K trials.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike

from repro.theory.sgd import (
    Array,
    LeastSquares,
    convex_cost,
    convex_error_bound,
    convex_step,
    limit_constant,
    run_sgd,
    second_moment,
    strongly_convex_cost,
)
from repro.theory.sgd_regimes.nonconvex import Brier, run_brier
from repro.theory.sgd_regimes.problems import Linear, run_linear
from repro.theory.sgd_regimes.rates import (
    last_iterate_limit,
    stationarity_bound,
    stationarity_cost,
    stationarity_limits,
    stationarity_step,
    strongly_convex_error_bound,
    strongly_convex_limits,
    strongly_convex_steps,
    strongly_convex_weights,
)

ITERATES = ("average", "last")


class Study(Protocol):
    """What the validation asks of a case."""

    name: ClassVar[str]
    exponent: ClassVar[float]
    powers: ClassVar[dict[str, float]]
    repeats: ClassVar[int]
    problem: LeastSquares | Linear | Brier

    def run(self, p_n: Array, horizon: int, n_trials: int, rng: np.random.Generator) -> dict[str, Array]:
        """{"cost", "average", "last"}, (K,) each, after `horizon` iterations with the steps for that horizon."""

    def bound(self, moment: ArrayLike, horizon: ArrayLike) -> Array:
        """What theory promises for the average, V(p) = `moment`."""

    def bound_cost(self, product: ArrayLike, epsilon: float) -> Array:
        """The cost at which that promise is ε, J(p) = `product`."""

    def limits(self, p_n: Array) -> dict[str, float]:
        """By iterate, the c of error → c·T^(−1/k), k that of `powers`."""


class _Convex:
    """Eq. 3: steps D/√(T V)."""

    exponent: ClassVar[float] = 2.0

    def _steps(self, p_n, horizon):
        return np.full(horizon, convex_step(second_moment(self.problem.norms_n, p_n), self.problem.diameter, horizon))

    def bound(self, moment, horizon):
        return convex_error_bound(moment, self.problem.diameter, horizon)

    def bound_cost(self, product, epsilon):
        return convex_cost(product, self.problem.diameter, epsilon)


@dataclass(frozen=True, eq=False)
class ConvexLinear(_Convex):
    """Eq. 3 where it is exact."""

    problem: Linear
    name: ClassVar[str] = "linear"
    repeats: ClassVar[int] = 2  # a trial is one number: cheap, and the claims here are the sharpest
    powers: ClassVar[dict[str, float]] = {"average": 2.0, "last": 2.0}

    def run(self, p_n, horizon, n_trials, rng):
        return _errors(self.problem, run_linear(self.problem, p_n, self._steps(p_n, horizon), n_trials, rng))

    def limits(self, p_n):
        """D√V and half of it: see Linear; less what projection takes off, which vanishes with the mean slope alone."""
        scale = float(self.problem.diameter * np.sqrt(second_moment(self.problem.norms_n, p_n)))
        return {"average": scale, "last": scale / 2}


@dataclass(frozen=True, eq=False)
class ConvexSquares(_Convex):
    """Eq. 3 on least squares, as in section 4.4: the same steps, a problem that is kinder than the worst."""

    problem: LeastSquares
    name: ClassVar[str] = "least squares"
    repeats: ClassVar[int] = 1
    powers: ClassVar[dict[str, float]] = {"average": 1.0, "last": 2.0}

    def run(self, p_n, horizon, n_trials, rng):
        return _errors(self.problem, run_sgd(self.problem, p_n, self._steps(p_n, horizon), n_trials, rng))

    def limits(self, p_n):
        return {"average": limit_constant(self.problem, p_n), "last": last_iterate_limit(self.problem, p_n)}


@dataclass(frozen=True, eq=False)
class StronglyConvexSquares:
    """Eq. 4: least squares with steps 2/(μ(t+1)) and the average weighted by t."""

    problem: LeastSquares
    name: ClassVar[str] = "strongly convex steps"
    repeats: ClassVar[int] = 1
    exponent: ClassVar[float] = 1.0
    powers: ClassVar[dict[str, float]] = {"average": 1.0, "last": 1.0}

    @cached_property
    def strong_convexity(self) -> float:
        """μ, the least eigenvalue of ∇²f."""
        return float(np.linalg.eigvalsh(self.problem.hessian_d_d)[0])

    def run(self, p_n, horizon, n_trials, rng):
        steps_T = strongly_convex_steps(self.strong_convexity, horizon)
        averaging_T = strongly_convex_weights(horizon)
        return _errors(self.problem, run_sgd(self.problem, p_n, steps_T, n_trials, rng, averaging_T))

    def bound(self, moment, horizon):
        return strongly_convex_error_bound(moment, self.strong_convexity, horizon)

    def bound_cost(self, product, epsilon):
        return 2 * strongly_convex_cost(product, self.strong_convexity, epsilon)

    def limits(self, p_n):
        return dict(zip(ITERATES, strongly_convex_limits(self.problem, p_n, self.strong_convexity), strict=True))


@dataclass(frozen=True, eq=False)
class NonConvexBrier:
    """Appendix F.2: ‖∇f‖² on the Brier score, steps √(2Δ/(L V T))."""

    problem: Brier
    name: ClassVar[str] = "non-convex"
    repeats: ClassVar[int] = 1
    exponent: ClassVar[float] = 2.0
    powers: ClassVar[dict[str, float]] = {"average": 2.0, "last": 2.0}

    def run(self, p_n, horizon, n_trials, rng):
        runs = run_brier(self.problem, p_n, self._step(p_n, horizon), horizon, n_trials, rng)
        return {"cost": runs.cost_K, "average": runs.mean_K, "last": runs.last_K}

    def bound(self, moment, horizon):
        return stationarity_bound(moment, self.problem.gap, self.problem.smoothness, horizon)

    def bound_cost(self, product, epsilon):
        return stationarity_cost(product, self.problem.gap, self.problem.smoothness, epsilon)

    def limits(self, p_n):
        problem, x_d = self.problem, self.problem.minimiser_d
        descent = problem.value(problem.start_d) - problem.value(x_d)
        found = stationarity_limits(descent, problem.hessian_d_d(x_d), problem.noise_d_d(x_d, p_n), self._step(p_n, 1))
        return dict(zip(ITERATES, found, strict=True))

    def _step(self, p_n, horizon):
        moment = second_moment(self.problem.norms_n, p_n)
        return float(stationarity_step(moment, self.problem.gap, self.problem.smoothness, horizon))


def _errors(problem, runs) -> dict[str, Array]:
    return {
        "cost": runs.cost_K,
        "average": problem.error_K(runs.average_K_d),
        "last": problem.error_K(runs.last_K_d),
    }
