"""Stages that run verl."""

from typing import Any

from repro import paths
from repro.paper_scale import find
from repro.paper_scale.at_scale import settings_at
from repro.pipeline.stage import WORDS, Stage
from repro.settings import Settings


def train(settings: Settings, arm: str) -> Stage:
    """One arm at the paper scale that `settings.scale` names, in place of the embedded engine's stage of that name."""
    calls = settings.arms[arm].calls

    def relevant(s: Settings) -> dict[str, Any]:
        scale, own = find(s.scale), settings_at(find(s.scale), s)
        return {
            "seeds": s.seeds_of(arm),
            "steps": own.steps_of(arm),
            "scale": {name: entry.value for name, entry in scale.values.items()},
            "evaluation": own.evaluation.model_dump(),
            "arm": own.arm(arm).model_dump(exclude=WORDS),
        }

    return Stage(
        f"train-{arm}",
        paths.NOTEBOOKS / "jobs/train_on_verl.ipynb",
        relevant,
        {"arm": arm, "scale": settings.scale, "output": str(paths.train_results(arm))},
        # the last two: named in configs/verl and in verl's configuration, imported by verl
        modules=(
            *(f"repro.methods.{package}.{name}" for package, name, _ in calls),
            "repro.verl.reward",
            "repro.data.verify",
        ),
        data=(paths.train_results(arm),),
    )
