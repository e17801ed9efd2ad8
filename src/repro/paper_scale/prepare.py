"""The files that a run at a paper scale reads: the arm's plan as verl's training data, its settings, its profile."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from repro.arms import build
from repro.engine.embedded.train import stream_seed
from repro.files import read_parquet, write_parquet, write_text
from repro.paper_scale.at_scale import settings_at
from repro.paper_scale.values import PaperScale
from repro.plans import Queries
from repro.profiling.profile import Profile
from repro.settings import Settings, SettingsError
from repro.verl.data import plan_table, planned_groups
from repro.verl.run import PROFILE, check_arm

# As many groups as the run needs twice over, where a filter throws some away; verl starts over where that is too few.
ROUNDS = 2


def prepare(
    scale: PaperScale,
    settings: Settings,
    arm: str,
    folder: Path,
    data: Path,
    *,
    seed: int = 0,
    profile: Path | None = None,
) -> int:
    """Write plan.parquet and settings.json (and the profile's copy) to `folder`; returns how many groups were planned.

    Writing them again writes the same. `data`: the folder with the prepared training set; `profile`: for an arm with
    one, a folder with the base model's `profile.parquet` and `profile.json`, as `repro.profiling.Profile.save` writes
    them, over the same prompts in the same order. SettingsError where one of them is missing or does not fit.
    """
    own = settings_at(scale, settings)
    method = build(arm, own.arm(arm))
    check_arm(arm, method)
    name = scale.train_data.value
    rows = read_parquet(data / f"{name}.parquet", f"python -m repro.data prepare {name} --out {data}").to_dict(
        "records"
    )
    known = _known(own, arm, rows, folder, profile)
    rng = np.random.default_rng(stream_seed(seed, 0, "plan"))
    plan = method.plan(known, own.engine.rollouts_per_step, rng)
    rounds = ROUNDS if method.filter is not None else 1
    groups = planned_groups(plan, own.steps_of(arm), own.engine.rollouts_per_step, rounds)
    write_parquet(plan_table(rows, groups), folder / "plan.parquet")
    write_text(own.model_dump_json(indent=2) + "\n", folder / "settings.json")
    return len(groups)


def _known(own: Settings, arm: str, rows: list[dict[str, Any]], folder: Path, profile: Path | None) -> Queries:
    """What the plan may know of the prompts; their lengths, which no plan here reads, are not counted."""
    use = own.arm(arm).profile
    if use is None:
        return Queries(np.ones(len(rows), int))
    if profile is None:
        raise SettingsError(
            f"arms.{arm} plans from a profile of the base model, which is not made here: give the folder of one with "
            "--profile (profile.parquet and profile.json, as repro.profiling.Profile.save writes them)"
        )
    known = Profile.load(profile, PROFILE).first(use.samples).known()
    if len(known) != len(rows):
        raise SettingsError(f"{profile}: a profile of {len(known)} prompts, but {len(rows)} are trained on")
    if profile.resolve() != (folder / "profile").resolve():
        shutil.copytree(profile, folder / "profile", dirs_exist_ok=True)
    return known
