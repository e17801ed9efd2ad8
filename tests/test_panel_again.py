"""Panels that repeat another on another kind of CPU: who may make them, and how the two compare."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import yaml

from repro import paths
from repro import settings as settings_module
from repro.errors import Refused
from repro.experiments.results.repeated import crossed
from repro.runs import again
from repro.runs import design as designs
from repro.runs import panels as running
from repro.runs.design import Cell
from repro.settings import SettingsError
from repro.stats import panels

PANELS = {
    "first": {"question": "Which?", "arms": ["grpo", "zvf"], "policies": ["a"], "seeds": [0, 1]},
    "second": {"question": "And there?", "repeats": "first"},
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "DESIGN", tmp_path / "design.yaml")
    monkeypatch.setattr(paths, "PANELS", tmp_path / "data")
    return tmp_path


def design_of(panels: dict) -> designs.Design:
    text = yaml.safe_dump({"settings": {}, "policies": {"a": {}, "b": {}}, "groups": {}, "panels": panels})
    paths.DESIGN.write_text(text)
    return designs.load()


def made_on(cpus: dict[tuple[str, int], str]) -> None:
    """{(panel, seed): CPU}: a run of GRPO each."""
    rows = [
        {"run": f"{panel}/a/grpo/{seed}", "panel": panel, "policy": "a", "seed": seed, "cpu": cpu}
        for (panel, seed), cpu in cpus.items()
    ]
    (paths.PANELS / "all").mkdir(parents=True)
    pd.DataFrame(rows).to_parquet(paths.PANELS / "all" / "runs.parquet")


def test_a_panel_that_repeats_another_has_its_runs_under_its_own_name(place):
    design = design_of(PANELS)
    first, second = (list(designs.cells(design, [name])) for name in ("first", "second"))
    assert [cell.name.replace("second", "first") for cell in second] == [cell.name for cell in first]
    assert designs.settings_of(design, second[0]) == designs.settings_of(design, first[0])


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"repeats": "furst"}, "no panel 'furst' to repeat"),
        ({"repeats": "second"}, "no panel 'second' to repeat"),
        ({"repeats": "first", "seeds": [3]}, "cannot set 'seeds' itself"),
    ],
)
def test_a_wrong_repetition_is_one_sentence(place, second, words):
    with pytest.raises(SettingsError, match=words):
        design_of({**PANELS, "second": {"question": "?", **second}})


def test_all_arms_of_a_seed_run_on_one_kind_of_cpu_and_a_repetition_on_another(place, monkeypatch):
    design = design_of(PANELS)
    of, said = list(designs.cells(design)), []
    made_on({("first", 0): "one", ("first", 1): "two"})

    def here(cpu: str) -> list[Cell]:
        monkeypatch.setattr(running, "processor", {"cpu": cpu}.__getitem__)
        return running.of_this_cpu(design, of, said.append)

    arms = ("grpo", "zvf")
    assert here("one") == [Cell("first", "a", arm, 0) for arm in arms] + [Cell("second", "a", arm, 1) for arm in arms]
    assert said == [f"2 runs of {panel} are left to another kind of CPU than one" for panel in PANELS]
    assert here("three") == [cell for cell in of if cell.panel == "second"]


def test_a_cut_predicts_the_other_seeds_of_the_other_study():
    rng = np.random.default_rng(0)
    first_A_S, second_A_S = rng.normal(size=(2, 7, 5))
    inside = []
    for part in combinations(range(5), 3):
        rest = [seed for seed in range(5) if seed not in part]
        for one_S, two_S in zip(first_A_S, second_A_S, strict=True):
            own_S = one_S[list(part)]
            half = scipy.stats.t.ppf(0.95, 2) * own_S.std(ddof=1) * (1 / 3 + 1 / 2) ** 0.5
            inside.append(abs(two_S[rest].mean() - own_S.mean()) <= half)
    cuts = crossed(pd.DataFrame(first_A_S), pd.DataFrame(second_A_S), 0.9)
    assert len(cuts) == 10 and cuts["contained"].mean() == pytest.approx(np.mean(inside))
    few = crossed(pd.DataFrame(first_A_S), pd.DataFrame(second_A_S)[[0]], 0.9)
    assert len(few) == 4  # the cuts that leave seed 0 out


def test_whole_arms_are_compared_on_all_seeds_and_all_arms_on_the_seeds_they_share(place, monkeypatch):
    """From base policy a pods has one seed of three, from b nothing is made again."""
    policies = {**PANELS["first"], "arms": ["grpo", "zvf", "pods"], "seeds": [0, 1, 2], "policies": ["a", "b"]}
    design = design_of({**PANELS, "first": policies})
    keys = [(policy, arm, seed) for policy in "ab" for arm in ("grpo", "zvf", "pods") for seed in range(3)]
    first = pd.DataFrame(keys, columns=["policy", "arm", "seed"]).assign(run=[f"{key}" for key in keys])
    second = first[(first["policy"] == "a") & ((first["arm"] != "pods") | (first["seed"] == 1))]
    curves = first[["run"]].assign(accuracy=np.arange(18) / 100)
    tables = {("runs", "first"): first, ("runs", "second"): second}
    monkeypatch.setattr(again.panels, "load", lambda table, panel: tables.get((table, panel), curves))
    whole, shared = again.pairs(design, "second")
    assert (whole.policy, whole.arms, whole.seeds) == ("a", ["grpo", "zvf"], [0, 1, 2])
    assert whole.first["accuracy"].tolist() == whole.second["accuracy"].tolist() == [n / 100 for n in range(6)]
    assert (shared.policy, shared.arms, shared.seeds) == ("a", ["grpo", "zvf", "pods"], [1])
    assert shared.second["accuracy"].tolist() == [0.01, 0.04, 0.07] and len(shared.first) == 9
    tables["runs", "first"] = first[first["seed"] > 0]
    with pytest.raises(Refused, match="panel first has no run of grpo with seed 0: `make runs PANEL=first`"):
        again.pairs(design, "second")


def test_the_comparison_in_git_is_that_of_the_data_in_git():
    design = designs.load()
    names = [name for name, panel in design.panels.items() if panel.repeats and len(panels.load("runs", name))]
    for name in names:
        stored = (paths.RUNS / f"{name}.md").read_text()
        assert stored == again.as_markdown(design, name, settings_module.load(scale="cpu"))
