"""Statistics: the rows of one arm in one table → one value per seed."""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from repro.experiments.claims.study import Untestable
from repro.stats.pass_at_k import pass_at_k


@dataclass(frozen=True)
class Statistic:
    """`of` takes the rows of one arm of `table`, which needs `columns`, and gives a Series over seeds."""

    table: str
    columns: tuple[str, ...]
    of: Callable[[pd.DataFrame], pd.Series]


def _final(evaluations: pd.DataFrame) -> pd.Series:
    return evaluations.sort_values("step").groupby("seed")["accuracy"].last()


def _best(evaluations: pd.DataFrame) -> pd.Series:
    return evaluations.groupby("seed")["accuracy"].max()


def _early(evaluations: pd.DataFrame) -> pd.Series:
    step = evaluations["step"]
    return evaluations[(step > step.min()) & (2 * step <= step.max())].groupby("seed")["accuracy"].mean()


FINAL = Statistic("evaluations", ("step", "accuracy"), _final)
# The best checkpoint: a maximum over noisy evaluations, for every arm over equally many.
BEST = Statistic("evaluations", ("accuracy",), _best)
# Mean over the evaluations of the first half of training, the base policy's own left out.
EARLY = Statistic("evaluations", ("step", "accuracy"), _early)


def spent(column: str) -> Statistic:
    """What training spent in all of an axis of the ledger."""
    return Statistic(
        "evaluations", ("step", column), lambda rows: rows.sort_values("step").groupby("seed")[column].last()
    )


def solved(k: int) -> Statistic:
    """pass@k, mean over the questions of the final evaluation."""

    def of(questions: pd.DataFrame) -> pd.Series:
        samples = questions["samples"].to_numpy()
        if samples.min() < k:
            raise Untestable(f"pass@{k} needs {k} samples a question, there are {samples.min()}")
        rates = questions.assign(rate=pass_at_k(questions["successes"].to_numpy(), samples, k))
        return rates.groupby("seed")["rate"].mean()

    return Statistic("questions", ("successes", "samples"), of)


def summed(column: str) -> Statistic:
    """Sum over the steps."""
    return Statistic("steps", (column,), lambda steps: steps.groupby("seed")[column].sum())


def mean_over(column: str, start: float = 0.0, end: float = 1.0) -> Statistic:
    """Mean over the steps from the share `start` to the share `end` of training; skipped steps have no value."""
    return Statistic("steps", ("step", column), lambda steps: _mean(steps, column, start, end))


def change_over(column: str, share: float) -> Statistic:
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


def _mean(steps: pd.DataFrame, column: str, start: float, end: float) -> pd.Series:
    progress = steps["step"] / (steps["step"].max() + 1)
    return steps[(progress >= start) & (progress < end)].groupby("seed")[column].mean()


def _silence_of_short(selection: pd.DataFrame) -> pd.Series:
    middle = selection.groupby("seed")["response_tokens"].transform("median")
    short = (selection["response_tokens"] <= middle).rename("short")
    silent = (selection["advantage"] == 0).groupby([selection["seed"], short]).mean().unstack("short")
    silent = silent.reindex(columns=[True, False])  # where most are cut off at one length, none is longer
    return silent[True] - silent[False]


# Share of rollouts without an advantage among those no longer than a run's median, less that among the longer ones.
SILENCE_OF_SHORT = Statistic("selection", ("advantage", "response_tokens"), _silence_of_short)
