"""The study in figures: some ten headlines for metrics.json, and each arm's, which `make verify` compares.

Both are functions of the runs' evaluations and params.yaml; tables/evaluations.parquet, in git, is all they need.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from repro.experiments.results import tables
from repro.experiments.results.noise_floor import noise_floor
from repro.settings import Settings
from repro.stats.efficiency import summarise


def headlines(summary: pd.DataFrame, evaluations: pd.DataFrame, settings: Settings) -> dict[str, Any]:
    """What DVC shows and compares between commits: {"baseline": how it ends, "difference": {arm: …} of the arms that
    are compared on every mix of queries, controls apart, "arms": {outcome: how many}, "resolvable_difference": the
    least that these seeds can tell}; null where a figure is not known. See `summarise` for what each one is."""
    arms = summary.set_index("arm")
    base, others = arms.loc[settings.baseline], arms.drop(index=settings.baseline)
    shown = [arm for arm in settings.regimes.arms if arm in others.index and others.at[arm, "group"] != tables.CONTROLS]
    level = round(100 * settings.statistics.levels[0])
    below = {axis: _clearly_below(others, f"{axis}_ratio_{level}") for axis in ("trained_tokens", "flops")}
    repeated = f"{settings.baseline}-again" in set(evaluations["arm"])
    noise = noise_floor(evaluations, settings).iloc[0]["resolvable_holm"] if repeated else None
    return {
        "baseline": {"final_accuracy": _rounded(base["accuracy"]), "gain": _rounded(base["gain"])},
        "difference": {arm: _rounded(others.at[arm, "difference"]) for arm in shown},
        "arms": {
            "significantly_higher": int((others["resolved"] == "more").sum()),
            "significantly_lower": int((others["resolved"] == "less").sum()),
            **{f"clearly_fewer_{axis}": count for axis, count in below.items()},
        },
        "resolvable_difference": _rounded(noise),
    }


def _clearly_below(arms: pd.DataFrame, ratio: str) -> int:
    """How many arms reach the level at a cost whose interval lies wholly below the baseline's."""
    closed = arms[f"{ratio}_reached"] & ~arms[f"{ratio}_open"]
    return int((closed & (arms[f"{ratio}_high"] < 1)).sum())


def figures_of_arms(evaluations: pd.DataFrame, settings: Settings) -> dict[str, dict[str, float | None]]:
    """{arm: {figure: value}}: accuracy, difference, best and cost ratios at the first level, each with _low and _high;
    null where undefined, and where a ratio would be but a lower bound (see `efficiency.cost_ratios`)."""
    summary = summarise(evaluations, None, settings)
    level = round(100 * settings.statistics.levels[0])
    axes = [axis for axis in tables.FRONT_AXES if f"{axis}_ratio_{level}" in summary]
    names = ["accuracy", "difference", "best", *(f"{axis}_ratio_{level}" for axis in axes)]
    return {
        row["arm"]: {key: value for name in names for key, value in _stated(row, name).items()}
        for row in summary.to_dict("records")
    }


def _stated(row: Mapping[str, Any], name: str) -> dict[str, float | None]:
    """One figure with its ends; see `figures_of_arms`."""
    reached, is_open = row.get(f"{name}_reached", True), row.get(f"{name}_open", False)
    known = {"": reached, "_low": reached, "_high": reached and not is_open}
    keys = {f"{name}{end}": is_known for end, is_known in known.items()}
    return {key: _rounded(row[key]) if is_known else None for key, is_known in keys.items()}


def _rounded(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else round(float(value), 6)
