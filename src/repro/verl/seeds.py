"""Every seed of an arm at a paper's scale: the runs that verl has finished, and their tables in one."""

from pathlib import Path

import pandas as pd

from repro.arms import build
from repro.files import read_parquet
from repro.settings import Settings
from repro.verl.layers import Asked, arm_of, of_arm
from repro.verl.papers import steps_at
from repro.verl.prepare import settings_of
from repro.verl.presets import find
from repro.verl.ready import NotReady
from repro.verl.run import begun_alike, finished


def finished_tables(arm: str, settings: Settings, runs: Path | None = None) -> dict[str, pd.DataFrame]:
    """{name: table} of `arm` at the paper scale that `settings.scale` names, all seeds in one; this needs no GPU.
    NotReady names the seeds that are not finished in `runs` (default: the folder of that scale's runs)."""
    preset, command = find(settings.scale), "configs/launch/run.sh"
    runs, steps = runs or preset.runs, steps_at(preset.scale, settings, arm)
    folders = {seed: runs / arm / f"seed-{seed}" for seed in settings.seeds_of(arm)}
    if missing := [seed for seed, folder in folders.items() if not finished(folder, steps)]:
        raise NotReady(
            f"seeds {', '.join(map(str, missing))} of {arm} are not finished in {runs / arm}: copy what another "
            f"machine trained there, or train with `{command} --arm {arm} --preset {preset.name} --seed {missing[0]}`"
        )
    at_scale = settings_at(settings, arm)
    for folder in folders.values():
        begun_alike(at_scale, arm, folder)
    names = dict.fromkeys(path.stem for folder in folders.values() for path in sorted(folder.glob("tables/*.parquet")))
    return {
        name: pd.concat(
            [read_parquet(folder / "tables" / f"{name}.parquet", command) for folder in folders.values()],
            ignore_index=True,
        )
        for name in names
    }


def settings_at(settings: Settings, arm: str) -> Settings:
    """The settings of an arm's runs at the paper scale that `settings.scale` names; verl need not be installed."""
    preset = find(settings.scale)
    asked = Asked(arm, preset, preset.model, Path())
    entry = arm_of(asked, settings)
    said = {**preset.overrides, **of_arm(asked, settings, entry, build(arm, entry))}
    return settings_of(asked, settings, entry, said)
