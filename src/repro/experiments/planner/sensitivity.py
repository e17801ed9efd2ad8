"""How far each assumption moves the prediction: of the durations that the papers state, and from draw to draw."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from repro.data.sources import SOURCES
from repro.experiments.planner.measured import Measured
from repro.experiments.planner.plan import relative, row
from repro.paper_scale import SCALES, PaperScale
from repro.paper_scale.at_scale import EVALUATION
from repro.paper_scale.values import ours
from repro.settings import Settings
from repro.settings.planner import Assumptions

RATIOS = ("hours_ratio", "trained_ratio")


@dataclass(frozen=True)
class Change:
    """What is assumed otherwise. `factors` on assumptions, `gpus` in all; `evaluations`: whether each evaluation on the
    way takes as many samples of each question as the last one, for the papers' curves are of so many."""

    words: str
    factors: Mapping[str, float] = field(default_factory=dict)
    gpus: int | None = None
    evaluations: bool = False


SLOWER = {"train_utilisation": 0.5, "score_utilisation": 0.5}
DECODING = {"decode_utilisation": 0.5, "bandwidth_utilisation": 0.5, "decode_overhead_ms": 2.0}
LONGER = {"mean_response_share": 2.0}
CHANGES = (
    Change("as assumed"),
    Change("half of the FLOP/s while training and scoring", SLOWER),
    Change("half of the tokens per second while generating", DECODING),
    Change("responses twice as long", LONGER),
    Change(
        f"{EVALUATION['final_samples']} samples of each question at every evaluation, each {EVALUATION['every']} steps",
        evaluations=True,
    ),
    Change("all of these", SLOWER | DECODING | LONGER, evaluations=True),
    Change("4 GPUs, all else as assumed", gpus=4),
    Change("2 GPUs, all else as assumed", gpus=2),
)


def sensitivity(
    settings: Settings,
    measured: Measured,
    assumptions: Assumptions,
    changes: Iterable[Change] = CHANGES,
    scales: Mapping[str, PaperScale] = SCALES,
) -> pd.DataFrame:
    """scale, arm, change, hours, paper_hours: every run whose duration a paper states, under every change."""
    rows = []
    for change in changes:
        for name, scale in scales.items():
            for arm, stated in scale.hours.items():
                hours = _hours(change, scale, settings, arm, measured, assumptions)
                rows.append({"scale": name, "arm": arm, "change": change.words, "hours": hours})
                rows[-1]["paper_hours"] = stated.value
    return pd.DataFrame(rows)


def _hours(
    change: Change, scale: PaperScale, settings: Settings, arm: str, measured: Measured, assumptions: Assumptions
) -> float:
    own = assumptions.model_copy(
        update={key: factor * getattr(assumptions, key) for key, factor in change.factors.items()}
    )
    if change.gpus:
        scale = scale.model_copy(
            update={"nodes": ours(1, change.words), "gpus_per_node": ours(change.gpus, change.words)}
        )
    found = row(scale, settings, arm, measured, own)
    if not change.evaluations:
        return found["hours"]
    questions = sum(SOURCES[name].rows for name in scale.validation_data.value)
    more = found["steps"] // EVALUATION["every"] * questions * EVALUATION["final_samples"]
    return found["hours"] + found["hours_generate"] * more / found["rollouts"]


def over_draws(
    scale: PaperScale,
    settings: Settings,
    arms: Iterable[str],
    measured: Measured,
    assumptions: Assumptions,
    draws: int = 5,
) -> pd.DataFrame:
    """arm, and the lowest and highest of each ratio to the baseline over `draws` predictions from other random numbers:
    what comes of drawing a few batches for a whole run; nothing else of the uncertainty is in it."""
    parts: list[Any] = []
    for draw in range(draws):
        other = assumptions.model_copy(update={"seed": assumptions.seed + draw})
        plan = pd.DataFrame([row(scale, settings, arm, measured, other) for arm in arms])
        parts.append(relative(plan, settings.baseline)[["arm", *RATIOS]])
    ends = pd.concat(parts).groupby("arm", sort=False)[list(RATIOS)].agg(["min", "max"])
    ends.columns = [f"{name}_{'low' if end == 'min' else 'high'}" for name, end in ends.columns]
    return ends.reset_index()
