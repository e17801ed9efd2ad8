"""The stages of dvc.yaml: each one's notebook, the settings it reads, the data it shows, the report it makes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro import paths
from repro.pipeline.closure import heading
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

    @property
    def group(self) -> str:
        """Under which heading the index lists its report."""
        kind = self.name.split("-")[0]
        return {"report": "arms", "policy_report": "policy", "fidelity": "results", "regimes_report": "results"}.get(
            kind, kind
        )


def all_stages(settings: Settings) -> list[Stage]:
    """Every stage in the order of the pipeline."""
    theory = [stage("theory", settings, group) for group in type(settings.theory).model_fields]
    arms = [stage(kind, settings, arm) for arm in settings.arms for kind in ("train", "report")]
    mixes = [stage("regime", settings, mix) for mix in settings.regimes.mixes]
    single = {kind: stage(kind, settings) for kind in SINGLE}
    return [*theory, single.pop("policy"), single.pop("policy_report"), *arms, *mixes, *single.values()]


def stage(kind: str, settings: Settings, item: str | None = None) -> Stage:
    """One stage by its name in dvc.yaml, `item` being what stands behind the @."""
    if kind not in SINGLE | EACH:
        raise SettingsError(f"there is no stage {kind!r}{nearest(kind, SINGLE | EACH)}")
    if (item is not None) != (kind in EACH):
        raise SettingsError(
            f"stage {kind} {'takes no item' if item is not None else 'needs an item, as in train@grpo'}"
        )
    if kind in ("train", "report"):
        settings.arm(item)
    return EACH[kind](settings, item) if item is not None else SINGLE[kind](settings)


def _theory(settings: Settings, group: str) -> Stage:
    groups = type(settings.theory).model_fields
    if group not in groups:
        raise SettingsError(f"there is no theory group {group!r}{nearest(group, groups)}")
    folder, notebook = paths.RESULTS / "theory" / group, paths.NOTEBOOKS / f"theory_{group}.ipynb"
    return Stage(
        f"theory-{group}",
        notebook,
        lambda s: getattr(s.theory, group).model_dump(),
        getattr(settings.theory, group).model_dump() | {"output": str(folder)},
        data=(folder,),
        report=paths.REPORTS / f"theory-{group}.html",
        title=heading(notebook),
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


def _training(settings: Settings) -> dict[str, Any]:
    """What every training run depends on."""
    return {
        "task": settings.task.model_dump(exclude={"pretraining_queries": True}),
        "engine": settings.engine.model_dump(exclude={"workers", "checkpoint_every"}),
        "evaluation": settings.evaluation.model_dump(),
    }


def _train(settings: Settings, arm: str) -> Stage:
    calls = settings.arms[arm].calls
    return Stage(
        f"train-{arm}",
        paths.NOTEBOOKS / "train.ipynb",
        lambda s: {
            "seeds": s.seeds_of(arm),
            "snapshots": s.snapshots_of(arm),
            **_training(s),
            "arm": s.arms[arm].model_dump(exclude=WORDS),
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
            "seeds": s.seeds_of(arm),
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


def _regime(settings: Settings, mix: str) -> Stage:
    own = settings.with_mix(mix)
    calls = [call for arm in settings.regimes.arms for call in settings.arms[arm].calls]
    return Stage(
        f"regime-{mix}",
        paths.NOTEBOOKS / "regime.ipynb",
        lambda s: {
            "seeds": own.seeds,
            **_training(own),
            "groups": s.policy.model_dump(include={"describe_groups", "group_size", "seed"}),
            "arms": {arm: s.arms[arm].model_dump(exclude=WORDS) for arm in s.regimes.arms},
        },
        {"regime": mix, "scale": settings.scale, "output": str(paths.regime_results(mix))},
        modules=tuple(f"repro.{package}.{name}" for package, name, _ in calls),
        data=(paths.regime_results(mix),),
    )


def _regimes_report(settings: Settings) -> Stage:
    arms = settings.regimes.arms
    return Stage(
        "regimes_report",
        paths.NOTEBOOKS / "report_regimes.ipynb",
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


def _fidelity(settings: Settings) -> Stage:
    arms = settings.fidelity.arms
    return Stage(
        "fidelity",
        paths.NOTEBOOKS / "fidelity.ipynb",
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


def _results(settings: Settings) -> Stage:
    return Stage(
        "results",
        paths.NOTEBOOKS / "results.ipynb",
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


WORDS = {"title", "about", "group"}  # of an arm; no number depends on them
SINGLE: dict[str, Callable[[Settings], Stage]] = {
    "policy": _policy,
    "policy_report": _policy_report,
    "fidelity": _fidelity,
    "regimes_report": _regimes_report,
    "results": _results,
}
EACH: dict[str, Callable[[Settings, str], Stage]] = {
    "theory": _theory,
    "train": _train,
    "report": _report,
    "regime": _regime,
}
