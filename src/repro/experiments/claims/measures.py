"""Figures of the study: (value, low, high), the mean over seeds with its t interval, arms paired by seed.

Every measure is a function of the study and of the parameters that configs/claims gives it; the intervals are those of
repro.stats.intervals. Untestable says what is missing.
"""

from inspect import signature
from typing import Any

import numpy as np
import pandas as pd

from repro.experiments.claims.exact import EXACT
from repro.experiments.claims.per_seed import Statistic, statistic
from repro.experiments.claims.study import Study, Untestable
from repro.stats.cost_ratios import cost_ratios
from repro.stats.intervals import leave_one_out, mean_intervals, ratio_interval
from repro.stats.multiplicity import LEAST_SEEDS
from repro.stats.runs import at_budgets

Figure = tuple[float, float, float]
Arms = str | list[str]  # several: their mean, seed by seed
Axis = str | list[str]  # several columns of the ledger: their sum
Spec = dict[str, dict[str, Any]]  # {measure: {parameter: value}}


def figure(study: Study, spec: Spec) -> Figure:
    """The figure that `spec` names, such as {difference: {statistic: final, arm: d3s, base: grpo}}."""
    ((name, parameters),) = spec.items()
    return MEASURES[name](study, **_ready(parameters))


def check(spec: Spec) -> Spec:
    """`spec`; ValueError if it names no measure, no statistic, or a parameter that these do not have."""
    if len(spec) != 1 or (name := next(iter(spec))) not in MEASURES:
        raise ValueError(f"{spec!r} should be one of {', '.join(MEASURES)} with its parameters")
    try:
        signature(MEASURES[name]).bind(None, **_ready(spec[name]))
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
    for part in spec[name].get("of", ()):
        check(part)
    return spec


def _ready(parameters: dict[str, Any]) -> dict[str, Any]:
    """With the statistic in place of its name."""
    return parameters | ({"statistic": statistic(parameters["statistic"])} if "statistic" in parameters else {})


def level(study: Study, statistic: Statistic, arm: Arms, scale: float = 1.0) -> Figure:
    """The statistic itself, times `scale`."""
    return _interval(study, scale * _values(study, statistic, arm).to_numpy(float))


def difference(study: Study, statistic: Statistic, arm: Arms, base: Arms, scale: float = 100.0) -> Figure:
    """arm − base, times `scale`: by default shares to points."""
    own_S, base_S = _paired(study, statistic, arm, base)
    return _interval(study, scale * (own_S - base_S))


def ratio(study: Study, statistic: Statistic, arm: Arms, base: Arms) -> Figure:
    """arm / base, of their means over seeds; NaN where one of these is not above zero."""
    own_S, base_S = _paired(study, statistic, arm, base)
    own_J, base_J = (leave_one_out(len(own_S)) @ values_S for values_S in (own_S, base_S))
    ratio_J = np.where(own_J > 0, own_J, np.nan) / np.where(base_J > 0, base_J, np.nan)
    return _enough(ratio_interval(ratio_J, study.settings.statistics.confidence), len(own_S))


def least(study: Study, of: list[Spec]) -> Figure:
    """The figure with the smallest value: an arm against the best of several others."""
    return min((figure(study, spec) for spec in of), key=lambda figure: figure[0])


def cost(study: Study, arm: str, base: str, axis: Axis, share: float = 1.0) -> Figure:
    """Cost until the arm is where the base ends, the peak of its fitted curve (or at `share` of its rise), relative to
    the base's own.

    That of repro.stats.cost_ratios, for any pair of arms. A curve that is not there when its runs end costs infinitely
    much in the value and in the upper bound: an arm that trains on few tokens and never arrives would otherwise pass
    for a cheap one. The lower bound is from where it might have been there, at most what it spent.
    """
    (base_cost, base_accuracy), (own_cost, own_accuracy) = _curves(study, (base, arm), axis)
    _same_seeds({base: base_accuracy, arm: own_accuracy})
    costs_A_S_E, accuracies_A_S_E = (
        np.stack([table.to_numpy(float) for table in tables])
        for tables in ((base_cost, own_cost), (base_accuracy, own_accuracy))
    )
    ratios = cost_ratios(costs_A_S_E, accuracies_A_S_E, 0, [share], study.settings.statistics.confidence)[share]
    value, low, high, reached, is_open = (ratios[end][1] for end in ("", "_low", "_high", "_reached", "_open"))
    if np.isnan(value):
        raise Untestable(f"an accuracy of {base} above its start")
    if not reached and low == value:
        low = np.nextafter(low, np.inf)  # it was there neither before nor at the end
    value, high = value if reached else np.inf, high if reached and not is_open else np.inf
    return _enough((value, low, high), len(base_accuracy))


def speedup(study: Study, arm: str, base: str, axis: str = "flops") -> Figure:
    """How many times sooner the arm is at the base's peak: 1 / cost."""
    with np.errstate(divide="ignore", over="ignore"):
        value, high, low = 1 / np.array(cost(study, arm, base, axis))  # 1/∞ = 0: never there
    return float(value), float(low), float(high)


def proxy(study: Study, arm: str, column: str, name: str, minus: str | None = None) -> Figure:
    """Fidelity of a proxy for the gradient norm, mean over checkpoints; less that of the proxy `minus`, if given."""
    rows = study.runs("fidelity", arm, "proxy", column)
    by_seed = rows.groupby(["seed", "proxy"])[column].mean().unstack("proxy")
    for wanted in filter(None, (name, minus)):
        if wanted not in by_seed:
            raise Untestable(f"proxy {wanted} in fidelity")
    return _interval(study, (by_seed[name] - (by_seed[minus] if minus else 0.0)).to_numpy(float))


def theory(study: Study, group: str, id: str) -> Figure:
    """The figure of a claim of the theory notebook `group`, with its own interval."""
    rows = study.table("theory")
    rows = rows[(rows["group"] == group) & (rows["id"] == id)]
    if rows.empty:
        raise Untestable(f"claim {id} of theory {group}")
    return tuple(float(rows[name].iloc[0]) for name in ("value", "low", "high"))


def exact(study: Study, figure: str) -> Figure:
    """A number that needs no run (repro.experiments.claims.exact): an interval of one point."""
    value = float(EXACT[figure]())
    return value, value, value


MEASURES = {of.__name__: of for of in (level, difference, ratio, least, cost, speedup, proxy, theory, exact)}


def _interval(study: Study, values_S: np.ndarray) -> Figure:
    return _enough(mean_intervals({"": values_S}, study.settings.statistics)[""], len(values_S))


def _enough(figure: Figure, n_seeds: int) -> Figure:
    """NaN bounds from fewer seeds than a verdict may rest on."""
    return figure if n_seeds >= LEAST_SEEDS else (figure[0], float("nan"), float("nan"))


def _values(study: Study, statistic: Statistic, arms: Arms) -> pd.Series:
    """value per seed, seeds in order; of several arms, their mean."""
    names = [arms] if isinstance(arms, str) else arms
    parts = {name: statistic.of(study.runs(statistic.table, name, *statistic.columns)).sort_index() for name in names}
    for name, values in parts.items():
        if values.empty:  # a window of training without an evaluation, or without a step, in it
            raise Untestable(f"more {statistic.table} of arm {name}")
    _same_seeds(parts)
    return sum(parts.values()) / len(parts)


def _paired(study: Study, statistic: Statistic, arm: Arms, base: Arms) -> tuple[np.ndarray, np.ndarray]:
    own, other = (_values(study, statistic, names) for names in (arm, base))
    _same_seeds({str(arm): own, str(base): other})
    return own.to_numpy(float), other.to_numpy(float)


def _same_seeds(tables: dict[str, pd.Series | pd.DataFrame]) -> None:
    (first, expected), *others = ((name, list(table.index)) for name, table in tables.items())
    for name, seeds in others:
        if seeds != expected:
            raise Untestable(f"the same seeds of {first} and {name}, which have {expected} and {seeds}")


def _curves(study: Study, arms: tuple[str, str], axis: Axis) -> list[list[pd.DataFrame]]:
    """[cost, accuracy] of each arm, each seeds × shares of the budget."""
    columns = [axis] if isinstance(axis, str) else axis
    runs = [study.runs("evaluations", arm, "step", "accuracy", *columns) for arm in dict.fromkeys(arms)]
    curves = at_budgets(pd.concat(runs))
    curves = curves.assign(cost=curves[columns].sum(axis=1))
    return [
        [
            curves[curves["arm"] == arm].pivot(index="seed", columns="share", values=name).sort_index()
            for name in ("cost", "accuracy")
        ]
        for arm in arms
    ]
