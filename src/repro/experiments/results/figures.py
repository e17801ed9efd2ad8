"""The study in some ten figures, for metrics.json: a function of the runs' evaluations and of params.yaml."""

from typing import Any

import pandas as pd

from repro.experiments.results.noise_floor import noise_floor
from repro.settings import Settings


def headlines(summary: pd.DataFrame, evaluations: pd.DataFrame, settings: Settings) -> dict[str, Any]:
    """What DVC shows and compares between commits: {"baseline": how it ends, "difference": {arm: …} of the primaries,
    "arms": {outcome: how many, significantly}, "resolvable_difference": the least that these seeds can tell}; null
    where a figure is not known. See `summarise` for what each one is."""
    arms = summary.set_index("arm")
    base, others = arms.loc[settings.baseline], arms.drop(index=settings.baseline)
    shown = [arm for arm in settings.primaries if arm in others.index]
    level = round(100 * settings.statistics.levels[0])
    below = {axis: _clearly_below(others, f"{axis}_ratio_{level}") for axis in ("trained_tokens", "flops")}
    repeated = f"{settings.baseline}-again" in set(evaluations["arm"])
    noise = noise_floor(evaluations, settings).iloc[0]["resolvable_holm"] if repeated else None
    return {
        "baseline": {
            "final_accuracy": _rounded(base["accuracy"]),
            "gain": _rounded(base["gain"]),
            "greedy": _rounded(base.get("greedy")),
        },
        "difference": {arm: _rounded(others.at[arm, "difference"]) for arm in shown},
        "arms": {
            "higher": int((others["resolved"] == "more").sum()),
            "lower": int((others["resolved"] == "less").sum()),
            **{f"fewer_{axis}": count for axis, count in below.items()},
        },
        "resolvable_difference": _rounded(noise),
    }


def _clearly_below(arms: pd.DataFrame, ratio: str) -> int:
    """How many arms reach the level at a cost whose interval lies wholly below the baseline's."""
    closed = arms[f"{ratio}_reached"] & ~arms[f"{ratio}_open"]
    return int((closed & (arms[f"{ratio}_high"] < 1)).sum())


def _rounded(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else round(float(value), 6)
