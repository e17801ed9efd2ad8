"""The stages of dvc.yaml: each one's notebook, the settings it reads, the data it shows, the report it makes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro import paths
from repro.settings import Settings, SettingsError, nearest


@dataclass(frozen=True)
class Stage:
    """One stage. `settings(s)` is the part of the settings that its results depend on, no more; `modules` are what an
    arm adds to the notebook's imports; `data` is what its report shows; `report` is None where a stage only makes data.
    `documented`: its report quotes docstrings, so they count as code.
    """

    name: str
    notebook: Path
    settings: Callable[[Settings], dict[str, Any]]
    parameters: dict[str, Any]
    modules: tuple[str, ...] = ()
    data: tuple[Path, ...] = ()
    report: Path | None = None
    title: str = ""
    documented: bool = False


def all_stages(settings: Settings) -> list[Stage]:
    """Every stage in the order of the pipeline."""
    theory = [stage("theory", settings, group) for group in type(settings.theory).model_fields]
    arms = [stage(kind, settings, arm) for arm in settings.arms for kind in ("train", "report")]
    return [*theory, stage("policy", settings), stage("policy_report", settings), *arms, stage("results", settings)]


def stage(kind: str, settings: Settings, item: str | None = None) -> Stage:
    """One stage by its name in dvc.yaml, `item` being what stands behind the @."""
    makers = {
        "theory": _theory,
        "policy": _policy,
        "policy_report": _policy_report,
        "train": _train,
        "report": _report,
        "results": _results,
    }
    if kind not in makers:
        raise SettingsError(f"there is no stage {kind!r}{nearest(kind, makers)}")
    if (item is not None) != (kind in ("theory", "train", "report")):
        raise SettingsError(
            f"stage {kind} {'takes no item' if item is not None else 'needs an item, as in train@grpo'}"
        )
    if kind in ("train", "report"):
        settings.arm(item)
    return makers[kind](settings, item) if item is not None else makers[kind](settings)


def _theory(settings: Settings, group: str) -> Stage:
    groups = type(settings.theory).model_fields
    if group not in groups:
        raise SettingsError(f"there is no theory group {group!r}{nearest(group, groups)}")
    folder = paths.RESULTS / "theory" / group
    titles = {"sgd": "Cost-Aware SGD: is it worth sampling cheap components?"}
    return Stage(
        f"theory-{group}",
        paths.NOTEBOOKS / f"theory_{group}.ipynb",
        lambda s: getattr(s.theory, group).model_dump(),
        getattr(settings.theory, group).model_dump() | {"output": str(folder)},
        data=(folder,),
        report=paths.REPORTS / f"theory-{group}.html",
        title=titles.get(group, f"Theory: {group}"),
    )


def _policy(settings: Settings) -> Stage:
    return Stage(
        "policy",
        paths.NOTEBOOKS / "policy.ipynb",
        lambda s: {
            "task": s.task.model_dump(),
            "policy": s.policy.model_dump(),
            "max_new_tokens": s.engine.max_new_tokens,
            "temperature": s.engine.temperature,
        },
        {"scale": settings.scale, "output": str(paths.POLICY)},
        data=(paths.POLICY,),
    )


def _policy_report(settings: Settings) -> Stage:
    return Stage(
        "policy_report",
        paths.NOTEBOOKS / "report_policy.ipynb",
        lambda s: {"task": s.task.model_dump(), "demonstrations": s.policy.demonstrations.model_dump()},
        {"scale": settings.scale},
        data=(paths.POLICY,),
        report=paths.REPORTS / "policy.html",
        title="The base policy and its queries: is this the papers' regime?",
    )


def _train(settings: Settings, arm: str) -> Stage:
    calls = settings.arms[arm].calls
    return Stage(
        f"train-{arm}",
        paths.NOTEBOOKS / "train.ipynb",
        lambda s: {
            "seeds": s.seeds,
            "task": s.task.model_dump(exclude={"pretraining_queries": True}),
            "engine": s.engine.model_dump(exclude={"workers", "checkpoint_every"}),
            "evaluation": s.evaluation.model_dump(),
            "arm": s.arms[arm].model_dump(exclude={"title", "about"}),
        },
        {"arm": arm, "scale": settings.scale, "output": str(paths.train_results(arm))},
        modules=tuple(f"repro.{package}.{name}" for package, name, _ in calls),
        data=(paths.train_results(arm),),
    )


def _report(settings: Settings, arm: str) -> Stage:
    calls = settings.arms[arm].calls
    return Stage(
        f"report-{arm}",
        paths.NOTEBOOKS / "report_arm.ipynb",
        lambda s: {
            "arm": s.arms[arm].model_dump(),
            "baseline": s.baseline,
            "baseline_title": s.arms[s.baseline].title,
            "statistics": s.statistics.model_dump(),
        },
        {"arm": arm, "scale": settings.scale},
        modules=tuple(f"repro.{package}.{name}" for package, name, _ in calls),
        data=(paths.train_results(arm), paths.train_results(settings.baseline)),
        report=paths.REPORTS / f"arm-{arm}.html",
        title=f"{settings.arms[arm].title}: what did it train on, and what did that buy?",
        documented=True,
    )


def _results(settings: Settings) -> Stage:
    return Stage(
        "results",
        paths.NOTEBOOKS / "results.ipynb",
        lambda s: {
            "arms": {name: arm.model_dump(include={"title", "about"}) for name, arm in s.arms.items()},
            "baseline": s.baseline,
            "seeds": s.seeds,
            "statistics": s.statistics.model_dump(),
        },
        {"scale": settings.scale, "output": str(paths.RESULTS / "study")},
        data=tuple(paths.train_results(arm) for arm in settings.arms),
        report=paths.REPORTS / "results.html",
        title="Which rollouts are worth training on?",
    )
