"""What an accuracy costs: cost to reach a level, paired by seed with the baseline."""

from typing import Any

import numpy as np
import pandas as pd

from repro.settings import Statistics
from repro.study.intervals import mean_intervals


def cost_to_reach(costs_E: np.ndarray, accuracies_E: np.ndarray, level: float) -> tuple[float, bool]:
    """(cost, reached): the first cost at which the curve, linear between its E evaluations, is at `level`.

    A curve that never gets there gives its last cost, a lower bound, and False. Evaluations are in order of cost.
    """
    at = np.flatnonzero(accuracies_E >= level)
    if len(at) == 0:
        return float(costs_E[-1]), False
    first = int(at[0])
    if first == 0:
        return float(costs_E[0]), True
    low, high = accuracies_E[first - 1], accuracies_E[first]
    share = (level - low) / (high - low)
    return float(costs_E[first - 1] + share * (costs_E[first] - costs_E[first - 1])), True


def paired_costs(evaluations: pd.DataFrame, baseline: str, axis: str, share_of_peak: float) -> pd.DataFrame:
    """One row per arm and seed: cost, reached, and ratio to the baseline's cost in the same seed.

    The level is set in each seed by its baseline run alone: start + share · (peak − start), peak its best evaluation.
    Both runs of a pair start from the same policy and the same evaluation, so the level is fair to both; the peak is a
    maximum over noisy evaluations, which the baseline reaches by definition and an equal arm need not.
    """
    rows = []
    for seed, runs in evaluations.groupby("seed"):
        curves = {arm: curve.sort_values("step") for arm, curve in runs.groupby("arm", sort=False)}
        if baseline not in curves:
            raise ValueError(f"efficiency: seed {seed} has no run of the baseline {baseline!r}; train it too")
        accuracies = curves[baseline]["accuracy"].to_numpy()
        level = accuracies[0] + share_of_peak * (accuracies.max() - accuracies[0])
        own, _ = cost_to_reach(curves[baseline][axis].to_numpy(float), accuracies, level)
        for arm, curve in curves.items():
            cost, reached = cost_to_reach(curve[axis].to_numpy(float), curve["accuracy"].to_numpy(), level)
            ratio = cost / own if own > 0 else np.nan
            rows.append({"arm": arm, "seed": seed, "level": level, "cost": cost, "reached": reached, "ratio": ratio})
    return pd.DataFrame(rows)


def summarise(evaluations: pd.DataFrame, baseline: str, axes: list[str], statistics: Statistics) -> pd.DataFrame:
    """One row per arm: final accuracy, its gain over the start, its difference to the baseline paired by seed, and for
    each axis and level the geometric mean of the paired cost ratio; every figure with `_low` and `_high`, and the
    number of seeds that reached the level. A ratio with a seed that did not reach it is a lower bound; it is NaN when
    the baseline of some seed never rose above its start."""
    arms = list(dict.fromkeys(evaluations["arm"]))
    ordered = evaluations.sort_values(["seed", "step"])
    first = ordered.groupby(["arm", "seed"])["accuracy"].first().unstack("seed")
    last = ordered.groupby(["arm", "seed"])["accuracy"].last().unstack("seed")
    best = ordered.groupby(["arm", "seed"])["accuracy"].max().unstack("seed")
    table: dict[str, dict[str, Any]] = {arm: {"arm": arm, "seeds": int(last.loc[arm].notna().sum())} for arm in arms}

    def put(name: str, values: dict[str, np.ndarray], change=lambda x: x) -> None:
        for arm, (point, low, high) in mean_intervals(values, statistics).items():
            table[arm] |= {name: change(point), f"{name}_low": change(low), f"{name}_high": change(high)}

    put("accuracy", {arm: last.loc[arm].to_numpy() for arm in arms})
    put("best", {arm: best.loc[arm].to_numpy() for arm in arms})
    put("gain", {arm: (last - first).loc[arm].to_numpy() for arm in arms})
    put("difference", {arm: (last.loc[arm] - last.loc[baseline]).to_numpy() for arm in arms})
    for axis in axes:
        for share in statistics.levels:
            costs = paired_costs(evaluations, baseline, axis, share)
            name = f"{axis}_ratio_{round(100 * share)}"
            ratios = {arm: np.log(costs.loc[costs["arm"] == arm, "ratio"].to_numpy()) for arm in arms}
            put(name, ratios, lambda x: float(np.exp(x)))
            for arm in arms:
                table[arm][f"{name}_reached"] = int(costs.loc[costs["arm"] == arm, "reached"].sum())
    return pd.DataFrame(table.values())
