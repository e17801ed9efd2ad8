"""Edits of params.yaml that a researcher makes, each through `dvc repro` at scale `smoke`: all stages end well, and the
tables show it. All ten with REPRO_EDITS=all (`make test-edits`); of `make test` one, in test_pipeline.py."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from conftest import PAGES_ON_PANELS, Project

pytestmark = pytest.mark.slow


class After:
    """A project after an edit and `dvc repro`: its tables, and those before."""

    def __init__(self, before: Project, now: Project):
        self.before, self.now = before, now

    def table(self, name: str = "tables/evaluations.parquet", project: Project | None = None) -> pd.DataFrame:
        return pd.read_parquet((project or self.now).folder / name)

    def last(self, project: Project | None = None) -> pd.DataFrame:
        return self.table(project=project).sort_values("step").groupby(["arm", "seed"]).last()

    def figures(self) -> dict[str, Any]:
        return json.loads((self.now.folder / "metrics.json").read_text())

    def text(self, name: str) -> str:
        return (self.now.folder / name).read_text()


def section(params: dict, name: str) -> dict:
    return params["scales"]["smoke"].setdefault(name, {})


def rate(params: dict) -> None:
    params["engine"]["learning_rate"] = 2.0e-4


def steps(params: dict) -> None:
    section(params, "engine")["steps"] = 5


def queries(params: dict) -> None:
    section(params, "task")["train_queries"] = 72


def a_seed_more(params: dict) -> None:
    params["scales"]["smoke"]["seeds"] = [0, 1, 2]


def parameter(params: dict) -> None:
    params["arms"]["cost-aware"]["samplers"] = [{"cost_aware": {"beta": 0.5}}]


def family(params: dict) -> None:
    families = params["task"]["families"]
    families["sum-2"]["share"] -= 0.05
    options = {"min_terms": 9, "max_terms": 9, "min_digits": 1, "max_digits": 1}
    families["sum-9"] = {"dataset": "chain_sum", "share": 0.05, "options": options}


def base_policy(params: dict) -> None:
    params["policy"]["seed"] = 3


def removed(params: dict) -> None:
    del params["arms"]["zvf"]
    for listed in (params["primaries"], params["fidelity"]["arms"], params["drift"]["arms"]):
        listed[:] = [name for name in listed if name != "zvf"]


def scale(params: dict) -> None:
    smoke = params["scales"]["smoke"]
    params["scales"]["tiny"] = {
        **smoke,
        "engine": {**smoke["engine"], "steps": 3},
        "parity": {**smoke["parity"], "steps": 3},
    }
    params["scale"] = "tiny"


def baseline(params: dict) -> None:
    params["baseline"] = "cost-aware"


def other_curves(after: After) -> bool:
    """The runs of the same arms and seeds are others, from the same start."""
    now, before = after.table(), after.table(project=after.before)
    same_start = now.query("step == 0")["accuracy"].tolist() == before.query("step == 0")["accuracy"].tolist()
    return same_start and len(now) > 0 and not now.equals(before)


def other_start(after: After) -> bool:
    now, before = after.table(), after.table(project=after.before)
    return now.query("step == 0")["accuracy"].iloc[0] != before.query("step == 0")["accuracy"].iloc[0]


def of_beta(after: After) -> bool:
    """Runs of that arm alone are others."""
    now, before = (after.table(project=project).set_index("arm") for project in (after.now, after.before))
    return now.drop(index="cost-aware").equals(before.drop(index="cost-aware")) and not now.equals(before)


def asked_for(after: After, families: int) -> bool:
    questions = after.table("results/profile_summary/queries.parquet")
    return questions["family"].nunique() == families


# name: (edit, what the tables show, whether the pages on panels are made again too)
EDITS: dict[str, tuple[Callable, Callable[[After], bool], bool]] = {
    "learning rate": (rate, other_curves, True),
    "steps": (steps, lambda after: set(after.last()["step"].drop("sgpo")) == {5}, False),
    "queries": (queries, lambda after: len(after.table("results/profile/seed-0.parquet")) % 72 == 0, False),
    "a seed more": (a_seed_more, lambda after: set(after.table()["seed"]) >= {0, 1, 2}, False),
    "a parameter": (parameter, of_beta, False),
    "a new family": (family, lambda after: asked_for(after, 9), False),
    "another base policy": (base_policy, other_start, False),
    "an arm removed": (removed, lambda after: "zvf" not in set(after.table()["arm"]), True),
    "a smaller scale": (scale, lambda after: (after.last()["rollouts"]["grpo"] == 3 * 32).all(), True),
    "another baseline": (baseline, lambda after: "Cost-aware" in after.text("tables/front.md").splitlines()[2], True),
}


@pytest.mark.parametrize("name", EDITS if os.environ.get("REPRO_EDITS") == "all" else [])
def test_an_edit_is_followed_through(smoke, tmp_path, name):
    followed_through(smoke, tmp_path, name)


def followed_through(smoke: Project, tmp_path: Path, name: str, stages: tuple[str, ...] | list[str] = ()) -> None:
    """Make the edit in a copy, then the stages, by default all that are to show it, and look at what they show."""
    edit, shown, panels = EDITS[name]
    project = smoke.copy(tmp_path / "project")
    path = project.folder / "params.yaml"
    params = yaml.safe_load(path.read_text())
    edit(params)
    path.write_text(yaml.safe_dump(params, sort_keys=False, allow_unicode=True))
    stages = stages or ([] if panels else stages_apart_from_pages_on_panels(project.folder))
    printed = project.run("dvc", "repro", *stages)
    assert "ERROR" not in printed
    assert shown(After(smoke, project)), name
    if panels and name != "another baseline":  # whose runs are the same
        assert "This rests on" in (project.folder / "runs" / "gates.md").read_text()


def stages_apart_from_pages_on_panels(folder: Path) -> list[str]:
    declared = yaml.safe_load((folder / "dvc.yaml").read_text())["stages"]
    return [name for name in declared if name not in PAGES_ON_PANELS]
