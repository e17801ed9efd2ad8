"""How much the predictions depend on each assumption and on the random draws."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from repro.data.sources import SOURCES
from repro.experiments.planner.measured import Measured
from repro.experiments.planner.plan import relative, reported
from repro.experiments.planner.plan import row as predict_row
from repro.settings import Settings
from repro.settings.planner import Assumptions
from repro.verl.papers import EVALUATE_EVERY, EVALUATION, SCALES, PaperScale, Value

RATIOS = ("hours_ratio", "trained_ratio")


@dataclass(frozen=True)
class Change:
    """One change of the assumptions, described by `words`. `factors` multiply assumptions; `gpus`: total number;
    `evaluations`: whether every evaluation, not only the last, draws the full number of samples per question, as for
    the papers' curves."""

    words: str
    factors: Mapping[str, float] = field(default_factory=dict)
    gpus: int | None = None
    evaluations: bool = False


SLOWER = {"train_utilisation": 0.5, "score_utilisation": 0.5}
DECODING = {"decode_utilisation": 0.5, "bandwidth_utilisation": 0.5, "decode_overhead_ms": 2.0}
LONGER = {"mean_response_share": 2.0}
EVALUATED = f"{EVALUATION['final_samples']} samples of each question every {EVALUATE_EVERY} steps"
CHANGES = {
    "as-assumed": Change("as assumed"),
    "slower-compute": Change("half the FLOP/s in training and scoring", SLOWER),
    "slower-decoding": Change("half the tokens per second in generation", DECODING),
    "longer-responses": Change("responses twice as long", LONGER),
    "full-evaluations": Change(EVALUATED, evaluations=True),
    "all-of-these": Change("all of these", SLOWER | DECODING | LONGER, evaluations=True),
    "4-gpus": Change("4 GPUs, all else as assumed", gpus=4),
    "2-gpus": Change("2 GPUs, all else as assumed", gpus=2),
}


def sensitivity(
    settings: Settings,
    measured: Measured,
    assumptions: Assumptions,
    changes: Mapping[str, Change] = CHANGES,
    scales: Mapping[str, PaperScale] = SCALES,
) -> pd.DataFrame:
    """scale, arm, change, hours, paper_hours: each run whose duration a paper reports, under each change."""
    rows = []
    for key, change in changes.items():
        for name, scale in scales.items():
            for arm, stated in reported(scale, settings).items():
                hours = _hours(change, scale, settings, arm, measured, assumptions)
                row = {"scale": name, "arm": arm, "change": key, "hours": hours, "paper_hours": stated.value}
                rows.append(row)
    return pd.DataFrame(rows)


def _hours(
    change: Change, scale: PaperScale, settings: Settings, arm: str, measured: Measured, assumptions: Assumptions
) -> float:
    changed = {key: factor * getattr(assumptions, key) for key, factor in change.factors.items()}
    if change.gpus:
        gpus = {"nodes": 1, "gpus_per_node": change.gpus}
        scale = scale.model_copy(update={key: Value(value=n, ours=change.words) for key, n in gpus.items()})
    run = predict_row(scale, settings, arm, measured, assumptions.model_copy(update=changed))
    if not change.evaluations:
        return run["hours"]
    questions = sum(SOURCES[name].rows for name in scale.validation_data.value)
    more = run["steps"] // EVALUATE_EVERY * questions * EVALUATION["final_samples"]
    return run["hours"] + run["hours_generate"] * more / run["rollouts"]


def over_draws(
    plan: pd.DataFrame,
    scale: PaperScale,
    settings: Settings,
    measured: Measured,
    assumptions: Assumptions,
    draws: int = 5,
) -> pd.DataFrame:
    """arm, and the lowest and highest value of each ratio to the baseline over `draws` predictions with different
    random numbers: the error of simulating a few batches for a whole run, and no other part of the uncertainty. `plan`:
    the first of them, `relative`'s rows of this scale."""
    parts = [plan[["arm", *RATIOS]]]
    for draw in range(1, draws):
        other = assumptions.model_copy(update={"seed": assumptions.seed + draw})
        again = pd.DataFrame([predict_row(scale, settings, arm, measured, other) for arm in plan["arm"]])
        parts.append(relative(again, settings.baseline)[["arm", *RATIOS]])
    ends = pd.concat(parts).groupby("arm", sort=False)[list(RATIOS)].agg(["min", "max"])
    ends.columns = [f"{name}_{'low' if end == 'min' else 'high'}" for name, end in ends.columns]
    return ends.reset_index()


def assumptions_table(assumptions: Assumptions) -> pd.DataFrame:
    """assumption, value, meaning (from the docstring of `Assumptions`)."""
    meanings = {}
    for line in (type(assumptions).__doc__ or "").splitlines():
        name, _, meaning = line.strip().partition(" ")
        if name in type(assumptions).model_fields:
            meanings[name] = meaning.strip()
    table = pd.DataFrame(assumptions.model_dump().items(), columns=["assumption", "value"])
    return table.assign(meaning=table["assumption"].map(meanings).fillna(""))
