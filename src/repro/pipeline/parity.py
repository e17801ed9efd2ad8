"""The stages that hold verl against the embedded engine."""

from typing import Any

from repro import paths
from repro.experiments.parity import ON_VERL
from repro.pipeline.of_training import _training
from repro.pipeline.stage import WORDS, Stage
from repro.settings import Settings

# By Ray, by verl, by the command line that trains.
LOADED_BY_NAME = tuple(f"repro.verl.{name}" for name in ("plugin", "hf_rollout", "text_agent", "reward", "__main__"))


def parity_train(settings: Settings) -> Stage:
    return Stage(
        "parity_train",
        paths.NOTEBOOKS / "jobs/parity_train.ipynb",
        lambda s: {
            "arms": {name: s.arms[name].model_dump(exclude=WORDS) for name in s.parity.arms},
            "seeds": s.parity.seeds,
            "steps": s.parity.steps,
            **_training(s),
        },
        {"scale": settings.scale, "output": str(ON_VERL)},
        modules=_modules(settings, settings.parity.arms),
    )


def parity(settings: Settings) -> Stage:
    return Stage(
        "parity",
        paths.NOTEBOOKS / "studies/parity.ipynb",
        lambda s: {
            "parity": s.parity.model_dump(exclude={"at_once"}),
            "arms": {name: arm.model_dump() for name, arm in s.arms.items()},
            "baseline": s.baseline,
            "seeds": s.seeds,
            **_training(s),
            "statistics": s.statistics.model_dump(),
        },
        {"scale": settings.scale, "output": str(paths.RESULTS / "parity")},
        modules=_modules(settings, settings.arms),
        data=(paths.RESULTS / "parity", ON_VERL, *(paths.train_results(arm) for arm in settings.parity.arms)),
        report=paths.REPORTS / "parity.html",
        title="Does verl do what the embedded engine does?",
    )


def _modules(settings: Settings, arms: Any) -> tuple[str, ...]:
    """What the notebook does not import itself: the arms' functions, and what verl loads by name."""
    calls = [call for arm in arms for call in settings.arms[arm].calls]
    named = (f"repro.methods.{package}.{name}" for package, name, _ in calls)
    return (*LOADED_BY_NAME, *dict.fromkeys(named))
