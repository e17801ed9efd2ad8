"""Stages that train arms, and those that study what was trained."""

from collections.abc import Iterable
from typing import Any

from repro import paths
from repro.paper_scale import SCALES
from repro.pipeline import on_verl
from repro.pipeline.stage import WORDS, Stage
from repro.settings import Settings


def _training(settings: Settings) -> dict[str, Any]:
    """What every training run depends on."""
    return {
        "task": settings.task.model_dump(exclude={"pretraining_queries": True}),
        "engine": settings.engine.model_dump(exclude={"workers", "checkpoint_every"}),
        "evaluation": settings.evaluation.model_dump(),
    }


def train(settings: Settings, arm: str) -> Stage:
    if settings.scale in SCALES:
        return on_verl.train(settings, arm)
    calls = settings.arms[arm].calls
    return Stage(
        f"train-{arm}",
        paths.NOTEBOOKS / "jobs/train.ipynb",
        lambda s: {
            "seeds": s.seeds_of(arm),
            "snapshots": s.snapshots_of(arm),
            **_training(s),
            "arm": s.arms[arm].model_dump(exclude=WORDS),
        },
        {"arm": arm, "scale": settings.scale, "output": str(paths.train_results(arm))},
        modules=tuple(f"repro.methods.{package}.{name}" for package, name, _ in calls),
        data=(paths.train_results(arm),),
    )


def report(settings: Settings, arm: str) -> Stage:
    calls = settings.arms[arm].calls
    return Stage(
        f"report-{arm}",
        paths.NOTEBOOKS / "studies/arm.ipynb",
        lambda s: {
            "arm": s.arms[arm].model_dump(),
            "seeds": s.seeds_of(arm),
            "baseline": s.baseline,
            "baseline_title": s.arms[s.baseline].title,
            "statistics": s.statistics.model_dump(),
        },
        {"arm": arm, "scale": settings.scale},
        modules=tuple(f"repro.methods.{package}.{name}" for package, name, _ in calls),
        data=(paths.train_results(arm), paths.train_results(settings.baseline)),
        report=paths.REPORTS / f"arm-{arm}.html",
        title=f"{settings.arms[arm].title}: what did it train on, and what did that buy?",
        documented=True,
    )


def regime(settings: Settings, mix: str) -> Stage:
    own = settings.with_mix(mix)
    calls = [call for arm in settings.regimes.arms for call in settings.arms[arm].calls]
    return Stage(
        f"regime-{mix}",
        paths.NOTEBOOKS / "jobs/regime.ipynb",
        lambda s: {
            "seeds": own.seeds,
            **_training(own),
            "groups": s.policy.model_dump(include={"describe_groups", "group_size", "seed"}),
            "arms": {arm: s.arms[arm].model_dump(exclude=WORDS) for arm in s.regimes.arms},
        },
        {"regime": mix, "scale": settings.scale, "output": str(paths.regime_results(mix))},
        modules=tuple(f"repro.methods.{package}.{name}" for package, name, _ in calls),
        data=(paths.regime_results(mix),),
    )


def regimes_report(settings: Settings) -> Stage:
    arms = settings.regimes.arms
    return Stage(
        "regimes_report",
        paths.NOTEBOOKS / "studies/regimes.ipynb",
        lambda s: {
            "mixes": {name: mix.model_dump() for name, mix in s.regimes.mixes.items()},
            "families": {name: family.share for name, family in s.task.families.items()},
            "seeds": s.regimes.seeds,
            "arms": _named(s, arms),
            "baseline": s.baseline,
            "statistics": s.statistics.model_dump(),
        },
        {"scale": settings.scale, "output": str(paths.RESULTS / "regimes_summary")},
        data=(
            paths.POLICY,
            *(paths.regime_results(mix) for mix in settings.regimes.mixes),
            *(paths.train_results(arm) for arm in arms),
        ),
        report=paths.REPORTS / "regimes.html",
        title="Does the ranking depend on the queries?",
    )


def fidelity(settings: Settings) -> Stage:
    arms = settings.fidelity.arms
    return Stage(
        "fidelity",
        paths.NOTEBOOKS / "studies/fidelity.ipynb",
        lambda s: {
            "fidelity": s.fidelity.model_dump(),
            "arms": _named(s, arms),
            "seeds": s.seeds,
            "task": s.task.model_dump(exclude={"pretraining_queries": True}),
            "engine": s.engine.model_dump(exclude={"workers", "checkpoint_every"}),
            "statistics": s.statistics.model_dump(),
        },
        {"scale": settings.scale, "output": str(paths.RESULTS / "fidelity")},
        data=(paths.RESULTS / "fidelity",),
        report=paths.REPORTS / "fidelity.html",
        title="Which proxy knows the gradient's norm?",
    )


def drift(settings: Settings) -> Stage:
    arms = [name for name, arm in settings.arms.items() if name in settings.drift.arms or arm.profile]
    return Stage(
        "drift",
        paths.NOTEBOOKS / "studies/drift.ipynb",
        lambda s: {
            "drift": s.drift.model_dump(),
            "arms": {name: s.arms[name].model_dump() for name in arms},
            "baseline": s.baseline,
            "seeds": s.seeds,
            "task": s.task.model_dump(exclude={"pretraining_queries": True}),
            "engine": s.engine.model_dump(exclude={"workers", "checkpoint_every"}),
            "evaluation": s.evaluation.model_dump(),
            "statistics": s.statistics.model_dump(),
        },
        {"scale": settings.scale, "output": str(paths.DRIFT)},
        data=(paths.DRIFT,),
        report=paths.REPORTS / "drift.html",
        title="Does a profile stay true while the policy learns?",
    )


def planner(settings: Settings) -> Stage:
    calls = [call for arm in settings.arms.values() for call in arm.calls]
    return Stage(
        "planner",
        paths.NOTEBOOKS / "studies/planner.ipynb",
        lambda s: {
            "arms": {name: arm.model_dump(exclude={"about"}) for name, arm in s.arms.items()},
            "baseline": s.baseline,
            "seeds": s.seeds,
            "engine": s.engine.model_dump(include={"steps", "refill_rounds"}),
            "statistics": s.statistics.model_dump(),
            "planner": s.planner.model_dump(),
        },
        {"scale": settings.scale, "output": str(paths.RESULTS / "planner")},
        modules=tuple(dict.fromkeys(f"repro.methods.{package}.{name}" for package, name, _ in calls)),
        data=(*(paths.train_results(arm) for arm in settings.arms), paths.RESULTS / "planner"),
        report=paths.REPORTS / "planner.html",
        title="What would each arm cost at the papers' scale?",
    )


def dynamics(settings: Settings) -> Stage:
    return Stage(
        "dynamics",
        paths.NOTEBOOKS / "studies/dynamics.ipynb",
        lambda s: {
            "arms": _named(s, s.arms),
            "baseline": s.baseline,
            "seeds": s.seeds,
            "statistics": s.statistics.model_dump(),
        },
        {"scale": settings.scale},
        data=tuple(paths.train_results(arm) for arm in settings.arms),
        report=paths.REPORTS / "dynamics.html",
        title="What happens on the way?",
    )


def results(settings: Settings) -> Stage:
    return Stage(
        "results",
        paths.NOTEBOOKS / "studies/results.ipynb",
        lambda s: {
            "arms": _named(s, s.arms),
            "regimes": s.regimes.model_dump(),
            "fidelity": s.fidelity.arms,
            "theory": list(type(s.theory).model_fields),
            "baseline": s.baseline,
            "seeds": s.seeds,
            "statistics": s.statistics.model_dump(),
        },
        {"scale": settings.scale, "output": str(paths.RESULTS / "study")},
        data=(
            *(paths.train_results(arm) for arm in settings.arms),
            paths.RESULTS / "fidelity",
            paths.RESULTS / "regimes_summary",
        ),
        report=paths.REPORTS / "results.html",
        title="Which rollouts are worth training on?",
    )


def _named(settings: Settings, arms: Iterable[str]) -> dict[str, Any]:
    """What arms are called and where they stand in tables, in order."""
    return {name: settings.arms[name].model_dump(include={"title", "about", "group", "seeds"}) for name in arms}
