"""What an accuracy costs: cost to reach a level relative to the baseline, paired by seed."""

from typing import Any

import numpy as np
import pandas as pd

from repro.settings import Statistics
from repro.study.intervals import mean_intervals


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
    evaluations: pd.DataFrame, baseline: str, axis: str, share: float, statistics: Statistics
) -> dict[str, dict[str, Any]]:
    """For each arm: ratio of its cost to the baseline's, low, high, and whether it reached the level at all.

    The curves are means over seeds; the level is start + share · (peak − start) of the baseline's. The interval
    resamples seeds, the same ones for arm and baseline (a bootstrap of pairs), and does everything anew in each
    resample. Means first, because one seed's first crossing of its own noisy curve is early by luck: ratios of single
    seeds would favour the baseline and scatter too little. An arm whose mean curve never gets to the level has a lower
    bound for a ratio; all is NaN where the baseline never rose.
    """
    accuracy, cost = (_by_arm(evaluations, column, baseline) for column in ("accuracy", axis))
    n_seeds = len(accuracy[baseline])
    draws_B_S = np.random.default_rng(statistics.seed).integers(n_seeds, size=(statistics.resamples, n_seeds))
    draws_B_S = np.vstack([np.arange(n_seeds), draws_B_S])  # the first is the estimate, the rest its uncertainty
    base_B_E = accuracy[baseline][draws_B_S].mean(1)
    level_B = base_B_E[:, 0] + share * (base_B_E.max(1) - base_B_E[:, 0])
    own_B, _ = cost_to_reach(cost[baseline][draws_B_S].mean(1), base_B_E, level_B)
    tails = 50 * (1 - statistics.confidence), 50 * (1 + statistics.confidence)
    ratios = {}
    for arm in accuracy:
        cost_B, reached_B = cost_to_reach(cost[arm][draws_B_S].mean(1), accuracy[arm][draws_B_S].mean(1), level_B)
        ratio_B = cost_B / np.where(own_B > 0, own_B, np.nan)
        known = n_seeds > 1 and np.isfinite(ratio_B[0])
        low, high = np.nanpercentile(ratio_B[1:], tails) if known else (np.nan, np.nan)
        ratios[arm] = {"": float(ratio_B[0]), "_low": low, "_high": high, "_reached": bool(reached_B[0])}
    return ratios


def _by_arm(evaluations: pd.DataFrame, column: str, baseline: str) -> dict[str, np.ndarray]:
    """{arm: values_S_E}, seeds and steps in order; ValueError if an arm lacks a seed that the baseline has."""
    tables = {
        arm: runs.pivot(index="seed", columns="step", values=column).sort_index()
        for arm, runs in evaluations.groupby("arm", sort=False)
    }
    if baseline not in tables:
        raise ValueError(f"efficiency: there is no run of the baseline {baseline!r}; train it too")
    for arm, table in tables.items():
        if list(table.index) != list(tables[baseline].index):
            raise ValueError(
                f"efficiency: {arm} has seeds {list(table.index)}, {baseline} has {list(tables[baseline].index)}; "
                "arms are compared in pairs, so train the missing ones"
            )
    return {arm: table.to_numpy(float) for arm, table in tables.items()}


def summarise(evaluations: pd.DataFrame, baseline: str, axes: list[str], statistics: Statistics) -> pd.DataFrame:
    """One row per arm: final accuracy, best, gain over the start, difference to the baseline paired by seed, and for
    each axis and level the cost ratio `<axis>_ratio_<percent>`; all with `_low` and `_high`, ratios with `_reached`."""
    arms = list(dict.fromkeys(evaluations["arm"]))
    accuracy = _by_arm(evaluations, "accuracy", baseline)
    table: dict[str, dict[str, Any]] = {arm: {"arm": arm, "seeds": len(accuracy[arm])} for arm in arms}

    def put(name: str, values: dict[str, np.ndarray]) -> None:
        for arm, (point, low, high) in mean_intervals(values, statistics).items():
            table[arm] |= {name: point, f"{name}_low": low, f"{name}_high": high}

    put("accuracy", {arm: accuracy[arm][:, -1] for arm in arms})
    put("best", {arm: accuracy[arm].max(1) for arm in arms})
    put("gain", {arm: accuracy[arm][:, -1] - accuracy[arm][:, 0] for arm in arms})
    put("difference", {arm: accuracy[arm][:, -1] - accuracy[baseline][:, -1] for arm in arms})
    for axis in axes:
        for share in statistics.levels:
            for arm, values in cost_ratios(evaluations, baseline, axis, share, statistics).items():
                table[arm] |= {f"{axis}_ratio_{round(100 * share)}{end}": value for end, value in values.items()}
    return pd.DataFrame(table.values())
