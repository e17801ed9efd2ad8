"""Which runs a stage asks the store for, as hashes: what trains a run is no code of the stage, its key is."""

from collections.abc import Sequence
from pathlib import Path

from repro.pipeline.stage import Stage
from repro.policy.shipped import made_with, policy_for
from repro.runs import golden, resting, store
from repro.runs.key import digest, every_seed
from repro.settings import WORDS, Settings, SettingsError
from repro.training import sample
from repro.verl.papers import EVALUATION, SCALES, arm_at, steps_at


def asked_by(stage: Stage, asks: Sequence[str], settings: Settings) -> dict[str, str]:
    """{arm or panel: hash} of the entries of `runs` in dvc.yaml. The base policy counts by the settings that make it,
    since it may have to be made first; that of `more_arms` by the runs that are there."""
    named = {
        "study": list(settings.all_arms),
        "item": list(dict.fromkeys([settings.baseline, stage.item])),
        "sample": sample(settings),
        "profiled": [name for name, arm in settings.all_arms.items() if arm.profile and arm.profile.again],
    }
    arms = dict.fromkeys(arm for ask in asks for arm in named.get(ask) or _of_section(settings, ask))
    panels = [ask for ask in asks if ask not in named and not _of_section(settings, ask)]
    found = resting.state(panels)
    if settings.scale in SCALES:
        return found | {arm: _at_paper_scale(settings, arm) for arm in arms if arm in settings.arms}
    made = digest(made_with(settings))
    present = _present(settings, [arm for arm in arms if arm in settings.more_arms])
    wanted = {arm: every_seed(settings, [arm], Path()) for arm in arms if arm in settings.arms or arm in present}
    names = golden.computes([runs[0] for runs in wanted.values()])
    for (arm, runs), computes in zip(wanted.items(), names, strict=True):
        found[arm] = digest([run.depends_on for run in runs], [computes], made, settings.snapshots_of(arm))
    return found


def _of_section(settings: Settings, name: str) -> list[str]:
    return list(getattr(getattr(settings, name, None), "arms", ()))


def _present(settings: Settings, names: Sequence[str]) -> set[str]:
    """The arms of which every run is there."""
    try:
        policy = policy_for(settings)
    except (SettingsError, OSError):  # it is to be made first
        return set()
    return set(names) - {run.arm for run in store.find(every_seed(settings, names, policy)).absent}


def _at_paper_scale(settings: Settings, arm: str) -> str:
    scale = SCALES[settings.scale]
    values = {name: str(entry.value) for name, entry in scale.values.items()}
    parts = arm_at(scale, settings.arm(arm)).model_dump(mode="json", exclude=set(WORDS))
    return digest(values, steps_at(scale, settings, arm), EVALUATION, parts, settings.seeds_of(arm))
