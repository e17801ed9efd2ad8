"""The store of runs: what a key holds, what golden steps tell apart, what is read, made, and said to be missing."""

import json
import os
import shutil
import subprocess
import sys

import cloudpickle
import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from benchmarks.copies import copy_project
from repro import paths, training
from repro import settings as settings_module
from repro.engine.run import train_one
from repro.engine.runs import checkpoints_of
from repro.experiments.profile import measure
from repro.methods.plans import PlannedGroup
from repro.policy import shipped
from repro.policy.model import SHIPPED
from repro.runs import design as designs
from repro.runs import golden, make, store
from repro.runs.design import Cell
from repro.runs.key import Asked
from repro.runs.store import Need
from repro.settings import SettingsError

CPU, SMOKE = settings_module.load(scale="cpu"), settings_module.load(scale="smoke")
LISTS = ("arms", "more_arms")
SMALL = {
    "task": {"train_queries": 24, "evaluation_queries": 12},
    "engine": {"steps": 2, "rollouts_per_step": 32, "minibatch": 16, "max_new_tokens": 64, "log_every": 1},
    "evaluation": {"budgets": 2, "budget_gflops": 0.5, "samples": 1, "final_samples": 2},
    "policy": {"describe_groups": 1},
}


def changed(settings, **sections):
    """The settings with other values in some sections."""
    parts = {name: getattr(settings, name).model_copy(update=values) for name, values in sections.items()}
    return settings.model_copy(update=parts)


def small():
    return changed(settings_module.load(scale="cpu", seeds=[0, 1]), **SMALL, fidelity={"arms": []}, drift={"arms": []})


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A store that is empty, its runs made in this process; `made` lists them."""
    made = []

    def here(runs, say, watch=None):
        for run in runs:
            if checkpoints_of(run).finished() is None:
                made.append((run.arm, run.seed))
                train_one(run, checkpoints_of(run), lambda *_: None)

    monkeypatch.setattr(make, "train_runs", here)
    monkeypatch.setattr(measure, "map_in_workers", lambda function, items, workers: list(map(function, items)))
    monkeypatch.setattr(golden, "ALONE", 99)
    folders = {"PANELS": "panels", "HERE": "here", "SCRATCH": "scratch", "PROFILE": "profile", "POLICY": "policy"}
    for name, folder in folders.items():
        monkeypatch.setattr(paths, name, tmp_path / folder)
    store.forget_index()
    yield made
    store.forget_index()


def asks(settings=CPU, arm="sgpo", seed=0, policy=SHIPPED) -> str:
    return Asked(settings, arm, seed, policy).asks


def renamed(arm: str, **fields):
    return CPU.model_copy(update={"arms": {**CPU.arms, arm: CPU.arms[arm].model_copy(update=fields)}})


@pytest.mark.parametrize(
    "same",
    [
        changed(CPU, engine={"workers": 7, "checkpoint_every": 3}),
        renamed("sgpo", title="Another", about="?", group="Else", seeds=[0, 1]),
        renamed("grpo", aggregation="token-mean"),
        changed(CPU, task={"pretraining_queries": 9}, fidelity={"arms": []}, statistics={"resamples": 200}),
        CPU.model_copy(update={"seeds": [0, 9], "more_arms": {}, "baseline": "zvf"}),
    ],
)
def test_what_changes_no_number_of_a_run_is_no_part_of_its_key(same):
    assert asks(same) == asks()


@pytest.mark.parametrize(
    "other",
    [
        changed(CPU, engine={"learning_rate": 1e-4}),
        changed(CPU, engine={"steps": 30}),
        changed(CPU, evaluation={"final_samples": 8}),
        changed(CPU, task={"train_queries": 100}),
        changed(CPU, policy={"describe_groups": 2}),
        changed(CPU, engine={"rollouts_per_step": 64}),
        changed(CPU, profile={"samples": 16}),
        renamed("sgpo", aggregation="token-mean"),
        renamed("sgpo", repeat=1),
        renamed("sgpo", engine=CPU.arms["sgpo"].engine.model_copy(update={"kl": 0.1})),
    ],
)
def test_what_changes_its_numbers_is(other):
    assert asks(other) != asks()


def test_seed_queries_and_policy_are_part_of_a_key_and_equal_arms_share_one(tmp_path):
    shutil.copytree(SHIPPED, tmp_path / "same")
    assert asks(policy=tmp_path / "same") == asks()
    assert len({asks(), asks(seed=1), asks(policy=ROOT / "runs" / "policies" / "b")}) == 3
    twin = CPU.model_copy(update={"arms": {**CPU.arms, "twin": CPU.arms["sgpo"]}})
    assert asks(twin, "twin") == asks()
    own = changed(renamed("grpo", engine=CPU.arms["grpo"].engine.model_copy(update={"steps": 30})))
    assert asks(own, "grpo") == asks(changed(CPU, engine={"steps": 30}), "grpo")


EDITS = {  # which of three arms they change in their numbers
    "a variable has another name": ("methods/objectives/grpo.py", "free", "unclipped", ()),
    "the draw": ("methods/samplers/cost_aware.py", "(rollouts, beta)", "(rollouts, beta + 0.01)", ("cost-aware",)),
    "late in a schedule only": (
        "methods/selection/schedule.py",
        "    return (1.0 - progress)",
        "    progress = min(progress, 0.93)\n    return (1.0 - progress)",
        ("d3s",),
    ),
    "the stream of evaluations": ("protocol/streams.py", '"evaluate", "probe"', '"probe", "evaluate"', ("all",)),
}
STEPS = """
import cloudpickle, json, os, sys
found = {}
for root in sys.argv[1:]:
    for name in [name for name in sys.modules if name.split(".")[0] == "repro"]:
        del sys.modules[name]
    os.environ["REPRO_ROOT"] = root
    sys.path.insert(0, f"{root}/src")
    from repro import settings
    from repro.policy.model import SHIPPED
    from repro.runs import golden
    from repro.runs.key import Asked
    loaded = settings.load(scale="cpu")
    asked = {arm: cloudpickle.dumps(Asked(loaded, arm, 0, SHIPPED)) for arm in ("grpo", "d3s", "cost-aware")}
    found[root] = {arm: golden.golden_steps(one) for arm, one in asked.items()}
print(json.dumps(found))
"""


@pytest.mark.slow
def test_golden_steps_tell_edits_that_change_numbers_from_those_that_do_not(tmp_path):
    """Three of four edits change numbers, one of them late in a schedule only. One process has each code in turn."""
    roots = {name: copy_project(tmp_path / name, ("src", "configs", "params.yaml", "dvc.yaml")) for name in EDITS}
    for name, (file, old, new, _) in EDITS.items():
        path = roots[name] / "src/repro" / file
        assert old in path.read_text(), f"{name}: {file} does not hold {old!r}"
        path.write_text(path.read_text().replace(old, new))
    command = [sys.executable, "-c", STEPS, str(ROOT), *map(str, roots.values())]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    before = found[str(ROOT)]
    for name, (*_, arms) in EDITS.items():
        now = {arm for arm in before if found[str(roots[name])][arm] != before[arm]}
        assert now == set(before if arms == ("all",) else arms), name


UNDECLARED = (  # arms of no panel yet
    "sgpo-published",
    *("overlong", "finished-only", "shorter-better", "rloo", "reinforce-plus-plus", "snr", "pass-rate-band"),
    *("entropy-tokens", "clip-cov", "d2s-entropy", "d2s-advantage"),
)


def test_the_golden_steps_in_git_are_those_of_this_code():
    """Of the study and of the bed before it, whose runs only stand while they do, and of arms that await theirs: on a
    kind of CPU that git knows the digests, elsewhere at least the names. A number that changed is seen here."""
    design, wanted = designs.load(), []
    for panel in ("default", "steps"):
        settings = designs.settings_of(design, Cell(panel, design.panels[panel].policies[0], "", 0))
        wanted += [Asked(settings, arm, 0, SHIPPED) for arm in ("grpo", "d3s", "sgpo", "cost-aware", "gspo", "zvf")]
    wanted += [Asked(CPU, arm, 0, SHIPPED) for arm in UNDECLARED]
    in_git = golden.read([paths.GOLDEN])
    for one in wanted:
        known = {row.digest for row in in_git if row.case == golden.case_of(one) and row.cpu == golden.kind()}
        assert not known or golden.golden_steps(cloudpickle.dumps(one)) in known, one.arm
    assert {row.case for row in in_git} >= {golden.case_of(one) for one in wanted}


def test_a_name_stands_for_equal_digests_equal_code_and_a_kind_without_any(place, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "GOLDEN", tmp_path / "none.csv")
    one, digest, said = Asked(CPU, "grpo", 0, SHIPPED), ["d1"], []
    case, code, kind = golden.case_of(one), golden.code_of(one), golden.kind()
    monkeypatch.setattr(golden, "_make", lambda asked: digest * len(asked))
    monkeypatch.setattr(golden, "code_of", lambda asked: code)
    assert golden.computes([one], said.append) == ["d1"] and said == []  # the first
    digest[0] = "never made"
    assert golden.computes([one]) == ["d1"]  # code that is known is not run
    code = "refactored"
    digest[0] = "d1"
    assert golden.computes([one]) == ["d1"]
    code, digest[0] = "edited", "d2"
    assert golden.computes([one]) == ["d2"]
    assert {row.computes for row in golden.read()} == {"d1", "d2"}
    # Another kind of CPU: code that was seen elsewhere, then code that was not.
    monkeypatch.setattr(golden, "kind", lambda: "another")
    digest[0] = "d3"
    assert golden.computes([one], said.append) == ["d2"] and "made on this kind of CPU" in said[0]
    code, digest[0] = "edited again", "d4"
    assert golden.computes([one]) == ["d4"]
    assert (case, kind) == (golden.case_of(one), golden.read()[0].cpu)


def test_runs_are_trained_once_and_read_by_every_later_call(place):
    settings, quiet = small(), {"policy": SHIPPED, "say": lambda line: None}
    first = training.train(settings, ["grpo", "zvf"], **quiet)
    assert place == [("grpo", 0), ("grpo", 1), ("zvf", 0), ("zvf", 1)]
    again = training.train(settings.model_copy(update={"seeds": [1]}), ["zvf"], **quiet)
    assert len(place) == 4
    for name, table in again.items():
        own = first[name].query("arm == 'zvf' and seed == 1").reset_index(drop=True)
        pd.testing.assert_frame_equal(table, own, check_exact=True, check_dtype=False)  # NaN of the other arm
    assert list(first["steps"])[:2] == ["arm", "seed"] and first["steps"]["arm"].tolist() == ["grpo"] * 4 + ["zvf"] * 4
    more = training.train(settings.model_copy(update={"seeds": [0, 1, 2]}), ["grpo"], **quiet)  # a seed more
    assert place[4:] == [("grpo", 2)] and sorted(more["steps"]["seed"].unique()) == [0, 1, 2]
    other = changed(settings, engine={"learning_rate": 1e-3})
    training.train(other, ["grpo"], **quiet)  # an edited rate: other keys; the old runs stay
    assert place[5:] == [("grpo", 0), ("grpo", 1)]
    training.train(settings, ["grpo", "zvf"], **quiet)
    assert len(place) == 7


def test_a_run_without_what_is_asked_of_it_now_is_made_again_with_the_same_numbers(place):
    settings, quiet = small(), {"policy": SHIPPED, "say": lambda line: None}
    settings = settings.model_copy(update={"seeds": [0]})
    before = training.train(settings, ["grpo"], **quiet)
    with_weights = changed(settings, fidelity={"arms": ["grpo"], "snapshot_every": 1})
    [one] = training.asked(with_weights, ["grpo"], SHIPPED)
    assert store.find([one]).absent == [] and store.find([one], Need(snapshots=True)).absent == [one]
    after = training.train(with_weights, ["grpo"], snapshots=True, **quiet)
    pd.testing.assert_frame_equal(before["steps"], after["steps"], check_exact=True)
    folder = store.find([one], Need(snapshots=True)).places[one].folder
    assert {path.name for path in folder.glob("*.safetensors")} == {"step-1.safetensors", "step-2.safetensors"}
    assert len(place) == 2


def test_a_function_of_a_cell_is_trained_once_and_again_when_what_it_computes_changes(place):
    """Its source is the same: what it closes over is not."""

    def with_share(share):
        def first(rollouts, progress, rng):
            return rollouts.take(np.arange(int(share * len(rollouts))))

        return first

    def trained(share) -> pd.DataFrame:
        settings = small().model_copy(update={"seeds": [0]}).with_arms({"first": {"samplers": [with_share(share)]}})
        return training.train(settings, policy=SHIPPED, say=lambda line: None)["steps"]

    half = trained(0.5)
    assert trained(0.5).equals(half) and place == [("first", 0)]
    assert not trained(0.25).equals(half) and len(place) == 2


def test_a_plan_of_a_cell_learns_from_what_its_groups_earn(place):
    class Curious:
        """Queries with the probability p (1 − p) + 0.01, p a running mean of what they earned."""

        def __init__(self, queries, rollouts_per_step, rng, *, group_size: int = 8):
            self.rate_Q, self.rng, self.size = np.full(len(queries), 0.5), rng, group_size

        def __iter__(self):
            while True:
                weight_Q = self.rate_Q * (1 - self.rate_Q) + 0.01
                yield PlannedGroup(int(self.rng.choice(len(weight_Q), p=weight_Q / weight_Q.sum())), self.size)

        def observe(self, query, rewards_G, costs_G):
            self.rate_Q[query] = (self.rate_Q[query] + rewards_G.mean()) / 2

    settings = small().with_arms({"curious": {"plan": (Curious, {"group_size": 4})}})
    steps = training.train(settings, policy=SHIPPED, say=lambda line: None)["steps"]
    assert place == [("curious", 0), ("curious", 1)] and steps["queries"].tolist() == [8, 16] * 2


@pytest.mark.parametrize(
    ("arms", "sentence"),
    [
        ({}, "no arm was given"),
        ({"mine": "grpoo"}, "there is no arm 'grpoo' in params.yaml.*grpo"),
        ({"mine": {"samplers": [lambda rollouts, progress, rng: None]}}, "returned NoneType"),
    ],
)
def test_a_wrong_arm_in_a_cell_is_one_sentence_before_anything_trains(place, arms, sentence):
    with pytest.raises(SettingsError, match=sentence):
        training.train(SMOKE.with_arms(arms), policy=SHIPPED)
    assert place == []


def test_the_study_in_git_is_whole_and_an_edited_arm_is_asked_for_alone():
    """Of the arms in the tables: one that was just added to params.yaml has no runs, and would be trained here."""
    there = set(pd.read_parquet(ROOT / "tables/evaluations.parquet", columns=["arm"])["arm"])
    parts = {where: {name: arm for name, arm in getattr(CPU, where).items() if name in there} for where in LISTS}
    cpu, seeds = CPU.model_copy(update=parts), len(CPU.seeds)
    found = training.study(cpu, [name for name in cpu.all_arms if name != "sgpo"], say=lambda line: None)
    assert found.lacking == "" and set(found.in_git) == there - {"sgpo"}
    assert set(found.tables["evaluations"].groupby("arm")["seed"].nunique().drop("grpo-again")) == {seeds}
    assert found.tables["evaluations"]["accuracy"].dtype == "float64"
    read = next(iter(cpu.more_arms))
    edited = cpu.model_copy(
        update={
            where: parts[where] | {name: parts[where][name].model_copy(update={"aggregation": "group-mean"})}
            for where, name in zip(LISTS, ("pods", read), strict=True)
        }
    )
    absent = store.find(training.asked(edited, list(edited.all_arms))).absent
    assert {one.arm for one in absent} == {"pods", read} and len(absent) == 2 * seeds
    only_read = training.study(edited, ["grpo", read], say=lambda line: None)
    assert read not in only_read.settings.all_arms
    assert only_read.lacking.startswith(
        "1 arms of more_arms have no runs at these settings and are left out: `python -m"
    )
    assert f"makes the {seeds} that are missing, about " in only_read.lacking


def test_settings_that_no_base_policy_here_was_made_of_are_refused_with_what_differs(place):
    assert shipped.policy_for(CPU) == SHIPPED
    other = changed(CPU, task={"train_queries": 100})
    with pytest.raises(
        SettingsError, match=r"task\.train_queries differs from those of the weights .* `dvc repro policy`"
    ):
        training.train(other, ["grpo"])
    made = paths.POLICY / "model"
    shutil.copytree(SHIPPED, made)
    (paths.POLICY / shipped.MADE_WITH).write_text(json.dumps(shipped.made_with(other)))
    assert shipped.policy_for(other) == made and shipped.policy_for(CPU) == SHIPPED
    with pytest.raises(SettingsError, match=r"policy\.hidden differs"):
        shipped.policy_for(changed(other, policy={"hidden": 32}))


def test_a_temporary_copy_of_dvcs_shares_the_store_of_its_project(tmp_path):
    copy = tmp_path / ".dvc" / "tmp" / "exps" / "x"
    copy.mkdir(parents=True)
    for folder in (tmp_path, copy):
        (folder / "params.yaml").write_text("")
        (folder / "dvc.yaml").write_text("")
    code = "from repro import paths; print(paths.HERE)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=copy,
        capture_output=True,
        text=True,
        env={**os.environ, "REPRO_ROOT": str(copy)},
    )
    assert done.stdout.strip() == str(tmp_path / "runs" / "here")
