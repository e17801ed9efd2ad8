"""Does the ranking of arms depend on the queries? The same arms on several mixes, at equal steps and equal tokens."""

from collections.abc import Mapping
from itertools import combinations, combinations_with_replacement
from typing import NamedTuple

import numpy as np
import pandas as pd

from repro import paths
from repro.experiments.regimes.mixes import DEFAULT, titles
from repro.settings import Settings, Statistics
from repro.stats import runs
from repro.stats.efficiency import summarise
from repro.stats.intervals import draws
from repro.stats.multiplicity import holm

# What is compared, {name: in words}; the first is the last evaluation, for the second see `at_equal_tokens`.
MEASURES = {"steps": "at equal steps", "tokens": "at equal trained tokens"}


class Pairs(NamedTuple):
    """Differences between arms, [a, b] = a − b: mean over seeds, its interval, two-sided p-value of no difference."""

    mean_A_A: np.ndarray
    low_A_A: np.ndarray
    high_A_A: np.ndarray
    p_A_A: np.ndarray


def load(table: str, settings: Settings) -> pd.DataFrame:
    """One table of the regimes' arms on every mix, the study's own included, columns `mix` and `arm` in front."""
    parts = []
    for mix in titles(settings):
        frame = runs.load(table, settings.regimes.arms, None if mix == DEFAULT else paths.regime_results(mix))
        frame.insert(0, "mix", mix)
        parts.append(frame)
    return pd.concat(parts, ignore_index=True)


def at_equal_tokens(evaluations: pd.DataFrame, arms: list[str]) -> tuple[np.ndarray, np.ndarray, float]:
    """(accuracy_A_S, step_A, budget) of one mix: what each run knows after training on `budget` tokens.

    The budget is the smallest total that an arm trains on (mean over seeds), so that every arm gets there; accuracy is
    linear between a run's evaluations, and `step_A` says where on its mean curve each arm is then. Accuracy rises
    steeply at first and ever more slowly, so a straight line between two evaluations is a little low: the more so for
    an arm that spends the budget in few steps.
    """
    own = runs.carried_forward(evaluations[evaluations["arm"].isin(arms)])
    accuracy, tokens = (
        own.pivot(index=["arm", "seed"], columns="step", values=name) for name in ("accuracy", "trained_tokens")
    )
    budget = float(tokens.iloc[:, -1].groupby("arm").mean().min())
    reached = pd.Series(
        [np.interp(budget, tokens.loc[run], accuracy.loc[run]) for run in accuracy.index], accuracy.index
    ).unstack("seed")
    mean_tokens = tokens.groupby("arm").mean()
    step_A = [np.interp(budget, mean_tokens.loc[arm], mean_tokens.columns) for arm in arms]
    return reached.loc[arms].to_numpy(), np.array(step_A), budget


def outcomes(evaluations: pd.DataFrame, arms: list[str]) -> dict[str, dict[str, np.ndarray]]:
    """{measure: {mix: accuracy_A_S}} for `MEASURES`; a mix has the seeds that were trained on it."""
    values: dict[str, dict[str, np.ndarray]] = {measure: {} for measure in MEASURES}
    for mix, own in evaluations.groupby("mix", sort=False):
        full = runs.carried_forward(own.drop(columns="mix"))
        last = full[full["step"] == full["step"].max()].pivot(index="arm", columns="seed", values="accuracy")
        values["steps"][mix] = last.loc[arms].to_numpy()
        values["tokens"][mix] = at_equal_tokens(own.drop(columns="mix"), arms)[0]
    return values


def paired(values: Mapping[str, np.ndarray], confidence: float) -> dict[str, Pairs]:
    """{mix: differences of every pair of arms}, paired by seed, with Student-t intervals of their means.

    A mix alone has too few seeds to know how far a difference scatters (three that agree in sign by luck are one case
    in four), so the variance over seeds is pooled over the mixes, for each pair of arms by itself: Σ(S − 1) degrees of
    freedom. That takes a pair's scatter to be alike on all mixes. NaN bounds where every mix has one seed.
    """
    from scipy.stats import t

    differences = {mix: own_A_S[:, None] - own_A_S[None, :] for mix, own_A_S in values.items()}
    freedom = sum(own.shape[2] - 1 for own in differences.values())
    squares_A_A = sum(own.var(axis=2) * own.shape[2] for own in differences.values())
    pairs = {}
    for mix, own in differences.items():
        mean_A_A = own.mean(2)
        if freedom == 0:
            pairs[mix] = Pairs(mean_A_A, *np.full((3, *mean_A_A.shape), np.nan))
            continue
        error_A_A = np.sqrt(squares_A_A / freedom / own.shape[2])
        statistic_A_A = np.divide(np.abs(mean_A_A), error_A_A, out=np.zeros(mean_A_A.shape), where=mean_A_A != 0)
        half_A_A = t.ppf((1 + confidence) / 2, freedom) * error_A_A
        pairs[mix] = Pairs(mean_A_A, mean_A_A - half_A_A, mean_A_A + half_A_A, 2 * t.sf(statistic_A_A, freedom))
    return pairs


def compare(evaluations: pd.DataFrame, questions: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """One row per mix and arm of `regimes.arms`. Columns; * has _low and _high as well:

    mix, arm, title, seeds, diverged
    accuracy_steps, accuracy_tokens    mean over seeds at the end, and at `budget` trained tokens
    budget, budget_step                `at_equal_tokens`'s, and the step at which this arm has spent it
    difference_steps*, _tokens*        to the baseline, paired by seed: see `paired`
    resolved_steps, resolved_tokens    "more", "less" or "not resolved": by Holm's correction over all arms and mixes;
                                       "baseline" for the baseline
    rank_steps, rank_tokens            1 is the best of the mix
    trained_tokens_ratio_<level>*      repro.stats.efficiency.summarise's, level the first of `statistics.levels`
    """
    arms = settings.regimes.arms
    base, values = arms.index(settings.baseline), outcomes(evaluations, arms)
    pairs = {measure: paired(of_mix, settings.statistics.confidence) for measure, of_mix in values.items()}
    tables = []
    for mix, own in evaluations.groupby("mix", sort=False):
        _, step_A, budget = at_equal_tokens(own, arms)
        summary = summarise(own, questions[questions["mix"] == mix], settings, family=arms).set_index("arm").loc[arms]
        level = f"trained_tokens_ratio_{round(100 * settings.statistics.levels[0])}"
        kept = ["title", "seeds", "diverged", *(f"{level}{end}" for end in ("", "_low", "_high", "_reached", "_open"))]
        table = summary[kept].reset_index().assign(budget=budget, budget_step=step_A)
        table.insert(0, "mix", mix)
        for measure in MEASURES:
            mean_A = values[measure][mix].mean(1)
            table[f"accuracy_{measure}"] = mean_A
            table[f"rank_{measure}"] = (mean_A[None, :] > mean_A[:, None]).sum(1) + 1
            for end, of_pairs in zip(("", "_low", "_high", "_p"), pairs[measure][mix], strict=True):
                table[f"difference_{measure}{end}"] = of_pairs[:, base]
        tables.append(table)
    comparison = pd.concat(tables, ignore_index=True)
    for measure in MEASURES:
        comparison[f"resolved_{measure}"] = _resolved(
            comparison.pop(f"difference_{measure}_p"),
            comparison[f"difference_{measure}"],
            comparison["arm"] == settings.baseline,
            settings.statistics.confidence,
        )
    return comparison


def _resolved(p: pd.Series, difference: pd.Series, baseline: pd.Series, confidence: float) -> np.ndarray:
    """Verdicts, the rows of all mixes being one family of comparisons; see `compare`."""
    verdict = np.where(baseline, "baseline", "not resolved").astype(object)
    tested = np.flatnonzero(~baseline & p.notna())
    for row, adjusted in zip(tested, holm(p.iloc[tested]), strict=True):
        if adjusted < 1 - confidence:
            verdict[row] = "more" if difference.iloc[row] > 0 else "less"
    return verdict


def kendall(x_B_A: np.ndarray, y_B_A: np.ndarray) -> np.ndarray:
    """tau_B: Kendall's τ of two rankings of A arms: pairs in the same order less pairs in opposite, over all pairs."""
    n_arms = x_B_A.shape[1]
    agree_B_A_A = np.sign(x_B_A[:, :, None] - x_B_A[:, None]) * np.sign(y_B_A[:, :, None] - y_B_A[:, None])
    return agree_B_A_A.sum((1, 2)) / (n_arms * (n_arms - 1))


def agreement(values: Mapping[str, np.ndarray], statistics: Statistics) -> pd.DataFrame:
    """Kendall's τ between the rankings of every two mixes: columns mix, other, tau, resampled, low, high.

    `tau`: of the means over seeds. `resampled`, `low`, `high`: mean and percentile interval over resamples of the
    seeds, drawn for each mix by itself since its runs are its own. A mix with itself is a ranking against that of a
    second, independent resample: how well a repetition of the same study could agree at best (both resample the same
    few seeds), so what `resampled` between mixes is to be held against. NaN for single seeds.
    """
    means = [_resampled(own_A_S, statistics, place) for place, own_A_S in enumerate(values.values())]
    again = [_resampled(own_A_S, statistics, place + len(values)) for place, own_A_S in enumerate(values.values())]
    tails, rows = (50 * (1 - statistics.confidence), 50 * (1 + statistics.confidence)), []
    for (i, mix), (j, other) in combinations_with_replacement(enumerate(values), 2):
        tau_B = kendall(means[i], again[i] if i == j else means[j])
        several = values[mix].shape[1] > 1 and values[other].shape[1] > 1
        low, high = np.percentile(tau_B[1:], tails) if several else (np.nan, np.nan)
        resampled = tau_B[1:].mean() if several else np.nan
        rows.append({"mix": mix, "other": other, "tau": tau_B[0], "resampled": resampled, "low": low, "high": high})
    return pd.DataFrame(rows)


def _resampled(own_A_S: np.ndarray, statistics: Statistics, place: int) -> np.ndarray:
    """mean_B_A over resampled seeds, the same ones for all arms; row 0 is the mean over all."""
    draws_B_S = draws(own_A_S.shape[1], statistics.model_copy(update={"seed": statistics.seed + place}))
    return own_A_S[:, draws_B_S].mean(2).T


def reversals(pairs: Mapping[str, Pairs], arms: list[str]) -> list[tuple[str, str, list[str], list[str]]]:
    """(a, b, mixes where a is above b, mixes where b is above a) for each pair of arms whose intervals leave out 0 on
    both sides. By luck alone that takes two errors: with 95% and four mixes, 0.7% for a pair, 7% for ten pairs."""
    found = []
    for i, j in combinations(range(len(arms)), 2):
        above = [mix for mix, own in pairs.items() if own.low_A_A[i, j] > 0]
        below = [mix for mix, own in pairs.items() if own.high_A_A[i, j] < 0]
        if above and below:
            found.append((arms[i], arms[j], above, below))
    return found
