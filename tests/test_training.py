"""The training call: what it starts from, where it keeps what, what workers go on with, methods from a cell."""

import hashlib
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml

from repro import paths, training
from repro.engine.log import Log
from repro.engine.runs import as_job, checkpoints_of
from repro.pipeline import kept
from repro.pipeline.lock import recorded
from repro.settings import SettingsError, load

SETTINGS = load(scale="smoke")
ARMS = list(SETTINGS.arms)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A project without results: manifests of four arms, a policy of one weight file."""
    for name, folder in {"ROOT": "", "MANIFESTS": "manifests", "CHECKPOINTS": "checkpoints", "BUILD": "build"}.items():
        monkeypatch.setattr(paths, name, tmp_path / folder)
    monkeypatch.setattr(paths, "POLICY", tmp_path / "policy")
    monkeypatch.setattr(paths, "TIMINGS", tmp_path / "timings")
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(paths, "PROFILE", tmp_path / "profile")
    monkeypatch.setattr(paths, "PROFILE_TIMINGS", tmp_path / "timings")
    (tmp_path / "manifests").mkdir()
    for arm in ("grpo", "gspo", "cispo", "zvf"):
        (tmp_path / "manifests" / f"train-{arm}.json").write_text(json.dumps({"arm": arm}))
    (tmp_path / "policy" / "model").mkdir(parents=True)
    (tmp_path / "policy" / "model" / "model.safetensors").write_bytes(b"weights")
    return tmp_path


def record(place, *arms: str) -> None:
    """Make dvc.lock say that these arms were trained from the manifests that are there."""

    def dep(arm):
        md5 = hashlib.md5((place / "manifests" / f"train-{arm}.json").read_bytes(), usedforsecurity=False).hexdigest()
        return {"path": f"build/manifests/train-{arm}.json", "md5": md5}

    folder = {"path": "results/policy", "hash": "md5", "size": 1}  # a dependency without an md5 of its own
    stages = {f"train@{arm}": {"cmd": "x", "deps": [dep(arm), folder]} for arm in arms}
    (place / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": stages | {"manifest": {"cmd": "y"}}}))


def test_the_evaluation_at_the_start_is_the_base_policys_own_groups():
    groups = pd.DataFrame(
        {
            "query": np.repeat([0, 1], 4),
            "correct": [1.0, 0, 0, 0, 1, 1, 0, 0],
            "response_tokens": [1, 2, 3, 4, 5, 6, 7, 8],
            "finished": [True] * 7 + [False],
        }
    )
    expected = {"samples": 4, "accuracy": 3 / 8, "response_tokens": 4.5, "truncated": 1 / 8}
    assert training.start_evaluation(groups, SETTINGS) == expected
    warm = SETTINGS.evaluation.model_copy(update={"temperature": SETTINGS.engine.temperature + 0.1})
    assert training.start_evaluation(groups, SETTINGS.model_copy(update={"evaluation": warm})) is None


def test_the_lock_tells_which_manifests_have_run(place):
    texts = [json.dumps({"arm": arm}) for arm in ("gspo", "grpo")] + [json.dumps({"arm": "grpo", "steps": 3})]
    assert recorded(texts) == [False] * 3  # nothing has run yet
    record(place, "grpo", "zvf")
    assert recorded(texts) == [False, True, False] and recorded([]) == []


def test_workers_go_on_with_the_next_arms_that_are_out_of_date(place):
    assert list(kept.for_train("gspo", SETTINGS)["later"].data) == ["cispo", "zvf", "grpo"]
    record(place, "cispo")
    assert list(kept.for_train("gspo", SETTINGS)["later"].data) == ["zvf", "grpo"]
    assert list(kept.for_train(ARMS[-1], SETTINGS)["later"].data) == ["grpo", "gspo", "zvf"]


def test_a_fingerprint_is_of_the_manifest_the_weights_and_the_profiles(place, calls):
    def fingerprint(arm: str) -> str:
        training.train(SETTINGS, [arm], policy=place / "policy" / "model", **kept.for_train(arm, SETTINGS))
        [fingerprint] = {run.fingerprint for run in calls[-1][0]}
        return fingerprint

    (place / "manifests" / "train-sgpo.json").write_text(json.dumps({"arm": "sgpo"}))
    plain, profiled = fingerprint("grpo"), fingerprint("sgpo")
    assert plain == fingerprint("grpo") != fingerprint("gspo")
    (place / "profile").mkdir()
    (place / "profile" / "seed-0.parquet").write_bytes(b"a profile")
    assert fingerprint("grpo") == plain and fingerprint("sgpo") != profiled
    (place / "policy" / "model" / "model.safetensors").write_bytes(b"others")
    assert fingerprint("grpo") != plain
    with pytest.raises(FileNotFoundError, match=r"run `python -m repro.pipeline manifest` first"):
        fingerprint("pods")


@pytest.fixture
def calls(monkeypatch):
    """Calls of train_runs, which trains nothing: (the runs that are wanted, those for later)."""
    made = []

    def train_runs(runs, later=(), say=print, watch=None):
        made.append((runs, list(later)))
        logs = {(run.arm, run.seed): Log(steps=[{"seed": run.seed, "step": 0}]) for run in runs}
        for run in runs:
            checkpoints_of(run).finish(logs[run.arm, run.seed])
        return logs

    monkeypatch.setattr(training, "train_runs", train_runs)
    return made


def test_a_stage_trains_the_seeds_of_its_arm_and_offers_the_next_arms(place, calls):
    tables = training.train(SETTINGS, ["gspo"], policy=place / "policy" / "model", **kept.for_train("gspo", SETTINGS))
    [(wanted, later)] = calls
    assert [(run.arm, run.seed) for run in wanted] == [("gspo", seed) for seed in SETTINGS.seeds]
    assert [(run.arm, run.seed) for run in later] == [
        (arm, seed) for arm in ("cispo", "zvf", "grpo") for seed in SETTINGS.seeds_of(arm)
    ]
    assert wanted[0].folder == place / "checkpoints" / "train-gspo" / "seed-0" and not wanted[0].folder.exists()
    assert len({run.fingerprint for run in wanted}) == 1 and len({run.fingerprint for run in (*wanted, *later)}) == 4
    assert tables["steps"]["seed"].tolist() == SETTINGS.seeds and set(tables["steps"]["arm"]) == {"gspo"}
    steps = pd.read_parquet(place / "results" / "train" / "gspo" / "steps.parquet")
    assert steps.equals(tables["steps"].drop(columns="arm"))
    # Later the next stage's own runs have the same fingerprints and folders, or nothing would be taken up.
    training.train(SETTINGS, ["cispo"], policy=place / "policy" / "model", **kept.for_train("cispo", SETTINGS))
    assert calls[1][0][0].fingerprint == later[0].fingerprint and calls[1][0][0].folder == later[0].folder


def test_stage_profile_lets_the_workers_begin_what_is_planned(place, calls, monkeypatch):
    """The runs are those that the arms' stages will ask for: same folders and fingerprints, in the same order."""
    asked = []
    plan = SimpleNamespace(state={"plan": ["profile", "train-zvf", "report-zvf", "train-gspo"]})
    monkeypatch.setattr(kept, "Repro", lambda owner, settings: plan)
    monkeypatch.setattr(training, "shared_events", lambda *given: asked.append(given) or iter([]))
    groups = {"query": [0, 0], "correct": [True, False], "response_tokens": [3, 5], "finished": [True, True]}
    pd.DataFrame(groups).to_parquet(place / "policy" / "rollouts.parquet")
    (place / "policy" / "model" / "config.json").write_text("{}")
    for module in (kept, training):
        monkeypatch.setattr(module, "pipeline_process", lambda: None)
    kept.begin(SETTINGS)
    assert asked == []  # outside a `dvc repro`
    for module in (kept, training):
        monkeypatch.setattr(module, "pipeline_process", lambda: 7)
    kept.begin(SETTINGS)
    [(owner, size, wanted, later)] = asked
    assert (owner, size, wanted) == (7, SETTINGS.engine.workers, [])
    training.train(SETTINGS, ["gspo"], policy=place / "policy" / "model", **kept.for_train("gspo", SETTINGS))
    own = [job.key for job in map(as_job, calls[0][0])]
    assert [job.key for job in later][: len(own)] == own and len(later) == 2 * len(SETTINGS.seeds)


def test_what_is_not_kept_leaves_nothing_behind(place, calls):
    tables = training.train(SETTINGS, ["grpo-again"], policy=place / "policy" / "model")
    [(wanted, later)] = calls
    assert later == [] and [run.seed for run in wanted] == SETTINGS.arms["grpo-again"].seeds
    assert not any((place / "checkpoints").glob("*")) and not any(run.folder.exists() for run in wanted)
    assert tables["steps"]["arm"].tolist() == ["grpo-again"] * len(wanted)


def test_a_stage_before_its_policy_is_one_sentence_and_a_notebook_takes_the_policy_of_the_package(place):
    with pytest.raises(FileNotFoundError, match=r"run `dvc repro policy` first"):
        training.policy_for("results/train/grpo")
    assert training.policy_for() == training.SHIPPED and (training.SHIPPED / "config.json").exists()
    (place / "policy" / "model" / "config.json").write_text("{}")
    assert training.policy_for("results/train/grpo") == training.policy_for() == place / "policy" / "model"


def test_functions_in_the_place_of_names_train_in_worker_processes_as_the_names_would(tmp_path, monkeypatch):
    """One of each part: plan, filter, advantage, sampler, objective."""
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    monkeypatch.setattr(paths, "POLICY", tmp_path / "no policy")
    threshold = 0.5

    def in_turn(queries, rollouts_per_step, rng):
        from repro.methods.plans.uniform import uniform

        return uniform(queries, rollouts_per_step, rng)

    def with_signal(rewards_N, group_N):
        from repro.methods.filters.zero_variance import zero_variance

        return zero_variance(rewards_N, group_N)

    def less_the_mean(rewards_N, group_N):
        from repro.methods.advantages.centred import centred

        return centred(rewards_N, group_N)

    def quarter(rollouts, progress, rng):
        from repro.methods.samplers.d1s_c import d1s_c

        assert 0 <= progress < 1 and threshold == 0.5  # what the function closes over travels with it
        return d1s_c(rollouts, progress, rng)

    def clipped(logprob_N_T, old_logprob_N_T, advantages_N, mask_N_T):
        from repro.methods.objectives.cispo import cispo

        return cispo(logprob_N_T, old_logprob_N_T, advantages_N, mask_N_T)

    named = {"filter": "zero_variance", "advantage": "centred", "samplers": ["d1s_c"], "objective": "cispo"}
    own = {"plan": in_turn, "filter": with_signal, "advantage": less_the_mean, "samplers": [quarter]}
    settings = load(scale="smoke").with_arms({"named": named, "own": {**own, "objective": clipped}, "grpo": "grpo"})
    steps = settings.engine.model_copy(update={"steps": 2})
    tables = training.train(settings.model_copy(update={"engine": steps, "seeds": [0]}), say=lambda line: None)
    for name in ("steps", "evaluations", "questions", "selection"):
        frames = {arm: table.drop(columns="arm").reset_index(drop=True) for arm, table in tables[name].groupby("arm")}
        pd.testing.assert_frame_equal(frames["named"], frames["own"], check_exact=True)
    assert not frames["own"].equals(frames["grpo"]) and len(tables["steps"]) == 6
    of_own = tables["steps"].query("arm == 'own'")
    assert of_own["selected_rollouts"].max() < settings.engine.rollouts_per_step


@pytest.mark.parametrize(
    ("arms", "sentence"),
    [
        ({}, "no arm was given"),
        ({"mine": "grpoo"}, "there is no arm 'grpoo' in params.yaml.*grpo"),
        ({"mine": {"sampler": []}}, "arm mine: sampler: Extra inputs"),
        ({"mine": {"samplers": [lambda rollouts, progress, rng: None]}}, "returned NoneType"),
        ({"mine": {"samplers": [lambda rollouts, progress, rng: 1 / 0]}}, "ZeroDivisionError"),
        ({"mine": {"objective": [1]}}, "arm mine: objective"),
    ],
)
def test_a_wrong_arm_in_a_cell_is_one_sentence_before_anything_trains(place, calls, arms, sentence):
    with pytest.raises(SettingsError, match=sentence):
        training.train(SETTINGS.with_arms(arms), policy=place / "policy" / "model")
    assert calls == []
