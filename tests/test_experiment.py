"""A run's place: the evaluation it starts from, what is worth doing ahead, what is resumed and what is let go."""

import hashlib
import json

import numpy as np
import pandas as pd
import pytest
import yaml

from repro import paths
from repro import training as experiment
from repro.engine.log import Log
from repro.engine.profile import hash_policy
from repro.pipeline.lock import recorded
from repro.settings import load

SETTINGS = load(scale="smoke")
ARMS = list(SETTINGS.arms)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A project without results: manifests of four arms, a policy of one weight file."""
    for name, folder in {"ROOT": "", "MANIFESTS": "manifests", "CHECKPOINTS": "checkpoints", "BUILD": "build"}.items():
        monkeypatch.setattr(paths, name, tmp_path / folder)
    monkeypatch.setattr(paths, "POLICY", tmp_path / "policy")
    monkeypatch.setattr(paths, "TIMINGS", tmp_path / "timings")
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
    assert experiment.start_evaluation(groups, SETTINGS) == expected
    warm = SETTINGS.evaluation.model_copy(update={"temperature": SETTINGS.engine.temperature + 0.1})
    assert experiment.start_evaluation(groups, SETTINGS.model_copy(update={"evaluation": warm})) is None


def test_the_lock_tells_which_manifests_have_run(place):
    texts = [json.dumps({"arm": arm}) for arm in ("gspo", "grpo")] + [json.dumps({"arm": "grpo", "steps": 3})]
    assert recorded(texts) == [False] * 3  # nothing has run yet
    record(place, "grpo", "zvf")
    assert recorded(texts) == [False, True, False] and recorded([]) == []


def test_work_ahead_begins_with_the_next_arm_and_leaves_out_what_is_up_to_date(place):
    assert list(experiment._out_of_date("gspo", SETTINGS, "weights")) == ["cispo", "zvf", "grpo"]
    record(place, "cispo")
    assert list(experiment._out_of_date("gspo", SETTINGS, "weights")) == ["zvf", "grpo"]
    assert list(experiment._out_of_date(ARMS[-1], SETTINGS, "weights")) == ["grpo", "gspo", "zvf"]


def test_a_fingerprint_is_of_the_manifest_of_the_weights_and_of_the_profiles(place, monkeypatch):
    model = place / "policy" / "model"

    def fingerprint(arm: str, manifest: str) -> str:
        own = {arm: experiment._fingerprint(f"train-{manifest}", hash_policy(model))}
        [found] = {run.fingerprint for run in experiment._runs(own, SETTINGS, model, None, place)}
        return found

    monkeypatch.setattr(paths, "PROFILE", place / "profile")
    monkeypatch.setattr(paths, "PROFILE_TIMINGS", place / "timings")
    plain, profiled = fingerprint("grpo", "grpo"), fingerprint("sgpo", "grpo")
    assert plain == fingerprint("grpo", "grpo") != fingerprint("grpo", "gspo")
    (place / "profile").mkdir()
    (place / "profile" / "seed-0.parquet").write_bytes(b"a profile")
    assert fingerprint("grpo", "grpo") == plain and fingerprint("sgpo", "grpo") != profiled
    (model / "model.safetensors").write_bytes(b"others")
    assert fingerprint("grpo", "grpo") != plain
    with pytest.raises(FileNotFoundError, match=r"run `python -m repro.pipeline manifest` first"):
        fingerprint("grpo", "pods")


@pytest.fixture
def calls(monkeypatch):
    """Calls of train_runs, which trains nothing: (the runs that are wanted, those ahead)."""
    made = []

    def train_runs(runs, ahead=(), say=print):
        made.append((runs, list(ahead)))
        logs = {(run.arm, run.seed): Log(steps=[{"seed": run.seed, "step": 0, "arm": run.arm}]) for run in runs}
        for run in runs:
            run.checkpoints.finish(logs[run.arm, run.seed])
        return logs

    monkeypatch.setattr(experiment, "train_runs", train_runs)
    return made


def test_an_arm_that_is_kept_trains_its_seeds_and_offers_the_next_arms(place, calls):
    output = place / "results" / "gspo"
    tables = experiment.train_arm("gspo", SETTINGS, place / "policy" / "model", str(output))
    [(wanted, ahead)] = calls
    assert [(run.arm, run.seed) for run in wanted] == [("gspo", seed) for seed in SETTINGS.seeds]
    assert [(run.arm, run.seed) for run in ahead] == [
        (arm, seed) for arm in ("cispo", "zvf", "grpo") for seed in SETTINGS.seeds_of(arm)
    ]
    assert wanted[0].folder == place / "checkpoints" / "train-gspo" / "seed-0" and not wanted[0].folder.exists()
    assert ahead[-1].folder == place / "checkpoints" / "train-grpo" / f"seed-{SETTINGS.seeds[-1]}"
    assert len({run.fingerprint for run in wanted}) == 1 and len({run.fingerprint for run in (*wanted, *ahead)}) == 4
    assert tables["steps"]["seed"].tolist() == SETTINGS.seeds
    assert pd.read_parquet(output / "steps.parquet").equals(tables["steps"])
    # Later the ahead run's fingerprint is the wanted run's, or nothing would be taken up.
    experiment.train_arm("cispo", SETTINGS, place / "policy" / "model", str(place / "results" / "cispo"))
    assert calls[1][0][0].fingerprint == ahead[0].fingerprint and calls[1][0][0].folder == ahead[0].folder


def test_an_arm_that_is_not_kept_works_for_itself_alone_and_leaves_nothing(place, calls):
    tables = experiment.train_arm("grpo-again", SETTINGS, place / "policy" / "model", None)
    [(wanted, ahead)] = calls
    assert ahead == [] and [run.seed for run in wanted] == SETTINGS.arms["grpo-again"].seeds
    assert not any((place / "checkpoints").glob("*")) and not any(run.folder.exists() for run in wanted)
    assert tables["steps"]["arm"].tolist() == ["grpo-again"] * 6


def test_a_regime_trains_its_arms_and_seeds_in_one_pool_and_keeps_them_apart(place, calls):
    (place / "manifests" / "regime-few-silent.json").write_text("{}")
    output = place / "results" / "few-silent"
    tables = experiment.train_regime("few-silent", SETTINGS, place / "policy" / "model", str(output))
    [(wanted, ahead)] = calls
    regimes = SETTINGS.regimes
    assert [(run.arm, run.seed) for run in wanted] == [(arm, seed) for arm in regimes.arms for seed in regimes.seeds]
    assert ahead == [] and list(tables) == regimes.arms
    assert all(run.settings == SETTINGS.with_mix("few-silent") for run in wanted)
    assert wanted[0].folder.parent == place / "checkpoints" / "regime-few-silent" / "train-grpo"
    for arm in regimes.arms:
        steps = pd.read_parquet(output / arm / "steps.parquet")
        assert steps["arm"].tolist() == [arm] * len(regimes.seeds)
        assert (place / "timings" / "regimes" / "few-silent" / arm / "seconds.parquet").exists()


def test_a_stage_before_its_policy_is_one_sentence(place):
    with pytest.raises(FileNotFoundError, match=r"run `dvc repro policy` first"):
        experiment.policy_for(SETTINGS, "results/train/grpo")
    (place / "policy" / "model" / "config.json").write_text("{}")
    assert experiment.policy_for(SETTINGS, "results/train/grpo") == place / "policy" / "model"
