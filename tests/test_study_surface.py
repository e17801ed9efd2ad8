"""sGPO's surface: effects of the group of an unsolved query and of the weighting, from accuracies made by hand."""

import json
from itertools import product

import pandas as pd
import pytest

from repro import settings as settings_module
from repro.experiments.surface import cells, plot
from repro.files import Unreadable, write_parquet
from repro.plots.words import in_words
from repro.stats import panels
from repro.stats.intervals import over_seeds
from repro.stats.panels import NoRuns

STATISTICS = settings_module.load().statistics
WEIGHTINGS = ("group-mean", "sequence-mean")
BY_GROUP = {0: 0.40, 2: 0.42, 8: 0.45, 32: 0.41}


def write(folder, policies: dict[str, float]) -> None:
    """Runs that end at BY_GROUP, more per rollout by 0.02 and by the base policy, less by a tenth of that halfway;
    those with groups of 32 spend twice as much a step. Of base policy c one run is missing."""
    for panel in cells.PANELS:
        runs, curves = [], []
        groups = [0] if panel == "surface-without" else [2, 8, 32]
        for policy, group, weighting, seed in product(policies, groups, WEIGHTINGS, range(2)):
            if policy == "c" and (group, weighting, seed) == (32, "sequence-mean", 1):
                continue
            varied = {cells.UNSOLVABLE: group} if group else {}
            run = f"{panel}/{policy}/{group}/{weighting}/{seed}"
            known = {
                "policy": policy,
                "arm": "sgpo",
                "seed": seed,
                "varied": json.dumps({**varied, cells.WEIGHTING: weighting}),
            }
            runs.append({"run": run, **known})
            end = BY_GROUP[group] + 0.02 * (weighting == WEIGHTINGS[1]) + policies[policy] + 0.001 * seed
            for step, accuracy in ((0, 0.3), (1, end - 0.01), (2, end)):
                flops = step * (2e9 if group == 32 else 1e9)
                spent = {"flops": flops, "queries": 1, "rollouts": 2, "trained_tokens": 3}
                curves.append({"run": run, "step": step, "accuracy": accuracy, **spent})
        write_parquet(pd.DataFrame(runs), folder / panel / "runs.parquet")
        write_parquet(pd.DataFrame(curves), folder / panel / "curves.parquet")


def test_effects_of_group_and_weighting(tmp_path, monkeypatch):
    monkeypatch.setattr(panels.paths, "PANELS", tmp_path)
    with pytest.raises(NoRuns, match="make runs PANEL=surface"):
        cells.load()
    write(tmp_path, {"a": 0.0, "b": 0.1, "c": 0.0})
    table = cells.load()
    assert len(table) == 2 * 4 * 2 * 2 and set(table["policy"]) == {"a", "b"}
    found = cells.effects(table, 8, WEIGHTINGS, STATISTICS).set_index(["measure", "factor", "level"])["difference"]
    assert found["steps"].to_list() == pytest.approx([-0.05, -0.03, -0.04, 0.02])  # groups 0, 2, 32; weighting
    # when others have ended, at 2 GFLOP, runs with groups of 32 are where their first step ends
    assert found["flops", "group", 32] == pytest.approx(-0.05)
    mean = over_seeds(table, cells.KEYS[:3], STATISTICS, list(cells.MEASURES)).reset_index()
    labels = {0: "left out", 2: "2", 8: "8", 32: "32"}
    figure = plot.accuracy(mean, labels, dict(zip(WEIGHTINGS, ("query", "rollout"), strict=True)), "How much?")
    assert in_words(figure).startswith("mean accuracy by group: after as many steps, 0.461 to 0.510")


def test_a_run_that_does_not_say_what_it_varied_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(panels.paths, "PANELS", tmp_path)
    write_parquet(
        pd.DataFrame([{"run": "x", "policy": "a", "arm": "sgpo", "seed": 0, "varied": "{}"}]),
        tmp_path / "surface/runs.parquet",
    )
    with pytest.raises(Unreadable, match=r"x does not say its arms\.sgpo\.aggregation"):
        cells.load()
