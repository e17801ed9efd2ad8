"""The predictions, one row for each arm at each paper's scale, and how they compare with reported durations."""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from repro.arms import build
from repro.experiments.planner.drawn import Drawn, draw
from repro.experiments.planner.hours import seconds
from repro.experiments.planner.measured import Measured
from repro.experiments.planner.memory import memory
from repro.experiments.planner.models import ARCHITECTURES
from repro.settings import Settings
from repro.settings.planner import Assumptions
from repro.verl.papers import SCALES, PaperScale, Value

TOKENS = ("prompt_tokens", "generated_tokens", "scored_tokens", "trained_tokens", "paper_tokens", "profile_tokens")
FLOPS = ("flops_generate", "flops_score", "flops_train", "flops_profile")


def predict(
    settings: Settings,
    measured: Measured,
    assumptions: Assumptions,
    arms: Iterable[str] | None = None,
    scales: Mapping[str, PaperScale] = SCALES,
) -> pd.DataFrame:
    """One row per scale and arm (default: the compared arms but those that depend on what rollouts earned).
    Columns, of a whole run unless said otherwise:

    scale, arm, steps, queries, rollouts        all that are generated, those filtered out and profiled included
    prompt_tokens … profile_tokens, flops_*, flops     as the ledger names them
    hours_generate, _score, _train, _other, hours      wall-clock; profiling is in hours_generate
    gpus, gpu_hours
    memory_train, memory_rollout                peak GB on one GPU
    cache_contexts                              contexts of mean length that fit in the cache of one replica
    response_tokens                             mean length of all responses generated
    """
    beforehand = [arm for arm in settings.compared_arms if not build(arm, settings.arm(arm)).adapts]
    names = list(beforehand if arms is None else arms)
    return pd.DataFrame(
        [row(scale, settings, arm, measured, assumptions) for scale in scales.values() for arm in names]
    )


def row(
    scale: PaperScale, settings: Settings, arm: str, measured: Measured, assumptions: Assumptions
) -> dict[str, float | str]:
    """`predict`'s row of one arm at one scale."""
    drawn = draw(scale, settings, arm, measured, assumptions)
    share = settings.steps_of(arm) / settings.engine.steps  # an arm with steps of its own keeps its share of the run
    steps = round(share * scale.steps)
    batch = per_batch(drawn, scale, assumptions)
    model = ARCHITECTURES[scale.model.value]
    responses_N = np.concatenate(drawn.generated)
    needs = memory(scale, model, scale.gpus, assumptions.prompt_tokens + responses_N.mean(), assumptions)
    phases = seconds(drawn.generated, batch, scale, assumptions)
    hours = {f"hours_{phase}": value * steps / 3600 for phase, value in phases.items()}
    total = sum(hours.values())
    return {
        "scale": scale.name,
        "arm": arm,
        "steps": steps,
        **{name: steps * batch[name] for name in ("queries", "rollouts", *TOKENS, *FLOPS, "flops")},
        **hours,
        "hours": total,
        "gpus": scale.gpus,
        "gpu_hours": scale.gpus * total,
        "memory_train": needs.train,
        "memory_rollout": needs.rollout,
        "cache_contexts": needs.sequences,
        "response_tokens": float(responses_N.mean()),
    }


def per_batch(drawn: Drawn, scale: PaperScale, assumptions: Assumptions) -> dict[str, float]:
    """The ledger of one real batch: the mean of the simulated batches, scaled up to its number of groups."""
    drawn_groups = min(assumptions.groups, scale.train_batch.value)
    factor = scale.train_batch.value / drawn_groups / drawn.batches
    return {name: factor * value for name, value in drawn.ledger.row().items()}


def relative(plan: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """`plan` with trained_ratio, flops_ratio and hours_ratio, each relative to the baseline at the same scale."""
    base = plan[plan["arm"] == baseline].set_index("scale")
    ratios = {
        f"{name}_ratio": plan[column] / plan["scale"].map(base[column])
        for name, column in {"trained": "trained_tokens", "flops": "flops", "hours": "hours"}.items()
    }
    return plan.assign(**ratios)


def checks(plan: pd.DataFrame, scales: Mapping[str, PaperScale] = SCALES) -> pd.DataFrame:
    """scale, arm, paper_hours, hours, where, share: hours as a paper reports them, as predicted, where in the paper,
    and the predicted as a share of the reported."""
    hours = plan.set_index(["scale", "arm"])["hours"]
    rows = [
        {"scale": name, "arm": arm, "paper_hours": stated.value, "hours": hours[name, arm], "where": stated.why}
        for name, scale in scales.items()
        for arm, stated in scale.hours.items()
        if (name, arm) in hours.index
    ]
    columns = ["scale", "arm", "paper_hours", "hours", "where"]
    return pd.DataFrame(rows, columns=columns).assign(share=lambda table: table["hours"] / table["paper_hours"])


def reported(scale: PaperScale, settings: Settings) -> dict[str, Value]:
    """The arms of params.yaml of whose runs at this scale the paper gives the hours."""
    return {arm: hours for arm, hours in scale.hours.items() if arm in settings.all_arms}


def by_length(
    settings: Settings,
    measured: Measured,
    assumptions: Assumptions,
    shares: Iterable[float],
    scales: Mapping[str, PaperScale] = SCALES,
) -> pd.DataFrame:
    """scale, arm, response_tokens, hours, mean_response_share: predictions for the runs whose duration a paper reports,
    at several mean response lengths, which the papers do not give and which matter most."""
    rows = []
    for share in shares:
        assumed = assumptions.model_copy(update={"mean_response_share": share})
        for scale in scales.values():
            for arm in reported(scale, settings):
                predicted = row(scale, settings, arm, measured, assumed)
                kept = {key: predicted[key] for key in ("scale", "arm", "response_tokens", "hours")}
                rows.append({**kept, "mean_response_share": share})
    return pd.DataFrame(rows)


def length_of_paper(lengths: pd.DataFrame, scales: Mapping[str, PaperScale] = SCALES) -> pd.DataFrame:
    """scale, arm, agree_at: the mean response length, in tokens, at which the prediction equals the paper's duration,
    interpolated linearly between the lengths of `by_length`; NaN outside them."""
    rows = []
    for (name, arm), part in lengths.groupby(["scale", "arm"], sort=False):
        ordered, stated = part.sort_values("hours"), scales[name].hours[arm].value
        tokens = np.interp(stated, ordered["hours"], ordered["response_tokens"], left=np.nan, right=np.nan)
        rows.append({"scale": name, "arm": arm, "agree_at": float(tokens)})
    return pd.DataFrame(rows)
