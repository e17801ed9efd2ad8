"""Statistics: the rows of one arm in one table → one value per seed.

configs/claims names them: `final`, or with parameters `{mean: {column: kl, start: 0.75}}`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from repro.experiments.claims.study import Untestable
from repro.stats.pass_at_k import pass_at_k


@dataclass(frozen=True)
class Statistic:
    """`of` takes the rows of one arm of `table`, which needs `columns`, and gives a Series over seeds."""

    table: str
    columns: tuple[str, ...]
    of: Callable[[pd.DataFrame], pd.Series]


def statistic(spec: str | dict[str, dict[str, Any]]) -> Statistic:
    """The statistic that `spec` names; ValueError if there is none such, TypeError for a wrong parameter."""
    name, parameters = (spec, {}) if isinstance(spec, str) else next(iter(spec.items()))
    if name not in STATISTICS:
        raise ValueError(f"there is no statistic {name!r}; there are {', '.join(STATISTICS)}")
    return STATISTICS[name](**parameters)


def final() -> Statistic:
    """Accuracy of the last evaluation."""
    return spent("accuracy")


def best() -> Statistic:
    """Accuracy of the best checkpoint: a maximum over noisy evaluations, over more of them for an arm that spends more
    and so is evaluated more often."""
    return Statistic("evaluations", ("accuracy",), lambda rows: rows.groupby("seed")["accuracy"].max())


def early() -> Statistic:
    """Mean accuracy over the steps of the first half of training, linear between evaluations, the base policy's own
    left out."""

    def of(evaluations: pd.DataFrame) -> pd.Series:
        steps = np.arange(1, evaluations["step"].max() // 2 + 1)
        runs = evaluations.sort_values("step").groupby("seed")
        means = {seed: np.interp(steps, run["step"], run["accuracy"]).mean() for seed, run in runs if len(steps)}
        return pd.Series(means, dtype=float)

    return Statistic("evaluations", ("step", "accuracy"), of)


def spent(column: str) -> Statistic:
    """A column of the last evaluation; of the ledger's, what training spent in all."""
    return Statistic("evaluations", ("step", column), lambda rows: _last(rows)[column])


def profile_share() -> Statistic:
    """Of all FLOPs of a run, the share spent on profiling."""
    columns = ("step", "flops", "flops_profile")
    return Statistic("evaluations", columns, lambda rows: _last(rows)["flops_profile"] / _last(rows)["flops"])


def pass_at(k: int) -> Statistic:
    """pass@k, mean over the questions of the final evaluation."""

    def of(questions: pd.DataFrame) -> pd.Series:
        samples = questions["samples"].to_numpy()
        if samples.min() < k:
            raise Untestable(f"{k} samples of each question, there are {samples.min()}")
        rates = questions.assign(rate=pass_at_k(questions["successes"].to_numpy(), samples, k))
        return rates.groupby("seed")["rate"].mean()

    return Statistic("questions", ("successes", "samples"), of)


def total(column: str) -> Statistic:
    """Sum over the steps."""
    return Statistic("steps", (column,), lambda steps: steps.groupby("seed")[column].sum())


def mean(column: str, start: float = 0.0, end: float = 1.0) -> Statistic:
    """Mean over the steps from the share `start` to the share `end` of training; skipped steps have no value."""
    return Statistic("steps", ("step", column), lambda steps: _mean(steps, column, start, end))


def change(column: str, share: float) -> Statistic:
    """Mean over the last `share` of training less the mean over the first."""
    return Statistic(
        "steps",
        ("step", column),
        lambda steps: _mean(steps, column, 1 - share, 1.0) - _mean(steps, column, 0.0, share),
    )


def jitter(column: str) -> Statistic:
    """Mean absolute change from step to step: how unsteady a curve is."""
    return Statistic(
        "steps",
        ("step", column),
        lambda steps: steps.sort_values("step").groupby("seed")[column].apply(lambda curve: curve.diff().abs().mean()),
    )


def silence_of_short() -> Statistic:
    """Share of rollouts without an advantage among those no longer than a run's median, less that among the longer
    ones."""

    def of(selection: pd.DataFrame) -> pd.Series:
        middle = selection.groupby("seed")["response_tokens"].transform("median")
        short = (selection["response_tokens"] <= middle).rename("short")
        silent = (selection["advantage"] == 0).groupby([selection["seed"], short]).mean().unstack("short")
        silent = silent.reindex(columns=[True, False])  # where most are cut off at one length, none is longer
        return silent[True] - silent[False]

    return Statistic("selection", ("advantage", "response_tokens"), of)


def drift(column: str) -> Statistic:
    """A figure of the drift of the profile, at the last checkpoint."""
    return Statistic(
        "drift", ("step", column), lambda rows: rows[rows["step"] == rows["step"].max()].set_index("seed")[column]
    )


STATISTICS = {
    make.__name__: make
    for make in (
        final, best, early, spent, profile_share, pass_at, total, mean, change, jitter, silence_of_short, drift
    )
}  # fmt: skip


def _last(evaluations: pd.DataFrame) -> pd.DataFrame:
    return evaluations.sort_values("step").groupby("seed").last()


def _mean(steps: pd.DataFrame, column: str, start: float, end: float) -> pd.Series:
    progress = steps["step"] / (steps["step"].max() + 1)
    return steps[(progress >= start) & (progress < end)].groupby("seed")[column].mean()
