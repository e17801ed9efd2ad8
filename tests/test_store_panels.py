"""Panels of the design: what they list, and that their runs are made once, kept for git, audited and read back."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import yaml

from repro import paths
from repro.engine.run import train_one
from repro.engine.runs import checkpoints_of
from repro.errors import Refused
from repro.experiments.profile import measure
from repro.policy.model import SHIPPED
from repro.runs import __main__ as command
from repro.runs import audit as auditing
from repro.runs import design as designs
from repro.runs import golden, make, store, temperatures
from repro.runs import panels as running
from repro.runs.design import Cell
from repro.runs.panels import batches
from repro.settings import SettingsError
from repro.stats import panels

SMALL = {
    "seeds": [0],
    "task": {"train_queries": 24, "evaluation_queries": 12},
    "policy": {"describe_groups": 1},
    "engine": {
        "workers": 1,
        "steps": 2,
        "rollouts_per_step": 32,
        "minibatch": 16,
        "max_new_tokens": 24,
        "kl_probe": 4,
        "log_every": 2,
    },
    "evaluation": {"budgets": 2, "budget_gflops": 0.5, "generation_gflops": 0.2, "samples": 1, "final_samples": 2},
    "profile": {"samples": 32},
    "fidelity": {"arms": []},
    "drift": {"arms": []},
}
FEW_SILENT = {"title": "few", "about": "", "shares": {"sum-4": 0.4, "sum-5": 0.4, "sum-6": 0.2}}
DESIGN = {
    "settings": SMALL,
    "policies": {"a": {}, "b": {"task": {"seed": 1}}},
    "groups": {"two": ["grpo", "sgpo"]},
    "panels": {
        "main": {"question": "Which?", "arms": ["two"], "policies": ["a"], "seeds": [0, 1]},
        "tuning": {
            "question": "At which rate?",
            "arms": ["two", "zvf"],
            "policies": ["a", "b"],
            "seeds": [7, 8, 9],
            "vary": {"engine.learning_rate": [1e-4, 2e-4], "mix": ["few-silent"]},
            "settings": {"engine": {"steps": 3}, "mixes": {"few-silent": FEW_SILENT}},
            "stop_at": 1.5,
        },
    },
}


def panel(**changes) -> dict:
    """A design whose panel `main` has these instead."""
    return {"panels": {"main": {**DESIGN["panels"]["main"], **changes}}}


def trained_here(runs, say, watch=None):
    """As train_runs, in this process, without the seconds in which workers import; test_runs.py compares the bits."""
    for run in runs:
        if checkpoints_of(run).finished() is None:
            train_one(run, checkpoints_of(run), lambda *_: None)
    return {(run.arm, run.seed): checkpoints_of(run).finished() for run in runs}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a small design and the shipped policy under both names. Nothing is made in workers."""
    monkeypatch.setattr(make, "train_runs", trained_here)
    for module in (measure, temperatures):
        monkeypatch.setattr(module, "map_in_workers", lambda function, items, workers: list(map(function, items)))
    monkeypatch.setattr(golden, "ALONE", 99)
    in_store = {"DESIGN": "design.yaml", "PANELS": "panels", "HERE": "here", "SCRATCH": "scratch", "RUNS": ""}
    for name, folder in {**in_store, "BASE_POLICIES": "policies", "BUILD": "build"}.items():
        monkeypatch.setattr(paths, name, tmp_path / folder)
    for name in DESIGN["policies"]:
        shutil.copytree(SHIPPED, tmp_path / "policies" / name)
    (tmp_path / "design.yaml").write_text(yaml.safe_dump(DESIGN))
    store.forget_index()
    yield tmp_path
    store.forget_index()


def run(monkeypatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["repro.runs", *arguments])
    return command.main()


def test_a_panel_is_a_full_cross_and_names_are_unique(place):
    design = designs.load()
    tuning = list(designs.cells(design, ["tuning"]))
    assert len(tuning) == 3 * 2 * 3 * 2 and len(list(designs.cells(design))) == len(tuning) + 4
    assert len({cell.name for cell in designs.cells(design)}) == len(tuning) + 4
    assert tuning[0].name == 'tuning/a/engine.learning_rate=0.0001/mix="few-silent"/grpo/7'


@pytest.mark.parametrize("count", [2, 9])
def test_shards_part_the_design_and_keep_the_arms_of_a_seed_together(place, count):
    of = list(designs.cells(designs.load(), ["tuning"]))
    shards = [designs.shard_of(of, index, count) for index in range(1, count + 1)]
    assert sorted(cell.name for shard in shards for cell in shard) == sorted(cell.name for cell in of)
    seeds = [{(cell.policy, cell.seed) for cell in shard} for shard in shards]
    assert sum(map(len, seeds)) == 6 == len(set.union(*seeds))


def test_settings_come_from_params_the_design_the_policy_the_panel_and_the_cell_in_this_order(place):
    design = designs.load()
    cell = next(cell for cell in designs.cells(design, ["tuning"]) if cell.policy == "b")
    settings = designs.settings_of(design, cell)
    assert (settings.engine.steps, settings.engine.rollouts_per_step, settings.task.seed) == (3, 32, 1)
    assert settings.engine.stop_gflops == 0.75 and designs.settings_of(design, Cell("main", "a", "", 0)).seeds == [0]
    assert settings.engine.learning_rate == 1e-4 and set(settings.task.families) == {"sum-4", "sum-5", "sum-6"}


OWN = {"title": "Own", "about": "GRPO with groups of 4.", "group": "Objectives", "plan": {"uniform": {"group_size": 4}}}


@pytest.mark.parametrize("scale", ["cpu", "smoke"])
def test_a_bed_replaces_whole_sections_of_params_whatever_its_scale(place, monkeypatch, scale):
    params = yaml.safe_load(paths.PARAMS.read_text()) | {"scale": scale}
    monkeypatch.setattr(paths, "PARAMS", place / "params.yaml")
    paths.PARAMS.write_text(yaml.safe_dump(params))
    families = {name: params["task"]["families"][name] | {"share": 0.5} for name in ("gcd", "sum-2")}
    task = {key: value for key, value in params["task"].items() if key != "harder"} | {"families": families}
    bed = {"task": task, "arms": {"grpo-longer": {"engine": {"steps": 9}}, "gone": {"title": "?"}, "own": OWN}}
    changes = {"beds": {"few": bed}, "policies": {"a": {"bed": "few", "task": {"seed": 3}}, "b": {}}}
    paths.DESIGN.write_text(yaml.safe_dump(DESIGN | panel() | changes | {"settings": {"task": {"train_queries": 24}}}))
    own, other = (designs.settings_of(designs.load(), Cell("main", policy, "", 0)) for policy in "ab")
    assert set(own.task.families) == set(families) and own.task.harder is None
    assert own.arm("own").plan == ("uniform", {"group_size": 4}) and not {"own", "gone"} & set(other.all_arms)
    sizes = own.task.seed, own.task.train_queries, own.task.evaluation_queries
    assert sizes == (3, 24, task["evaluation_queries"])
    assert own.all_arms["grpo-longer"].engine.steps == 9 and "gone" not in own.all_arms
    assert len(other.task.families) > 2 and other.task.harder
    assert own.engine.steps == params["engine"]["steps"]  # a bed is of no scale
    assert (other.engine == own.engine) == (scale == "cpu")


def test_runs_of_a_bed_that_is_kept_are_asked_for_by_the_keys_that_git_has():
    """One run of every panel, whatever params.yaml has become since."""
    design, stored = designs.load(), panels.load("runs", root=paths.PANELS).set_index("run")["asks"]
    beds = {name for name, policy in design.policies.items() if policy.get("bed")}
    of = [cell for cell in designs.cells(design) if cell.policy in beds and cell.name in stored]
    last = {cell.panel: cell for cell in of if not designs.of_language_model(design, cell.panel)}
    asked = running.asked_of(design, list(last.values()))
    assert len(asked) > 10 and all(one.asks == stored[cell.name] for cell, one in asked.items())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (panel(arms=["grpoo"]), ["panels.main", "'grpoo'", "'grpo'"]),
        (panel(policies=["c"]), ["panels.main", "policy 'c'"]),
        (panel(seeds=[-1]), ["panels.main.seeds.0"]),
        (panel(seeds=[0, 0]), ["panels.main.seeds"]),
        ({"panels": {"--help": DESIGN["panels"]["main"]}}, ["panels.--help", "letters"]),
        ({"settings": {"engine": {"stepz": 1}}}, ["engine.stepz"]),
        ({"policies": {"a": {"bed": "slipps"}}, "beds": {"slips": {}}}, ["policies.a.bed", "'slipps'", "'slips'"]),
    ],
)
def test_a_wrong_design_is_one_sentence(place, monkeypatch, capsys, change, words):
    paths.DESIGN.write_text(yaml.safe_dump({**DESIGN, **change}))
    assert run(monkeypatch, "list") == 2
    error = capsys.readouterr().err
    assert all(word in error for word in words) and error.count("\n") == 1, error


def made(monkeypatch, *arguments: str) -> None:
    """Made, and kept for git."""
    for what in ("make", "keep"):
        assert run(monkeypatch, what, *arguments) == 0


def test_runs_are_made_once_kept_read_back_and_the_same_again(place, monkeypatch, capsys):
    made(monkeypatch, "--panel", "main", "--shard", "1/2")
    assert sorted(panels.load("runs")["run"]) == ["main/a/grpo/0", "main/a/sgpo/0"]
    made(monkeypatch, "--panel", "main")
    runs, curves, steps = (panels.load(table) for table in ("runs", "curves", "steps"))
    assert runs["run"].is_unique and sorted(runs["seed"]) == [0, 0, 1, 1] and not any(place.rglob("*.pt"))
    assert (steps.groupby("run")["step"].apply(list).map(len) == 2).all()
    assert curves.query("step == 0").groupby("run")["accuracy"].first().nunique() == 1  # the base policy's
    assert (panels.load("questions").groupby("run")["samples"].sum() == 12 * 2).all()
    of_both = {"panels": {**DESIGN["panels"], "also": {**DESIGN["panels"]["main"], "arms": ["grpo"], "seeds": [1]}}}
    (place / "design.yaml").write_text(yaml.safe_dump(DESIGN | of_both))
    shutil.rmtree(place / "here")  # git has them
    made(monkeypatch, "--panel", "also")  # a run that another panel has in git
    for table in ("runs", "curves", "questions"):
        wide = panels.load(table).drop(columns="panel", errors="ignore").set_index("run")
        own, taken = (wide.loc[[f"{name}/a/grpo/1"]].reset_index(drop=True) for name in ("main", "also"))
        pd.testing.assert_frame_equal(own, taken)
    shutil.rmtree(place / "panels" / "also")
    (place / "design.yaml").write_text(yaml.safe_dump(DESIGN))
    assert running.make(designs.load(), list(designs.cells(designs.load(), ["main"]))) == 0
    path = place / "panels" / "main" / "steps-1-of-2.parquet"
    whole = pd.read_parquet(path)
    whole[: len(whole) // 2].to_parquet(path)
    with pytest.raises(ValueError, match="has 0 of 2 rows of main/a/sgpo/0: `git checkout runs/panels`"):
        panels.load("steps")
    whole.to_parquet(path)
    path = place / "panels" / "main" / "curves-1-of-2.parquet"
    curves = pd.read_parquet(path)
    curves.assign(accuracy=curves["accuracy"].where(curves["run"] == "main/a/sgpo/0", 0.5)).to_parquet(path)
    capsys.readouterr()
    assert run(monkeypatch, "audit", "4") == 0
    printed = capsys.readouterr().out
    assert "3 of 4 runs (--seed " in printed and "bits of those in git; of the others 0 end outside" in printed


def test_audits_draw_other_runs_for_everybody_and_the_same_ones_by_their_seed(place, monkeypatch, capsys):
    drawn = []
    monkeypatch.setattr(auditing, "chosen", lambda design, count, seed: drawn.append(seed) or [])
    for arguments in ((), (), ("--seed", "7")):
        assert run(monkeypatch, "audit", "2", *arguments) == 2
    assert drawn[0] != drawn[1] and drawn[2] == 7


def test_a_cut_table_is_named_and_so_is_what_restores_the_rows_of_runs_that_count_as_made(place):
    cells = list(designs.cells(designs.load(), ["main"]))
    rows = pd.DataFrame({"run": [cells[0].name], "step": [0]})
    running.append(rows, "main", "curves")
    path = place / "panels" / "main" / "curves.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(Refused, match=r"curves\.parquet cannot be read \(.*\): delete it and run `git checkout runs"):
        running.append(rows.assign(run=cells[1].name), "main", "curves")


def test_an_arm_that_joins_a_panel_is_stored_and_one_with_runs_stays_as_it_was_made(place):
    running.describe(designs.load(), "main")
    path = place / "panels/main/settings.json"
    first = json.loads(path.read_text())
    fewer = {name: arm for name, arm in first["arms"].items() if name != "zvf"}
    path.write_text(json.dumps(first | {"arms": fewer | {"grpo": {"objective": "another"}}}))
    running.describe(designs.load(), "main")
    assert json.loads(path.read_text()) == first | {"arms": first["arms"] | {"grpo": {"objective": "another"}}}


def test_a_policy_is_sampled_where_its_run_ends_and_where_it_began(place, monkeypatch):
    entry = {**DESIGN["panels"]["main"], "arms": ["grpo"], "seeds": [0, 1], "temperatures": {0.01: 1, 1.0: 3}}
    entry["settings"] = {"engine": {"learning_rate": 1e-2}}  # so that two steps change what is likeliest
    paths.DESIGN.write_text(yaml.safe_dump({**DESIGN, "panels": {"end": entry, "main": {**entry, "temperatures": {}}}}))
    made(monkeypatch)
    table, questions = panels.load("temperatures"), panels.load("questions")
    assert set(table["run"]) == {"end/a/grpo/0", "end/a/grpo/1", "end/a/base"}
    assert (table.groupby(["run", "temperature"])["samples"].sum().unstack() == [12, 36]).all(axis=None)
    base, ends = (
        table.query("temperature < 1 and run == @name")["tokens"].tolist() for name in ("end/a/base", "end/a/grpo/0")
    )
    assert base != ends  # other weights
    without = questions["run"].str.startswith("main")  # and keeping them changes no number of the run
    pd.testing.assert_frame_equal(
        questions[without].drop(columns="run").reset_index(drop=True),
        questions[~without].drop(columns="run").reset_index(drop=True),
    )


def test_a_batch_has_the_terms_of_equation_8():
    """Cost of uniform draws over the least, by brute force: Σ_i p_i c_i · Σ_i A_i²/p_i over p ∝ 1 and p ∝ |A|/√c."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"step": 3, "advantage": rng.normal(size=9), "cost": rng.integers(5, 90, 9)})
    row = batches(frame).iloc[0]
    size_N, cost_N = frame["advantage"].abs().to_numpy(), frame["cost"].to_numpy()

    def cost(p_N):
        p_N = p_N / p_N.sum()
        return (p_N * cost_N).sum() * (size_N**2 / p_N).sum()

    least = cost(size_N / np.sqrt(cost_N))
    assert row["cost"] * row["square"] / row["optimal"] ** 2 == pytest.approx(cost(np.ones(9)) / least)
    assert row["absolute"] * row["variance"] / row["optimal"] ** 2 == pytest.approx(cost(size_N) / least)
    assert row["correlation"] == pytest.approx(np.corrcoef(size_N, cost_N)[0, 1]) and row["silent"] == 0


def test_an_arm_may_have_rates_of_its_own(place):
    entry = {"question": "?", "rates": {"grpo": [1e-4], "zvf": [3e-4, 4e-4]}, "policies": ["a", "b"], "seeds": [0]}
    paths.DESIGN.write_text(yaml.safe_dump({**DESIGN, "panels": {"tuned": entry}}))
    of = list(designs.cells(designs.load()))
    assert [cell.name for cell in of[:3]] == [
        f"tuned/a/engine.learning_rate={x}/0" for x in ("0.0001/grpo", "0.0003/zvf", "0.0004/zvf")
    ]
    assert len(of) == 6 and designs.settings_of(designs.load(), of[1]).engine.learning_rate == 3e-4
    paths.DESIGN.write_text(yaml.safe_dump({**DESIGN, "panels": {"tuned": {**entry, "arms": ["grpo"]}}}))
    with pytest.raises(SettingsError, match="either arms or rates"):
        designs.load()


def test_an_audited_run_is_held_against_the_other_seeds_of_its_arm(place, monkeypatch, capsys):
    """The prediction interval of one more value after n: mean ± t s √(1 + 1/n); here of 0.2, 0.3 and 0.4."""
    of = [Cell("tuning", "a", "grpo", seed) for seed in range(4)]
    curves = pd.DataFrame({"run": [cell.name for cell in of], "step": 3, "accuracy": [0.9, 0.2, 0.3, 0.4]})
    (place / "panels" / "tuning").mkdir(parents=True)
    curves.to_parquet(place / "panels" / "tuning" / "curves.parquet")
    half = scipy.stats.t.ppf(0.975, 2) * 0.1 * (4 / 3) ** 0.5
    assert auditing.prediction(of[0]) == pytest.approx((0.3 - half, 0.3 + half))
    curves[:3].to_parquet(place / "panels" / "tuning" / "curves.parquet")
    assert all(np.isnan(auditing.prediction(of[0])))
    rows = [
        {"run": f"{n}", "bits": n < 2, "stored": 0.3, "again": 0.9, "low": low, "high": 0.4}
        for n, low in enumerate([0.2, np.nan, 0.2, np.nan])
    ]
    monkeypatch.setattr(auditing, "chosen", lambda *_: of)
    monkeypatch.setattr(auditing, "audit", lambda *_, **__: pd.DataFrame(rows))
    assert run(monkeypatch, "audit", "4") == 1
    assert "of the others 1 end outside their prediction interval, 1 have too few seeds" in capsys.readouterr().out


def test_what_a_panel_was_declared_as_is_what_it_is_and_came_before_its_runs():
    """By the design of the commit that it names; a copy without history has nothing to ask."""
    design, taken = yaml.safe_load(paths.DESIGN.read_text()), panels.taken_over(panels.in_order())["run"]
    for name, panel in design["panels"].items():
        if commit := panel.pop("declared", None):
            then = subprocess.run(["git", "show", f"{commit}:runs/design.yaml"], capture_output=True, cwd=paths.ROOT)
            if then.returncode:
                pytest.skip("the history is not here")
            of_then = yaml.safe_load(then.stdout)
            assert of_then["panels"][name] == panel and panel.get("policies")
            assert all(of_then["policies"][policy] == design["policies"][policy] for policy in panel["policies"])
            dated = ["git", "show", "-s", "--format=%cI", commit]
            date = pd.Timestamp(subprocess.run(dated, capture_output=True, text=True, cwd=paths.ROOT).stdout.strip())
            made = panels.load("runs", name).reindex(columns=["run", "date", "commit"])
            own = made[~made["run"].isin(taken)]
            same = own[pd.to_datetime(own["date"], utc=True) <= date.floor("min")]  # minute: then the code was later
            for code in same["commit"].unique():
                later = ["git", "merge-base", "--is-ancestor", commit, code]
                assert subprocess.run(later, cwd=paths.ROOT).returncode == 0, name
