"""The files that a run at a paper scale reads: the arm's plan as verl's training data, its settings, its profile."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from repro.arms import build
from repro.engine.profile import Profile
from repro.engine.train import stream_seed
from repro.files import read_parquet, write_parquet, write_text
from repro.methods.plans import Queries
from repro.paper_scale.at_scale import settings_at
from repro.paper_scale.schema import PaperScale
from repro.settings import Settings, SettingsError
from repro.verl.data import plan_table, planned_groups
from repro.verl.questions import short_enough
from repro.verl.run import PROFILE, SETTINGS, begun_alike, check_arm

# Where a filter drops groups, plan four times as many as the run needs: verl asks for twice as many as were dropped,
# and restarts the plan where it runs out.
ROUNDS = 4


def training_rows(
    scale: PaperScale, data: Path, tokenizer: Any = None, template: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The prepared training set in the folder `data`, a row for each prompt, in verl's format.

    With a `tokenizer`, without those that are longer than the scale allows, which verl would cut on the left;
    `template`: options of its chat template, verl's `data.apply_chat_template_kwargs`.
    FileNotFoundError with the command that prepares the set.
    """
    rows = rows_of(scale.train_data.value, data)
    if tokenizer is None:
        return rows
    return short_enough(rows, tokenizer, scale.max_prompt_tokens.value, template or {})


def rows_of(name: str, data: Path) -> list[dict[str, Any]]:
    """All rows of a prepared data set in the folder `data`."""
    made_by = f"python -m repro.data prepare {name} --out {data}"
    return read_parquet(data / f"{name}.parquet", made_by).to_dict("records")


def tell_difference(scale: PaperScale, count: int) -> None:
    """Print a line where the training set has another number of questions than the scale's steps are counted from."""
    told = scale.train_queries.value
    if count != told:
        print(
            f"{scale.train_data.value}: {count} questions are prepared, and the {scale.steps} steps of {scale.name} "
            f"count {told}; `repro.data prepare --keep-evaluated` keeps those of the evaluation sets, as in the papers"
        )


def prepare(
    scale: PaperScale,
    settings: Settings,
    arm: str,
    folder: Path,
    rows: Sequence[dict[str, Any]],
    *,
    seed: int = 0,
    profile: Path | None = None,
    at_scale: Settings | None = None,
) -> int:
    """Write plan.parquet and settings.json (and the profile's copy) to `folder`; returns how many groups were planned.

    Writing them again writes the same. `rows`: `training_rows`; `profile`: for an arm with one, a folder with the base
    model's profile as `Profile.save` writes it, over the same prompts in the same order; `at_scale`: the settings of a
    run with overrides, else the scale's. SettingsError where the profile is missing or does not fit, or where the
    folder holds a run that was begun with other settings.
    """
    at_scale = at_scale or settings_at(scale, settings)
    method = build(arm, at_scale.arm(arm))
    check_arm(arm, method)
    begun_alike(at_scale, arm, folder)
    known = _known(at_scale, arm, len(rows), folder, profile)
    rng = np.random.default_rng(stream_seed(seed, 0, "plan"))
    plan = method.made_plan(0, known, at_scale.engine.rollouts_per_step, rng)
    rounds = ROUNDS if method.filter is not None else 1
    groups = planned_groups(plan, at_scale.steps_of(arm), at_scale.engine.rollouts_per_step, rounds)
    write_parquet(plan_table(rows, groups), folder / "plan.parquet")
    if method.profile_again:
        write_parquet(pd.DataFrame(rows), folder / "queries.parquet")
    write_text(at_scale.model_dump_json(indent=2) + "\n", folder / SETTINGS)
    return len(groups)


def _known(at_scale: Settings, arm: str, n_rows: int, folder: Path, profile: Path | None) -> Queries:
    """What the plan may know of the prompts; their lengths, which no plan here reads, are not counted."""
    use = at_scale.arm(arm).profile
    if use is None:
        return Queries(np.ones(n_rows, int))
    if profile is None:
        raise SettingsError(f"arms.{arm} plans from a profile of the base model: give the folder of one")
    measured = Profile.load(profile, PROFILE)
    if len(measured.prompt_tokens_Q) != n_rows:
        n_measured = len(measured.prompt_tokens_Q)
        raise SettingsError(f"{profile}: a profile of {n_measured} prompts, but {n_rows} are trained on")
    measured.save(folder / "profile", PROFILE)
    return measured.first(use.samples).known()
