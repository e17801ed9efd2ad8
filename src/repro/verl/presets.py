"""The files of configs/verl/presets: values of verl's, under a name. The papers' are in tables (repro.verl.papers)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from repro.errors import brief
from repro.paths import BUILD, CONFIGS, ROOT
from repro.settings import SettingsError, nearest
from repro.settings.text import read_mapping
from repro.verl.papers import SCALES, PaperScale, values_table

FOLDER = CONFIGS / "verl" / "presets"
# NAME.parquet of each data set that the papers' name, as `python -m repro.data prepare … --out data/verl` writes them
DATA = Path("data/verl")
STUDY = "study"  # the small policy on its own questions, which are the settings', as are its sizes
OWN = "own"  # where a model is named and no preset


@dataclass(frozen=True)
class Preset:
    """`overrides`: {verl's key: value}; `scale`: the paper's table that they are of."""

    name: str
    about: str = ""
    model: str | None = None
    data: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    scale: PaperScale | None = None

    @property
    def runs(self) -> Path:
        """The folder of its runs, unless the command line names one."""
        if self.name == STUDY:
            return BUILD / "verl"
        return ROOT / "runs" / (self.name if self.scale else OWN)


def names() -> list[str]:
    """Every preset, the papers' last."""
    return [*(path.stem for path in sorted(FOLDER.glob("*.yaml"))), *SCALES]


def find(name: str) -> Preset:
    """The preset of that name; SettingsError with the nearest name if there is none, or if its file is none."""
    if scale := SCALES.get(name):
        return Preset(name, scale.title, scale.model.value, None, scale.overrides, scale)
    if name not in names():
        raise SettingsError(f"there is no preset {brief(name)}{nearest(name, names())}")
    path = FOLDER / f"{name}.yaml"
    content = read_mapping(path)
    if not isinstance(content, dict) or not isinstance(content.get("overrides", {}), dict):
        raise SettingsError(f"{path} is no preset: it should be a mapping with model, data and overrides")
    try:
        return Preset(name, **content)
    except TypeError as error:
        raise SettingsError(f"{path} is no preset ({error}): it has about, model, data and overrides") from None


def listed() -> pd.DataFrame:
    """preset, about: a row for each."""
    return pd.DataFrame([{"preset": name, "about": find(name).about} for name in names()])


def described(name: str) -> pd.DataFrame:
    """A row for each value of a preset; of a paper's with its source, and the reason where that is ours."""
    preset = find(name)
    if preset.scale:
        return values_table(preset.scale)
    return pd.DataFrame(list(preset.overrides.items()), columns=["setting", "value"])
