"""What an arm reaches and what it costs, against the baseline, paired by seed: one row of figures per arm."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from repro.settings import Settings
from repro.stats.cost_ratios import cost_ratios
from repro.stats.intervals import improvement, interquartile_means, leave_one_out, ratio_interval, t_intervals
from repro.stats.multiplicity import significance
from repro.stats.pass_at_k import KS, run_means
from repro.stats.runs import at_budgets, compared, last_of

MEASURES = ("greedy", "harder", "harder_greedy")  # of the last evaluation, next to accuracy at temperature 1
AXES = ("trained_tokens", "paper_tokens", "total_tokens", "flops")
TOTALS = {"tokens": "trained_tokens", "paper": "paper_tokens", "generated": "generated_tokens", "compute": "flops"}


def summarise(
    evaluations: pd.DataFrame, questions: pd.DataFrame | None, settings: Settings, family: Sequence[str] | None = None
) -> pd.DataFrame:
    """One row per compared arm that `evaluations` holds, group by group; without `questions`, nothing of pass@k.
    Columns; * has _low and _high as well:

    arm, title, group, seeds
    accuracy*, gain*, difference*   at the end; over the start; against the baseline, paired by seed
    best*, best_difference*         the best checkpoint of each run (a maximum over evaluations: it flatters, most of
                                    all an arm that spends much and so is evaluated often)
    iqm*, improvement               interquartile mean (from four seeds on); probability of improvement, no interval
    p_value, p_holm, resolved       paired t-test, Holm over `family`: see repro.stats.multiplicity.significance
    <measure>*, <measure>_gain*, <measure>_difference*, <measure>_resolved
                                    the same of `MEASURES`, each corrected by itself; without those that a run lacks
    pass_<k>*, pass_<k>_difference* for k = 1, 8, 16, unbiased; NaN when there are fewer samples than k
    <axis>_ratio_<level>*           cost to reach a level of the baseline's rise, relative to the baseline's: see
      …_reached, …_open             repro.stats.cost_ratios; axes: trained_tokens, as computed; paper_tokens, as papers
                                    count (repro.protocol.ledger); total_tokens = generated + trained, as computed
                                    (prompts are read again in training and count there); flops
    tokens*, paper*, generated*, compute*
                                    tokens trained on in all, as computed and as the papers count, tokens generated, and
                                    FLOPs, relative to the baseline
    profile_share                   of an arm's FLOPs, those of profiling, where the evaluations have them
    diverged, collapsed             runs with an update that was not finite; runs that end below half of their start.
                                    They are counted, never dropped: each stays in every mean

    `family`: the declared comparisons, by default every compared arm but the baseline; the arms of a regime, say.
    The intervals are Student's over seeds, see repro.stats.intervals: one that excludes no difference has p_value below
    1 − confidence, and the reverse.
    """
    statistics, baseline = settings.statistics, settings.baseline
    arms = [arm for arm in compared(settings) if arm in set(evaluations["arm"])]
    family = [arm for arm in (compared(settings) if family is None else family) if arm != baseline]
    evaluations = evaluations[evaluations["arm"].isin(arms)]
    if not (known := np.isfinite(evaluations["accuracy"])).all():
        arm, seed = evaluations.loc[~known, ["arm", "seed"]].iloc[0]
        raise ValueError(f"efficiency: {arm} with seed {seed} has an accuracy that is not a number; train it again")
    curves = at_budgets(evaluations)
    curves["total_tokens"] = curves["generated_tokens"] + curves["trained_tokens"]
    seeds = _paired_seeds(curves, baseline)
    base = arms.index(baseline)
    accuracy_A_S_E = _stack(curves, "accuracy", arms)
    best = evaluations.groupby(["arm", "seed"])["accuracy"].max().unstack("seed")
    difference_A_S = accuracy_A_S_E[:, :, -1] - accuracy_A_S_E[base, :, -1]
    columns: dict[str, Any] = {
        "arm": arms,
        "title": [settings.arm(arm).title for arm in arms],
        "group": [settings.arm(arm).group for arm in arms],
        "seeds": len(seeds),
        **_outcomes(accuracy_A_S_E, best.loc[arms, seeds].to_numpy(), base, statistics.confidence),
        **significance(difference_A_S, arms, baseline, family, statistics.confidence),
    }
    columns |= _measure_columns(evaluations, arms, seeds, base, family, settings)
    for k in KS if questions is not None else ():
        pass_A_S = run_means(questions, arms, seeds, k)
        columns |= _mean_columns(f"pass_{k}", pass_A_S, statistics.confidence)
        columns |= _mean_columns(f"pass_{k}_difference", pass_A_S - pass_A_S[base], statistics.confidence)
    columns |= _cost_columns(curves, accuracy_A_S_E, arms, base, statistics.levels, statistics.confidence)
    columns["diverged"] = _stack(curves, "diverged", arms).any(2).sum(1)
    columns["collapsed"] = (accuracy_A_S_E[:, :, -1] < accuracy_A_S_E[:, :, 0] / 2).sum(1)
    return pd.DataFrame(columns)


def _measure_columns(
    evaluations: pd.DataFrame, arms: list[str], seeds: list[int], base: int, family: Sequence[str], settings: Settings
) -> dict[str, list]:
    """Where runs end greedily and on the harder split, as far as that was measured."""
    ends, confidence = last_of(evaluations), settings.statistics.confidence
    starts = evaluations.sort_values("step").groupby(["arm", "seed"]).first()
    columns: dict[str, list] = {}
    for name in MEASURES:
        if name not in ends or ends[name].isna().any():
            continue
        end_A_S, start_A_S = (of[name].unstack("seed").loc[arms, seeds].to_numpy(float) for of in (ends, starts))
        difference_A_S = end_A_S - end_A_S[base]
        columns |= _mean_columns(name, end_A_S, confidence)
        columns |= _mean_columns(f"{name}_gain", end_A_S - start_A_S, confidence)
        columns |= _mean_columns(f"{name}_difference", difference_A_S, confidence)
        told = significance(difference_A_S, arms, settings.baseline, family, confidence)
        columns[f"{name}_resolved"] = told["resolved"]
    return columns


def _cost_columns(
    curves: pd.DataFrame,
    accuracy_A_S_E: np.ndarray,
    arms: list[str],
    base: int,
    levels: Sequence[float],
    confidence: float,
) -> dict[str, Any]:
    """Ratios on every axis at every level, and the totals."""
    columns: dict[str, Any] = {}
    for axis in AXES:
        if axis not in curves:
            continue
        costs_A_S_E = _stack(curves, axis, arms)
        for share, ratios in cost_ratios(costs_A_S_E, accuracy_A_S_E, base, levels, confidence).items():
            level = round(100 * share)
            columns |= {f"{axis}_ratio_{level}{end}": values for end, values in ratios.items()}
    if "flops_profile" in curves:
        share_A_S = _stack(curves, "flops_profile", arms)[:, :, -1] / _stack(curves, "flops", arms)[:, :, -1]
        columns["profile_share"] = share_A_S.mean(1)
    leave_S_J = leave_one_out(accuracy_A_S_E.shape[1]).T
    for name, axis in TOTALS.items():
        if axis not in curves:
            continue
        total_A_J = _stack(curves, axis, arms)[:, :, -1] @ leave_S_J
        rows = [ratio_interval(ratio_J, confidence) for ratio_J in total_A_J / total_A_J[base]]
        columns |= _bound_columns(name, zip(*rows, strict=True))
    return columns


def _outcomes(accuracy_A_S_E: np.ndarray, best_A_S: np.ndarray, base: int, confidence: float) -> dict[str, list]:
    """Where the runs end and how high they got."""
    final_A_S = accuracy_A_S_E[:, :, -1]
    means = {
        "accuracy": final_A_S,
        "gain": final_A_S - accuracy_A_S_E[:, :, 0],
        "difference": final_A_S - final_A_S[base],
        "best": best_A_S,
        "best_difference": best_A_S - best_A_S[base],
    }
    columns: dict[str, list] = {}
    for name, values_A_S in means.items():
        columns |= _mean_columns(name, values_A_S, confidence)
    columns |= _bound_columns("iqm", interquartile_means(final_A_S, confidence))
    return columns | {"improvement": list(improvement(final_A_S, final_A_S[base]))}


def _mean_columns(name: str, values_A_S: np.ndarray, confidence: float) -> dict[str, list]:
    return _bound_columns(name, t_intervals(values_A_S, confidence))


def _bound_columns(name: str, ends: Iterable[Sequence[float]]) -> dict[str, list]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), map(list, ends), strict=True))


def _stack(curves: pd.DataFrame, column: str, arms: list[str]) -> np.ndarray:
    """values_A_S_E of a column; arms in the given order, seeds and shares of the budget sorted."""
    table = curves.pivot(index=["arm", "seed"], columns="share", values=column).sort_index()
    return np.stack([table.loc[arm].to_numpy(float) for arm in arms])


def _paired_seeds(curves: pd.DataFrame, baseline: str) -> list[int]:
    """The seeds that every arm has; ValueError if an arm lacks one that the baseline has, or has another."""
    seeds = {arm: sorted(runs["seed"].unique().tolist()) for arm, runs in curves.groupby("arm", sort=False)}
    if baseline not in seeds:
        raise ValueError(f"efficiency: there is no run of the baseline {baseline!r}; train it too")
    for arm, present in seeds.items():
        if present != seeds[baseline]:
            raise ValueError(
                f"efficiency: {arm} has seeds {present}, {baseline} has {seeds[baseline]}; "
                "arms are compared in pairs, so train the missing ones"
            )
    return seeds[baseline]
