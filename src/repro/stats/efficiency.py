"""What an arm reaches and what it costs, against the baseline, paired by seed: one row of figures per arm."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from repro.settings import Settings, Statistics
from repro.stats.intervals import bounds, draws, improvement, interquartile_mean
from repro.stats.multiplicity import significance
from repro.stats.pass_at_k import KS, run_means
from repro.stats.runs import carried_forward, compared

AXES = ("trained_tokens", "total_tokens", "flops", "seconds")


def summarise(
    evaluations: pd.DataFrame, questions: pd.DataFrame, settings: Settings, family: Sequence[str] | None = None
) -> pd.DataFrame:
    """One row per compared arm that `evaluations` holds, group by group. Columns; * has _low and _high as well:

    arm, title, group, seeds
    accuracy*, gain*, difference*   at the end; over the start; against the baseline, paired by seed
    best*, best_difference*         the best checkpoint of each run (a maximum over evaluations: it flatters)
    iqm*, improvement*              interquartile mean (from four seeds on); probability of improvement
    p_value, p_holm, resolved       paired t-test, Holm over `family`: see repro.stats.multiplicity.significance
    pass_<k>*, pass_<k>_difference* for k = 1, 8, 16, unbiased; NaN when there are fewer samples than k
    <axis>_ratio_<level>*           cost to reach a level of the baseline's rise, relative to the baseline's: see
      …_reached, …_open             `cost_ratios`; axes: trained_tokens; total_tokens = generated + trained (prompts
                                    are read again in training and count there); flops; seconds, where they are known
    speedup_<level>*                time to accuracy: the baseline's seconds over the arm's, 1 / seconds_ratio; an
      …_reached, …_open             upper bound where the level was not reached
    tokens*, generated*, compute*   tokens trained on in all, generated, and FLOPs, relative to the baseline
    profile_share                   of an arm's FLOPs, those of profiling, where the evaluations have them
    diverged, collapsed             runs with an update that was not finite; runs that end below half of their start.
                                    They are counted, never dropped: each stays in every mean

    `family`: the declared comparisons, by default every compared arm but the baseline; the arms of a regime, say.
    The intervals are percentile bootstraps over seeds, with the same draws for arm and baseline.
    """
    statistics, baseline = settings.statistics, settings.baseline
    arms = [arm for arm in compared(settings) if arm in set(evaluations["arm"])]
    family = [arm for arm in (compared(settings) if family is None else family) if arm != baseline]
    curves = carried_forward(evaluations[evaluations["arm"].isin(arms)])
    curves["total_tokens"] = curves["generated_tokens"] + curves["trained_tokens"]
    seeds = _paired_seeds(curves, baseline)
    base = arms.index(baseline)
    accuracy_A_S_E = _stack(curves, "accuracy", arms)
    difference_A_S = accuracy_A_S_E[:, :, -1] - accuracy_A_S_E[base, :, -1]
    columns: dict[str, Any] = {
        "arm": arms,
        "title": [settings.arms[arm].title for arm in arms],
        "group": [settings.arms[arm].group for arm in arms],
        "seeds": len(seeds),
        **_outcomes(accuracy_A_S_E, base, statistics),
        **significance(difference_A_S, arms, baseline, family, statistics.confidence),
    }
    for k in KS:
        pass_A_S = run_means(questions, arms, seeds, k)
        columns |= _mean_columns(f"pass_{k}", pass_A_S, statistics)
        columns |= _mean_columns(f"pass_{k}_difference", pass_A_S - pass_A_S[base], statistics)
    columns |= _cost_columns(curves, accuracy_A_S_E, arms, base, statistics)
    columns["diverged"] = _stack(curves, "diverged", arms).any(2).sum(1)
    columns["collapsed"] = (accuracy_A_S_E[:, :, -1] < accuracy_A_S_E[:, :, 0] / 2).sum(1)
    return pd.DataFrame(columns)


def cost_to_reach(costs_B_E: np.ndarray, accuracies_B_E: np.ndarray, level_B: np.ndarray):
    """(cost_B, reached_B): the first cost at which each of B curves, linear between its E evaluations, is at its level.

    A curve that never gets there gives its last cost, a lower bound, and False. Evaluations are in order of cost.
    """
    above_B_E = accuracies_B_E >= level_B[:, None]
    reached_B, first_B = above_B_E.any(1), above_B_E.argmax(1)
    rows_B, before_B = np.arange(len(level_B)), np.maximum(first_B - 1, 0)
    low_B, high_B = accuracies_B_E[rows_B, before_B], accuracies_B_E[rows_B, first_B]
    gap_B = np.where(high_B > low_B, high_B - low_B, 1.0)
    share_B = np.where(first_B > 0, (level_B - low_B) / gap_B, 0.0)
    start_B, end_B = costs_B_E[rows_B, before_B], costs_B_E[rows_B, first_B]
    return np.where(reached_B, start_B + share_B * (end_B - start_B), costs_B_E[:, -1]), reached_B


def cost_ratios(
    costs_A_B_E: np.ndarray,
    accuracies_A_B_E: np.ndarray,
    base: int,
    share: float,
    n_seeds: int,
    statistics: Statistics,
) -> dict[str, list]:
    """{"": ratio, "_low", "_high", "_reached", "_open"}, each over A arms: an arm's cost to reach the level over that
    of arm `base`.

    The curves are means over seeds, resampled in the order of `draws`, the same seeds for arm and baseline (a bootstrap
    of pairs); the level is start + share · (peak − start) of the baseline's, recomputed in each resample. Means first,
    because one seed's first crossing of its noisy curve is early by luck: ratios of single seeds would favour the
    baseline and scatter too little. Where the arm's mean curve never gets to the level, `_reached` is False and the
    ratio a lower bound; where more than a tail of its resamples never do, `_open` is True and `_high` a lower bound.
    All is NaN where the baseline never rose.
    """
    base_B_E = accuracies_A_B_E[base]
    level_B = base_B_E[:, 0] + share * (base_B_E.max(1) - base_B_E[:, 0])
    base_cost_B, _ = cost_to_reach(costs_A_B_E[base], base_B_E, level_B)
    rows = []
    for costs_B_E, accuracies_B_E in zip(costs_A_B_E, accuracies_A_B_E, strict=True):
        cost_B, reached_B = cost_to_reach(costs_B_E, accuracies_B_E, level_B)
        ratio_B = cost_B / np.where(base_cost_B > 0, base_cost_B, np.nan)
        open_end = 1 - reached_B[1:].mean() > (1 - statistics.confidence) / 2
        rows.append((*bounds(ratio_B, n_seeds, statistics), bool(reached_B[0]), bool(open_end)))
    return dict(zip(("", "_low", "_high", "_reached", "_open"), map(list, zip(*rows, strict=True)), strict=True))


def _cost_columns(
    curves: pd.DataFrame, accuracy_A_S_E: np.ndarray, arms: list[str], base: int, statistics: Statistics
) -> dict[str, Any]:
    """Ratios on every axis at every level, the speed-ups that follow from seconds, and the totals."""
    n_seeds = accuracy_A_S_E.shape[1]
    draws_B_S = draws(n_seeds, statistics)
    accuracies_A_B_E = accuracy_A_S_E[:, draws_B_S].mean(2)
    columns: dict[str, Any] = {}
    for axis in AXES:
        if axis not in curves:
            continue
        costs_A_B_E = _stack(curves, axis, arms)[:, draws_B_S].mean(2)
        for share in statistics.levels:
            level = round(100 * share)
            ratios = cost_ratios(costs_A_B_E, accuracies_A_B_E, base, share, n_seeds, statistics)
            columns |= {f"{axis}_ratio_{level}{end}": values for end, values in ratios.items()}
            if axis == "seconds":
                inverse = {"": "", "_low": "_high", "_high": "_low"}
                columns |= {f"speedup_{level}{end}": 1 / np.array(ratios[of]) for end, of in inverse.items()}
                columns |= {f"speedup_{level}{end}": ratios[end] for end in ("_reached", "_open")}
    if "flops_profile" in curves:
        share_A_S = _stack(curves, "flops_profile", arms)[:, :, -1] / _stack(curves, "flops", arms)[:, :, -1]
        columns["profile_share"] = share_A_S.mean(1)
    for name, axis in {"tokens": "trained_tokens", "generated": "generated_tokens", "compute": "flops"}.items():
        total_A_B = _stack(curves, axis, arms)[:, :, -1][:, draws_B_S].mean(2)
        columns |= _bound_columns(name, total_A_B / total_A_B[base], n_seeds, statistics)
    return columns


def _outcomes(accuracy_A_S_E: np.ndarray, base: int, statistics: Statistics) -> dict[str, list]:
    """Where the runs end and how high they got."""
    final_A_S, best_A_S, n_seeds = accuracy_A_S_E[:, :, -1], accuracy_A_S_E.max(2), accuracy_A_S_E.shape[1]
    means = {
        "accuracy": final_A_S,
        "gain": final_A_S - accuracy_A_S_E[:, :, 0],
        "difference": final_A_S - final_A_S[base],
        "best": best_A_S,
        "best_difference": best_A_S - best_A_S[base],
    }
    columns: dict[str, list] = {}
    for name, values_A_S in means.items():
        columns |= _mean_columns(name, values_A_S, statistics)
    columns |= _bound_columns("iqm", interquartile_mean(final_A_S, statistics), n_seeds, statistics)
    return columns | _bound_columns(
        "improvement", improvement(final_A_S, final_A_S[base], statistics), n_seeds, statistics
    )


def _mean_columns(name: str, values_A_S: np.ndarray, statistics: Statistics) -> dict[str, list]:
    n_seeds = values_A_S.shape[1]
    return _bound_columns(name, values_A_S[:, draws(n_seeds, statistics)].mean(2), n_seeds, statistics)


def _bound_columns(name: str, estimates_A_B: np.ndarray, n_seeds: int, statistics: Statistics) -> dict[str, list]:
    rows = [bounds(estimates_B, n_seeds, statistics) for estimates_B in estimates_A_B]
    return dict(zip((name, f"{name}_low", f"{name}_high"), map(list, zip(*rows, strict=True)), strict=True))


def _stack(curves: pd.DataFrame, column: str, arms: list[str]) -> np.ndarray:
    """values_A_S_E of a column; arms in the given order, seeds and steps sorted."""
    table = curves.pivot(index=["arm", "seed"], columns="step", values=column).sort_index()
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
