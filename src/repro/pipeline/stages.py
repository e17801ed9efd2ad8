"""The stages of dvc.yaml: each one's notebook, the settings it reads, the data it shows, the report it makes."""

from collections.abc import Callable

from repro.pipeline import before_training, of_training, parity
from repro.pipeline.stage import Stage
from repro.settings import Settings, SettingsError, nearest


def all_stages(settings: Settings) -> list[Stage]:
    """Every stage in the order of the pipeline."""
    theory = [stage("theory", settings, group) for group in type(settings.theory).model_fields]
    arms = [stage(kind, settings, arm) for arm in settings.arms for kind in ("train", "report")]
    mixes = [stage("regime", settings, mix) for mix in settings.regimes.mixes]
    single = {kind: stage(kind, settings) for kind in SINGLE}
    first = [single.pop(kind) for kind in list(single) if hasattr(before_training, kind)]
    return [*theory, *first, *arms, *mixes, *single.values()]


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


SINGLE: dict[str, Callable[[Settings], Stage]] = {
    "policy": before_training.policy,
    "policy_report": before_training.policy_report,
    "profile": before_training.profile,
    "profile_report": before_training.profile_report,
    "profile_language_model": before_training.profile_language_model,
    "language_model_report": before_training.language_model_report,
    "fidelity": of_training.fidelity,
    "drift": of_training.drift,
    "parity_train": parity.parity_train,
    "parity": parity.parity,
    "planner": of_training.planner,
    "dynamics": of_training.dynamics,
    "regimes_report": of_training.regimes_report,
    "results": of_training.results,
}
EACH: dict[str, Callable[[Settings, str], Stage]] = {
    "theory": before_training.theory,
    "train": of_training.train,
    "report": of_training.report,
    "regime": of_training.regime,
}
