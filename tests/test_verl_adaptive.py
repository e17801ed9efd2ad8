"""verl's own main loop with what depends on earlier rollouts: a plan that learns from another reward than the verdict,
a memory, stages; in one piece, and cut off and resumed."""

import os
from pathlib import Path

import pandas as pd
import pytest
import torch
from test_verl_training import SEED, made, verl

LONG = pytest.mark.skipif("REPRO_LONG" not in os.environ, reason="four runs on Ray: REPRO_LONG=1 make test-verl")
pytestmark = [pytest.mark.verl, pytest.mark.slow, LONG]

GROUP, BUDGET, STEPS = 4, 32, 4
LEARNS = {
    "title": "Learns",
    "about": "",
    "group": "Controls",
    "plan": {"greso": {"group_size": GROUP}},
    "reward": "overlong",
    "memory": "informative",
    "samplers": ["cost_aware"],
}
STAGED = {
    "title": "In stages",
    "about": "",
    "group": "Controls",
    "plan": {"reinforce_ada": {"group_size": GROUP, "rounds": 2, "until": "positive"}},
    "samplers": [{"balanced": {"keep": GROUP}}],
}


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    return made(tmp_path_factory.mktemp("verl"), learns=LEARNS, staged=STAGED)


def tables(folder: Path, arm: str) -> dict[str, pd.DataFrame]:
    names = ("steps", "selection")
    return {name: pd.read_parquet(folder / arm / f"seed-{SEED}/tables/{name}.parquet") for name in names}


def told(folder: Path, step: int) -> dict:
    """The plan's state in a checkpoint."""
    path = folder / "learns" / f"seed-{SEED}" / f"checkpoints/global_step_{step}/data.pt"
    return torch.load(path, weights_only=False)


def test_a_run_that_learns_and_remembers_goes_on_with_the_same_draws(project):
    whole, cut = project / "whole", project / "cut"
    steps = ("--steps", str(STEPS))
    verl(project, *steps, "--output", str(whole), arm="learns")
    verl(project, *steps, "--output", str(cut), "--until", "2", arm="learns")
    verl(project, *steps, "--output", str(cut), "--resume", arm="learns")
    found, again = tables(whole, "learns"), tables(cut, "learns")
    for name, table in found.items():
        pd.testing.assert_frame_equal(table, again[name])
    state, last = told(whole, STEPS), found["steps"].iloc[-1]
    assert state["observed"] == told(cut, STEPS)["observed"] and state["taken"] == last["queries"]
    assert len(state["observed"]) == last["queries"] and last["rollouts"] == GROUP * last["queries"]
    replayed = found["steps"]["replayed_rollouts"]
    assert replayed.sum() > 0 and replayed.iloc[0] == 0
    assert state["memory"].held is not None and max(state["memory"].drawn_Q) == STEPS - 1


def test_groups_are_drawn_in_stages_by_what_they_earned(project):
    verl(project, "--steps", "1", "--output", str(project / "staged"), arm="staged")
    found = tables(project / "staged", "staged")
    of_group = found["selection"].groupby("query")["reward"]
    size, right = of_group.size(), of_group.sum()
    assert set(size) == {GROUP, 2 * GROUP} and size.sum() <= BUDGET
    assert (right[size == GROUP] > 0).all()  # the others went on
    last = found["steps"].iloc[-1]
    assert last["rollouts"] == size.sum() and last["queries"] == size.sum() / GROUP  # a prompt is read at each stage
