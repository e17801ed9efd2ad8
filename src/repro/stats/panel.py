"""Which arms the atlas's panel has as params.yaml has them now: a changed arm is not read from runs of the old one."""

import json
from typing import Any

from repro import paths
from repro.settings import SCHEDULING, WORDS, Settings, SettingsError
from repro.stats import atlas
from repro.stored import read_stored

# What a run's numbers depend on, less what they do not.
SECTIONS = {
    "task": {"pretraining_queries"},
    "policy": {"shipped"},
    "engine": SCHEDULING,
    "evaluation": set(),
    "profile": {"temperatures", "temperature_samples"},
}
STORED = {"sections": dict[str, dict], "arms": dict[str, dict]}
CURE = "set atlas_panel to null, and the tables are made of the runs that are trained here"


def made_with(settings: Settings) -> dict[str, Any]:
    """{"sections": {name: values}, "arms": {name: parts}} of settings, as stored beside a panel's runs."""
    sections = {name: getattr(settings, name).model_dump(mode="json", exclude=out) for name, out in SECTIONS.items()}
    arms = {name: arm.model_dump(mode="json", exclude=WORDS) for name, arm in settings.all_arms.items()}
    return json.loads(json.dumps({"sections": sections, "arms": arms}))


def arms_of(settings: Settings) -> list[str]:
    """Of the compared arms those whose runs are the panel's: the others have changed, or are new: they train here."""
    known, now = _stored(settings.atlas_panel)["arms"], made_with(settings)["arms"]
    return [name for name in settings.compared_arms if known.get(name) == now[name]]


def check(settings: Settings) -> None:
    """SettingsError where the tables cannot be made of `settings.atlas_panel`."""
    panel = settings.atlas_panel
    if panel is None:
        return
    stored, now = _stored(panel)["sections"], made_with(settings)["sections"]
    for section, values in now.items():
        for key, value in values.items():
            if stored.get(section, {}).get(key) != value:
                raise SettingsError(
                    f"params.yaml: {section}.{key} is not what the runs of the atlas's panel {panel} were made with: "
                    + CURE
                )
    kept = arms_of(settings)
    for name in settings.atlas_arms:
        if name not in kept:
            raise SettingsError(
                f"params.yaml: atlas_arms.{name} is not the arm that the atlas's panel {panel} has runs of: move it to "
                "arms, to train it here"
            )
    made = atlas.load("runs", panel)
    for seed in settings.seeds:
        if set(kept) - set(made.loc[made["seed"] == seed, "arm"]):
            raise SettingsError(f"params.yaml: seeds: the atlas's panel {panel} lacks runs with seed {seed}: {CURE}")


def _stored(panel: str) -> dict[str, Any]:
    path = paths.ATLAS_DATA / panel / "settings.json"
    if not path.exists():
        raise SettingsError(f"params.yaml: atlas_panel: the atlas has no runs of a panel {panel!r}: {CURE}")
    return read_stored(path, "git checkout it", STORED)
