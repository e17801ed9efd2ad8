"""Every seed of an arm at a paper's scale: trained, each in a process of its own, and their tables in one."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from repro import paths
from repro.arms import build
from repro.files import read_parquet
from repro.settings import Settings
from repro.verl import ready
from repro.verl.layers import Asked, arm_of, of_arm
from repro.verl.papers import steps_at
from repro.verl.prepare import settings_of
from repro.verl.presets import DATA, find
from repro.verl.run import begun_alike, finished
from repro.verl.version import UnsupportedVerl


def train_arm(arm: str, settings: Settings, runs: Path | None = None) -> dict[str, pd.DataFrame]:
    """The tables of every seed of `arm` at the paper scale that `settings.scale` names. Runs that are missing in `runs`
    (default: that of the scale) are trained, one after the other; the same call resumes one that was cut off. Where all
    are there, by configs/launch/ for instance, this needs no GPU."""
    preset, data = find(settings.scale), paths.ROOT / DATA
    runs, steps = runs or preset.runs, steps_at(preset.scale, settings, arm)
    folders = {seed: runs / arm / f"seed-{seed}" for seed in settings.seeds_of(arm)}
    missing = [seed for seed, folder in folders.items() if not finished(folder, steps)]
    if missing:
        _can_train(arm, preset.scale.data_sets, missing, runs, data)
    at_scale = settings_at(settings, arm)
    for folder in folders.values():
        begun_alike(at_scale, arm, folder)
    for seed in missing:
        command = [sys.executable, "-m", "repro.verl", "--arm", arm, "--preset", preset.name, "--seed", str(seed)]
        command += ["--data", str(data), "--output", str(runs)]
        done = subprocess.run(command, cwd=paths.ROOT, env={**os.environ, "REPRO_ROOT": str(paths.ROOT)})
        if done.returncode:
            raise ready.NotReady(
                f"{arm}, seed {seed}, ended with status {done.returncode}, see above; `python -m repro.runs train "
                f"{arm}` resumes from its last checkpoint"
            )
    return tables_in(list(folders.values()))


def settings_at(settings: Settings, arm: str) -> Settings:
    """The settings of an arm's runs at the paper scale that `settings.scale` names; verl need not be installed."""
    preset = find(settings.scale)
    asked = Asked(arm, preset, preset.model, Path())
    entry = arm_of(asked, settings)
    said = {**preset.overrides, **of_arm(asked, settings, entry, build(arm, entry))}
    return settings_of(asked, settings, entry, said)


def _can_train(arm: str, sets: Sequence[str], seeds: Sequence[int], runs: Path, data: Path) -> None:
    """NotReady names the unfinished runs: this may be a machine that should only collect them."""
    try:
        ready.require_machine(runs.name, arm)
        ready.require_data(sets, data)
    except (ready.NotReady, UnsupportedVerl) as error:
        which = f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))} of {arm}"
        verb = "is" if len(seeds) == 1 else "are"
        raise ready.NotReady(
            f"{which} {verb} not finished in {runs / arm} (copy what another machine trained there to collect it), and "
            f"{error}"
        ) from error


def tables_in(folders: Sequence[Path]) -> dict[str, pd.DataFrame]:
    """{name: table} of an arm's runs, all seeds in one."""
    names = dict.fromkeys(path.stem for folder in folders for path in sorted((folder / "tables").glob("*.parquet")))
    return {
        name: pd.concat(
            [read_parquet(folder / "tables" / f"{name}.parquet", "configs/launch/run.sh") for folder in folders],
            ignore_index=True,
        )
        for name in names
    }
