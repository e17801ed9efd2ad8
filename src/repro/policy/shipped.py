"""The base policies that come with the project: so that training starts from the same weights on every machine. One is
that of the study, one that of scale `smoke`, with which the tests run.

Pre-training gives other bits on another kind of CPU. Where `policy.shipped` is true and the settings are those that
shipped weights were made with, stage `policy` takes them; otherwise it pre-trains. After a change of these settings,

    dvc repro policy && python -m repro.policy.shipped

ships what the stage has pre-trained, at the scale that params.yaml names.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from repro import paths
from repro import settings as settings_module
from repro.errors import command
from repro.files import read_json, read_parquet, write_json
from repro.policy.base import make_base_policy
from repro.policy.model import SHIPPED, load_policy
from repro.settings import Settings, SettingsError
from repro.tasks.queries import make_pools

FOLDERS = {"cpu": SHIPPED, "smoke": SHIPPED.with_name("pretrained_smoke")}  # by scale
MADE_WITH, HISTORY = "made_with.json", "pretraining.parquet"
AFTERWARDS = {"shipped", "describe_groups", "group_size"}  # read once the policy is there


def made_with(settings: Settings) -> dict[str, Any]:
    """The settings that the weights depend on."""
    read = {"policy": settings.policy.model_dump(exclude=AFTERWARDS), "task": settings.task.model_dump()}
    return json.loads(json.dumps(read))


def fitting(settings: Settings) -> Path | None:
    """The folder of the shipped weights that these settings made; None if there is none, or none is wanted."""
    wanted = made_with(settings) if settings.policy.shipped else None
    stored = (folder for folder in FOLDERS.values() if (folder / MADE_WITH).exists())
    return next((folder for folder in stored if same(read_json(folder / MADE_WITH, "git checkout it"), wanted)), None)


def base_policy(settings: Settings) -> tuple[Any, pd.DataFrame]:
    """(model, history), as `make_base_policy` gives them: shipped where they fit, else pre-trained here."""
    if (folder := fitting(settings)) is None:
        return make_base_policy(settings.policy, make_pools(settings.task))
    return load_policy(folder)[0], read_parquet(folder / HISTORY, "git checkout it")


def policy_for(settings: Settings) -> Path:
    """The folder of the base policy of these settings: shipped weights where they fit, else what stage `policy` has
    pre-trained of them. SettingsError with the remedy where there is neither: runs from another base policy, or from
    one that cannot read these queries, would look like any others."""
    if (folder := fitting(settings)) is not None:
        return folder
    made, wanted = paths.POLICY / "model", made_with(settings)
    stored = (
        read_json(paths.POLICY / MADE_WITH, "run `dvc repro policy`") if (paths.POLICY / MADE_WITH).exists() else {}
    )
    if (made / "config.json").exists() and same(stored, wanted):
        return made
    known = stored or read_json(FOLDERS["cpu"] / MADE_WITH, "git checkout it")
    raise SettingsError(
        f"there is no base policy of these settings ({_differing(wanted, known)}): `dvc repro policy` pre-trains one "
        "in minutes, or name the folder of another, as `policy`"
    )


def same(then: Any, now: Any) -> bool:
    """Whether two settings are the same, the order of families included: queries are drawn in that order."""
    return json.dumps(then) == json.dumps(now)


def changes(then: dict[str, dict], now: dict[str, dict]) -> Iterator[tuple[str, str, Any, Any]]:
    """(section, key, then, now) of each setting that is not what it was."""
    for section, values in now.items():
        for key, value in values.items():
            if not same(before := then.get(section, {}).get(key), value):
                yield section, key, before, value


def _differing(wanted: dict[str, Any], known: dict[str, Any]) -> str:
    """Where the settings differ from those of the weights that are there."""
    places = [f"{section}.{key}" for section, key, _, _ in changes(known, wanted)]
    return (
        f"{', '.join(places)} {'differs' if len(places) == 1 else 'differ'} from those of the weights that are here"
        if places
        else "policy.shipped is false, and none was pre-trained here"
    )


@command(name="repro.policy.shipped")
def main() -> int:
    """Ship the weights of stage `policy`."""
    settings, made = settings_module.load(), paths.POLICY / "model"
    if (folder := FOLDERS.get(settings.scale)) is None:
        raise SettingsError(f"scale {settings.scale} ships no policy; set scale to one of {', '.join(FOLDERS)}")
    if not (made / "config.json").exists():
        raise SettingsError(f"{made} is not there yet: run `dvc repro policy` first")
    shutil.copytree(made, folder, dirs_exist_ok=True)
    shutil.copy(paths.POLICY / HISTORY, folder / HISTORY)
    write_json(made_with(settings), folder / MADE_WITH)
    return 0


if __name__ == "__main__":
    sys.exit(main())
