"""Figures for any pair of arms, paired by seed.

A measure is a function of the study that gives (value, low, high): the mean over seeds with its bootstrap interval, by
the same draws as everywhere (repro.stats.intervals). Untestable says why there is none.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from repro.experiments.claims.per_seed import Statistic
from repro.experiments.claims.study import Study, Untestable
from repro.stats.efficiency import cost_ratios
from repro.stats.intervals import bounds, draws, mean_intervals
from repro.stats.multiplicity import LEAST_SEEDS

Figure = tuple[float, float, float]
Measure = Callable[[Study], Figure]
Arms = str | tuple[str, ...]  # several: their mean, seed by seed
Axis = str | tuple[str, ...]  # several columns of the ledger: their sum


def level(statistic: Statistic, arm: Arms, scale: float = 1.0) -> Measure:
    """The statistic itself, times `scale`."""
    return lambda study: _interval(study, scale * _values(study, statistic, arm).to_numpy(float))


def difference(statistic: Statistic, arm: Arms, base: Arms, scale: float = 100.0) -> Measure:
    """arm − base, times `scale`: by default shares to points."""

    def measure(study: Study) -> Figure:
        own_S, base_S = _paired(study, statistic, arm, base)
        return _interval(study, scale * (own_S - base_S))

    return measure


def ratio(statistic: Statistic, arm: Arms, base: Arms) -> Measure:
    """arm / base, of their means over seeds; NaN where one of these is not above zero."""

    def measure(study: Study) -> Figure:
        own_S, base_S = _paired(study, statistic, arm, base)
        draws_B_S = draws(len(own_S), study.settings.statistics)
        own_B, base_B = own_S[draws_B_S].mean(1), base_S[draws_B_S].mean(1)
        ratio_B = np.where(own_B > 0, own_B, np.nan) / np.where(base_B > 0, base_B, np.nan)
        return _enough(bounds(ratio_B, len(own_S), study.settings.statistics), len(own_S))

    return measure


def least(*measures: Measure) -> Measure:
    """The figure with the smallest value: an arm against the best of several others."""
    return lambda study: min((measure(study) for measure in measures), key=lambda figure: figure[0])


def cost(arm: str, base: str, axis: Axis = "trained_tokens", share: float = 1.0) -> Measure:
    """Cost until the arm is at the base's peak (or at `share` of its rise), relative to the base's own.

    That of repro.stats.efficiency.cost_ratios, on mean curves with seeds resampled in pairs, for any pair of arms. A
    curve that never gets there costs infinitely much in the value and in the upper bound, and what it spent in the
    lower one: an arm that trains on few tokens and never arrives would else pass for a cheap one.
    """

    def measure(study: Study) -> Figure:
        (base_cost, base_accuracy), (own_cost, own_accuracy) = (_curves(study, name, axis) for name in (base, arm))
        _same_seeds({base: base_accuracy, arm: own_accuracy})
        n_seeds, statistics = len(base_accuracy), study.settings.statistics
        costs_A_B_E, accuracies_A_B_E = (
            np.stack([table.to_numpy(float) for table in tables])[:, draws(n_seeds, statistics)].mean(2)
            for tables in ((base_cost, own_cost), (base_accuracy, own_accuracy))
        )
        found = cost_ratios(costs_A_B_E, accuracies_A_B_E, 0, share, n_seeds, statistics)
        value, low, high, reached, is_open = (found[end][1] for end in ("", "_low", "_high", "_reached", "_open"))
        if np.isnan(value):
            raise Untestable("the accuracy that was to be reached lies no higher than the start")
        value, high = value if reached else np.inf, high if reached and not is_open else np.inf
        return _enough((value, low, high), n_seeds)

    return measure


def speedup(arm: str, base: str, axis: str = "seconds") -> Measure:
    """How many times sooner the arm is at the base's peak: 1 / cost."""

    def measure(study: Study) -> Figure:
        with np.errstate(divide="ignore"):
            value, high, low = 1 / np.array(cost(arm, base, axis)(study))  # 1/∞ = 0: never there
        return float(value), float(low), float(high)

    return measure


def proxy(arm: str, column: str, name: str, minus: str | None = None) -> Measure:
    """Fidelity of a proxy for the gradient norm, mean over checkpoints; less that of the proxy `minus`, if given."""

    def measure(study: Study) -> Figure:
        rows = study.runs("fidelity", arm, "proxy", column)
        by_seed = rows.groupby(["seed", "proxy"])[column].mean().unstack("proxy")
        for wanted in filter(None, (name, minus)):
            if wanted not in by_seed:
                raise Untestable(f"no proxy {wanted} in fidelity")
        return _interval(study, (by_seed[name] - (by_seed[minus] if minus else 0.0)).to_numpy(float))

    return measure


def theory(group: str, claim: str) -> Measure:
    """What the theory notebook `group` found of the claim whose text begins with `claim`, with its own interval."""

    def measure(study: Study) -> Figure:
        if study.theory is None:
            raise Untestable("no table theory")
        rows = study.theory[(study.theory["group"] == group) & study.theory["claim"].str.startswith(claim)]
        if len(rows) != 1:
            raise Untestable(f"{len(rows)} claims of theory {group} begin with {claim!r}")
        return tuple(float(rows[name].iloc[0]) for name in ("measured", "low", "high"))

    return measure


def _interval(study: Study, values_S: np.ndarray) -> Figure:
    return _enough(mean_intervals({"": values_S}, study.settings.statistics)[""], len(values_S))


def _enough(figure: Figure, n_seeds: int) -> Figure:
    """NaN bounds from fewer seeds than a verdict may rest on."""
    return figure if n_seeds >= LEAST_SEEDS else (figure[0], float("nan"), float("nan"))


def _values(study: Study, statistic: Statistic, arms: Arms) -> pd.Series:
    """value per seed, seeds in order; of several arms, their mean."""
    names = (arms,) if isinstance(arms, str) else arms
    parts = {name: statistic.of(study.runs(statistic.table, name, *statistic.columns)).sort_index() for name in names}
    for name, own in parts.items():
        if own.empty:  # a window of training without an evaluation, or without a step, in it
            raise Untestable(f"too few {statistic.table} of arm {name}")
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
            raise Untestable(f"{first} has the seeds {expected}, {name} has {seeds}, and they are compared in pairs")


def _curves(study: Study, arm: str, axis: Axis) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(cost, accuracy), each seeds × evaluations in order of steps."""
    columns = [axis] if isinstance(axis, str) else list(axis)
    runs = study.runs("evaluations", arm, "step", "accuracy", *columns)
    runs = runs.assign(cost=runs[columns].sum(axis=1))
    cost, accuracy = (
        runs.pivot(index="seed", columns="step", values=name).sort_index() for name in ("cost", "accuracy")
    )
    return cost, accuracy
