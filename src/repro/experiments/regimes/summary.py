"""Does the ranking of arms depend on the queries? The same arms on several mixes, at equal steps and equal tokens."""

from collections.abc import Mapping
from itertools import combinations_with_replacement, permutations
from typing import NamedTuple

import numpy as np
import pandas as pd

from repro import paths
from repro.experiments.regimes.mixes import DEFAULT, titles
from repro.settings import Settings, Statistics
from repro.stats import runs
from repro.stats.efficiency import summarise
from repro.stats.intervals import draws, percentiles
from repro.stats.multiplicity import holm
from repro.stats.tables import intervals, ratio

# What is compared; the first is the last evaluation, for the second see `at_equal_tokens`.
MEASURES = {"steps": "at equal steps", "tokens": "at equal trained tokens (computed)"}
COSTS = {"paper_tokens": "trained tokens (papers' count)", "trained_tokens": "trained tokens (computed)"}

# (chosen for variance, chosen blindly). D¹S-C and its control keep as many rollouts; D³S trains on fewer tokens than
# the random subset, and its loss is a token-mean instead of a sequence-mean, so more than the choice differs.
PAIRS = (("d1s-c", "random-quarter"), ("d3s", "random-subset"))
CHANCE = "random-quarter"
QUARTERS = ("d1s", "d1s-c", "pods", CHANCE)  # arms that keep as many rollouts of each batch


class Pairs(NamedTuple):
    """Differences between arms, [a, b] = a − b: mean over seeds, its interval, two-sided p-value of no difference."""

    mean_A_A: np.ndarray
    low_A_A: np.ndarray
    high_A_A: np.ndarray
    p_A_A: np.ndarray


def load(table: str, settings: Settings) -> pd.DataFrame:
    """One table of the regimes' arms on every mix, the study's included, columns `mix` and `arm` in front."""
    parts = []
    for mix in titles(settings):
        frame = runs.load(table, settings.regimes.arms, None if mix == DEFAULT else paths.regime_results(mix))
        frame.insert(0, "mix", mix)
        parts.append(frame)
    return pd.concat(parts, ignore_index=True)


def at_equal_tokens(evaluations: pd.DataFrame, arms: list[str]) -> tuple[np.ndarray, np.ndarray, float]:
    """(accuracy_A_S, step_A, budget) of one mix: each run's accuracy after training on `budget` tokens, as computed.

    The budget is the smallest total that an arm trains on (mean over seeds), so that every arm reaches it; accuracy is
    linear between a run's evaluations, and `step_A` is the step of each arm's mean curve at that point. Accuracy rises
    steeply at first and then ever more slowly, so a straight line between two evaluations reads a little low, most of
    all for an arm that spends the budget in few steps.
    """
    known = evaluations[evaluations["arm"].isin(arms)].sort_values("step")
    budget = float(runs.last_of(known)["trained_tokens"].groupby("arm").mean().min())
    reached = {
        key: np.interp(budget, run["trained_tokens"], run["accuracy"]) for key, run in known.groupby(["arm", "seed"])
    }
    means = runs.at_budgets(known).groupby(["arm", "share"])[["trained_tokens", "step"]].mean()
    step_A = [np.interp(budget, *means.loc[arm].to_numpy().T) for arm in arms]
    return pd.Series(reached).unstack().loc[arms].to_numpy(), np.array(step_A), budget


def outcomes(evaluations: pd.DataFrame, arms: list[str]) -> dict[str, dict[str, np.ndarray]]:
    """{measure: {mix: accuracy_A_S}} for `MEASURES`; a mix has the seeds that were trained on it."""
    values: dict[str, dict[str, np.ndarray]] = {measure: {} for measure in MEASURES}
    for mix, of_mix in evaluations.groupby("mix", sort=False):
        values["steps"][mix] = runs.last_of(of_mix)["accuracy"].unstack("seed").loc[arms].to_numpy()
        values["tokens"][mix] = at_equal_tokens(of_mix.drop(columns="mix"), arms)[0]
    return values


def paired(values: Mapping[str, np.ndarray], confidence: float) -> dict[str, Pairs]:
    """{mix: differences of every pair of arms}, paired by seed, with Student-t intervals of their means.

    One mix has too few seeds to estimate how far a difference scatters (three agree in sign by luck one time in four),
    so the variance over seeds is pooled over the mixes, separately for each pair of arms: Σ(S − 1) degrees of freedom.
    That assumes a pair's scatter to be alike on all mixes. NaN bounds where every mix has one seed.
    """
    from scipy.stats import t

    differences = {mix: accuracy_A_S[:, None] - accuracy_A_S[None, :] for mix, accuracy_A_S in values.items()}
    freedom = sum(of_mix.shape[2] - 1 for of_mix in differences.values())
    squares_A_A = sum(of_mix.var(axis=2) * of_mix.shape[2] for of_mix in differences.values())
    pairs = {}
    for mix, difference_A_A_S in differences.items():
        mean_A_A = difference_A_A_S.mean(2)
        if freedom == 0:
            pairs[mix] = Pairs(mean_A_A, *np.full((3, *mean_A_A.shape), np.nan))
            continue
        error_A_A = np.sqrt(squares_A_A / freedom / difference_A_A_S.shape[2])
        statistic_A_A = np.divide(np.abs(mean_A_A), error_A_A, out=np.zeros(mean_A_A.shape), where=mean_A_A != 0)
        half_A_A = t.ppf((1 + confidence) / 2, freedom) * error_A_A
        pairs[mix] = Pairs(mean_A_A, mean_A_A - half_A_A, mean_A_A + half_A_A, 2 * t.sf(statistic_A_A, freedom))
    return pairs


def compare(evaluations: pd.DataFrame, questions: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """One row per mix and arm of `regimes.arms`. Columns; * has _low and _high as well:

    mix, arm, seeds, diverged
    accuracy_steps, accuracy_tokens    mean over seeds at the end, and at `budget` trained tokens
    budget, budget_step                `at_equal_tokens`'s, and this arm's step at that point
    difference_steps*, _tokens*        to the baseline, paired by seed: see `paired`
    resolved_steps, resolved_tokens    "more", "less" or "not resolved": by Holm's correction over all arms and mixes;
                                       "baseline" for the baseline
    rank_steps, rank_tokens            1 is the best of the mix
    paper_tokens_ratio_<level>*, trained_tokens_ratio_<level>*
                                       repro.stats.efficiency.summarise's, level the first of `statistics.levels`
    """
    arms = settings.regimes.arms
    base, values = arms.index(settings.baseline), outcomes(evaluations, arms)
    pairs = {measure: paired(of_mix, settings.statistics.confidence) for measure, of_mix in values.items()}
    tables = []
    for mix, of_mix in evaluations.groupby("mix", sort=False):
        _, step_A, budget = at_equal_tokens(of_mix, arms)
        summary = (
            summarise(of_mix, questions[questions["mix"] == mix], settings, family=arms).set_index("arm").loc[arms]
        )
        level = round(100 * settings.statistics.levels[0])
        ratios = [name for axis in COSTS if (name := f"{axis}_ratio_{level}") in summary]
        ends = ("", "_low", "_high", "_reached", "_open")
        kept = ["seeds", "diverged", *(f"{name}{end}" for name in ratios for end in ends)]
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

    `tau`: of the means over seeds. `resampled`, `low`, `high`: mean and 95% range over resamples of the seeds, drawn
    separately for each mix: no confidence interval, since τ moves in steps too coarse for one at so few seeds. A mix
    with itself is a ranking against that of a second, independent resample: how well a repetition of the same study
    could agree at best (both resample the same few seeds), which is the yardstick for `resampled` between mixes. NaN
    for single seeds.
    """
    first = [_resampled(accuracy_A_S, statistics, place) for place, accuracy_A_S in enumerate(values.values())]
    second = [
        _resampled(accuracy_A_S, statistics, place + len(values)) for place, accuracy_A_S in enumerate(values.values())
    ]
    rows = []
    for (i, mix), (j, other) in combinations_with_replacement(enumerate(values), 2):
        tau_B = kendall(first[i], second[i] if i == j else first[j])
        n_seeds = min(values[mix].shape[1], values[other].shape[1])
        tau, low, high = percentiles(tau_B, n_seeds, statistics)
        resampled = tau_B[1:].mean() if n_seeds > 1 else np.nan
        rows.append({"mix": mix, "other": other, "tau": tau, "resampled": resampled, "low": low, "high": high})
    return pd.DataFrame(rows)


def _resampled(accuracy_A_S: np.ndarray, statistics: Statistics, place: int) -> np.ndarray:
    """mean_B_A over resampled seeds, the same ones for all arms; row 0 is the mean over all."""
    draws_B_S = draws(accuracy_A_S.shape[1], statistics.model_copy(update={"seed": statistics.seed + place}))
    return accuracy_A_S[:, draws_B_S].mean(2).T


def agreements(evaluations: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """`agreement` for both `MEASURES`, column measure last."""
    of_measure = outcomes(evaluations, settings.regimes.arms).items()
    tables = [agreement(values, settings.statistics).assign(measure=measure) for measure, values in of_measure]
    return pd.concat(tables, ignore_index=True)


def differences(evaluations: pd.DataFrame, arms: list[str], confidence: float) -> pd.DataFrame:
    """Every ordered pair of `arms` on every mix: measure, mix, arm, other, difference, low, high. See `paired`."""
    rows = []
    for measure, values in outcomes(evaluations, arms).items():
        for mix, pairs in paired(values, confidence).items():
            for i, j in permutations(range(len(arms)), 2):
                ends = pairs.mean_A_A[i, j], pairs.low_A_A[i, j], pairs.high_A_A[i, j]
                rows.append((measure, mix, arms[i], arms[j], *ends))
    return pd.DataFrame(rows, columns=["measure", "mix", "arm", "other", "difference", "low", "high"])


def reversals(pairs: pd.DataFrame) -> pd.DataFrame:
    """measure, arm, other, above, below: the pairs of `differences` whose interval is above 0 on the mixes `above` and
    below 0 on the mixes `below`. By chance that takes two errors: with 95% and four mixes 0.7% per pair, 7% for ten."""
    rows = []
    for (measure, arm, other), of_pair in pairs.groupby(["measure", "arm", "other"], sort=False):
        above, below = list(of_pair["mix"][of_pair["low"] > 0]), list(of_pair["mix"][of_pair["high"] < 0])
        if above and below and arm < other:  # each pair once
            rows.append((measure, arm, other, above, below))
    return pd.DataFrame(rows, columns=["measure", "arm", "other", "above", "below"])


def choices(pairs: pd.DataFrame) -> pd.DataFrame:
    """The rows of `differences` that compare an arm chosen for variance with its control: see `PAIRS`."""
    chosen = pd.DataFrame(PAIRS, columns=["arm", "other"])
    return pairs.merge(chosen, on=["arm", "other"]).reset_index(drop=True)


def against_chance(evaluations: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """The study's own runs: the quarters of greatest variance less a quarter chosen at random, on `MEASURES`.

    measure, mix, arm, other, difference, low, high, seeds. Empty where the control or every other quarter is missing.
    """
    arms = [arm for arm in QUARTERS if arm in set(evaluations["arm"])]
    if CHANCE not in arms:
        return pd.DataFrame(columns=["measure", "mix", "arm", "other", "difference", "low", "high", "seeds"])
    quarters = evaluations[evaluations["arm"].isin(arms)].assign(mix=DEFAULT)
    pairs = differences(quarters, arms, settings.statistics.confidence)
    return pairs[pairs["other"] == CHANCE].assign(seeds=quarters["seed"].nunique()).reset_index(drop=True)


def headline(taus: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """A row per measure: how well the rankings of two mixes agree, and how many differences to the baseline are
    resolved. `taus`: `agreements`'; `table`: `compare`'s. Columns:

    tau_least, tau_mean, tau_greatest     of two different mixes
    resampled, repeated                   mean over resampled seeds: of two mixes, and of a repetition on the same mix
    compared, higher, lower               differences to the baseline, and those resolved as more and as less
    """
    rows = {}
    for measure, of_measure in taus.groupby("measure", sort=False):
        same = of_measure["mix"] == of_measure["other"]
        between, verdicts = of_measure[~same], table.loc[table[f"resolved_{measure}"] != "baseline"]
        rows[MEASURES[measure]] = {
            "tau_least": between["tau"].min(),
            "tau_mean": between["tau"].mean(),
            "tau_greatest": between["tau"].max(),
            "resampled": between["resampled"].mean(),
            "repeated": of_measure[same]["resampled"].mean(),
            "compared": len(verdicts),
            "higher": int((verdicts[f"resolved_{measure}"] == "more").sum()),
            "lower": int((verdicts[f"resolved_{measure}"] == "less").sum()),
        }
    return pd.DataFrame(rows).T.astype({"compared": int, "higher": int, "lower": int})


def regimes_table(table: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """`compare`'s table for reading: every cell with its interval as text, a mix's title in its first row only."""
    baseline = table["arm"] == settings.baseline
    columns = {
        "mix": table["mix"].map(titles(settings)).where(~table["mix"].duplicated(), ""),
        "arm": table["arm"].map({name: arm.title for name, arm in settings.all_arms.items()}),
        "final accuracy": table["accuracy_steps"].map("{:.3f}".format),
    }
    for measure, heading in MEASURES.items():
        signed = pd.Series(intervals(table, f"difference_{measure}", "+z.3f"), table.index)
        columns[f"difference, {heading.removeprefix('at ')}"] = signed.where(~baseline, "–")
    columns["rank (steps, tokens)"] = [
        f"{a}, {b}" for a, b in zip(table["rank_steps"], table["rank_tokens"], strict=True)
    ]
    level = settings.statistics.levels[0]
    for axis, heading in COSTS.items():
        if (name := f"{axis}_ratio_{round(100 * level)}") in table:
            cost = pd.Series([ratio(row, name) for _, row in table.iterrows()], table.index)
            columns[f"{heading} to {level:.0%} of the rise"] = cost.where(~baseline, "1")
    return pd.DataFrame(columns)
