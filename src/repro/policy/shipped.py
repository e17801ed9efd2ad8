"""The base policy that comes with the project: so that training starts from the same weights on every machine.

Pre-training gives other bits on another kind of CPU. Where `policy.shipped` is true and the settings are those that the
shipped weights were made with, stage `policy` takes them; otherwise it pre-trains. After a change of these settings,

    dvc repro policy && python -m repro.policy.shipped

ships what the stage has pre-trained.
"""

import json
import shutil
import sys
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

MADE_WITH, HISTORY = "made_with.json", "pretraining.parquet"
AFTERWARDS = {"shipped", "describe_groups", "group_size"}  # read once the policy is there


def made_with(settings: Settings) -> dict[str, Any]:
    """The settings that the weights depend on."""
    read = {"policy": settings.policy.model_dump(exclude=AFTERWARDS), "task": settings.task.model_dump()}
    return json.loads(json.dumps(read))


def fits(settings: Settings, folder: Path = SHIPPED) -> bool:
    """Whether the weights in `folder` are to be used and were made with these settings."""
    stored = folder / MADE_WITH
    return settings.policy.shipped and stored.exists() and read_json(stored, "git checkout it") == made_with(settings)


def base_policy(settings: Settings) -> tuple[Any, pd.DataFrame]:
    """(model, history), as `make_base_policy` gives them: shipped where they fit, else pre-trained here."""
    if fits(settings):
        return load_policy(SHIPPED)[0], read_parquet(SHIPPED / HISTORY, "git checkout it")
    return make_base_policy(settings.policy, make_pools(settings.task))


@command(name="repro.policy.shipped")
def main() -> int:
    """Ship the weights of stage `policy`."""
    settings, made = settings_module.load(), paths.POLICY / "model"
    if not (made / "config.json").exists():
        raise SettingsError(f"{made} is not there yet: run `dvc repro policy` first")
    shutil.copytree(made, SHIPPED, dirs_exist_ok=True)
    shutil.copy(paths.POLICY / HISTORY, SHIPPED / HISTORY)
    write_json(made_with(settings), SHIPPED / MADE_WITH)
    return 0


if __name__ == "__main__":
    sys.exit(main())
