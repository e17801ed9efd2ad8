"""Runs at a paper scale: the stage, what is asked before hours are spent, the profile, the tables. No GPU is needed."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from repro import paths, training
from repro import settings as settings_module
from repro.engine.backends.load import fetch
from repro.engine.profile import Profile
from repro.experiments.profile.cost import profile_ledger
from repro.files import write_parquet
from repro.paper_scale import SCALES, Value
from repro.paper_scale import run as runs_module
from repro.paper_scale.__main__ import main
from repro.paper_scale.at_scale import settings_at
from repro.paper_scale.overrides import folder_of
from repro.paper_scale.prepare import prepare, tell_difference, training_rows
from repro.paper_scale.run import finished, sampling, train_arm
from repro.pipeline.manifest import manifest
from repro.pipeline.stage import all_stages, stage
from repro.policy.flops import FlopCounter
from repro.settings import SettingsError
from repro.verl import ready
from repro.verl.profile import PART, profile_of
from repro.verl.ready import NotReady
from repro.verl.run import PROFILE, RunOnVerl

NAME = "paper-qwen2-5-math-1-5b-instruct"
SETTINGS = settings_module.load(scale=NAME)


def test_the_scale_alone_sends_training_to_verl(monkeypatch):
    """Whoever asks for runs at such a scale gets verl's; a page depends on the scale's values and the arm there."""
    tables = {"evaluations": pd.DataFrame({"seed": [0], "accuracy": [0.5]})}
    monkeypatch.setattr(
        runs_module, "train_arm", lambda arm, settings: {name: table.copy() for name, table in tables.items()}
    )
    found = training.train(SETTINGS, ["cost-aware", "grpo"], tables=["evaluations"])["evaluations"]
    assert found["arm"].tolist() == ["cost-aware", "grpo"]
    cpu = settings_module.load(scale="cpu")
    assert [entry.name for entry in all_stages(SETTINGS)] == [entry.name for entry in all_stages(cpu)]
    own, elsewhere = (manifest(stage("report", each, "cost-aware"), each)["runs"] for each in (SETTINGS, cpu))
    assert set(own) == set(elsewhere) == {"grpo", "cost-aware"} and own["grpo"] != elsewhere["grpo"]


def test_every_scale_of_the_papers_can_be_named_in_params():
    for name, scale in SCALES.items():
        assert settings_at(scale, settings_module.load(scale=name)).scale == name


def test_without_a_gpu_the_notebooks_function_says_so(tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ready, "gpus_here", lambda: 0)
    unfinished = r"^seed 0 of cost-aware is not finished in .*cost-aware \(copy .* to collect it\), and .* needs GPUs"
    with pytest.raises(NotReady, match=unfinished + r".*`python -m repro\.verl --arm cost-aware` trains the small"):
        train_arm("cost-aware", SETTINGS, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_what_is_missing_is_named_before_anything_is_loaded(tmp_path, monkeypatch, capsys):
    scale = SCALES[NAME]
    monkeypatch.setenv("RAY_ADDRESS", "http://head:8265")
    with pytest.raises(NotReady, match="the dashboard's"):
        ready.require_machine(scale.name, "grpo")
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setattr(ready, "gpus_here", lambda: 8)
    monkeypatch.setattr(ready, "require_verl", lambda: None)
    monkeypatch.setattr(ready, "require_plugin", lambda: None)
    monkeypatch.setattr(ready, "GPU_PACKAGES", ("numpy", "no_such_engine"))
    with pytest.raises(NotReady, match="needs no_such_engine, not installed here"):
        ready.require_machine(scale.name, "grpo")
    attention = "actor_rollout_ref.model.override_config.attn_implementation="
    monkeypatch.setattr(ready, "GPU_PACKAGES", ("numpy", "flash_attn"))
    with pytest.raises(NotReady, match=rf"needs flash_attn, .* without flash-attn: \+{attention}sdpa"):
        ready.require_machine(scale.name, "grpo", [f"+{attention}flash_attention_2"])
    ready.require_machine(scale.name, "grpo", [f"+{attention}sdpa"])
    monkeypatch.setattr(ready, "GPU_PACKAGES", ())
    assert main(["run", NAME, "grpo", "--data", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "lacks dapo-math-17k.parquet, aime-1983-2024.parquet" in told
    assert "`python -m repro.data prepare dapo-math-17k aime-1983-2024 amc23 math500 gsm8k --out" in told
    assert "--keep-evaluated" in told and "--prompt plain" in told
    with pytest.raises(NotReady, match=r"no-such-folder is not available"):
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        ready.local_model("no-one/no-such-folder")


@pytest.mark.verl  # for ray
def test_ray_has_a_cluster_of_its_own_unless_one_is_named(monkeypatch):
    monkeypatch.setattr(ready, "gpus_here", lambda: 4)
    for none in ("", None):
        monkeypatch.setenv("RAY_ADDRESS", none) if none is not None else monkeypatch.delenv("RAY_ADDRESS")
        assert ready.own_cluster() == {"address": "local", "num_gpus": 4} and ready.gpus_at_hand() == (1, 4)
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert ready.own_cluster() == {}
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(NotReady, match="no Ray cluster answers at 127"):
        ready.gpus_at_hand()


def small_scale(**changed):
    """Twelve prompts, responses of eight tokens."""
    sizes = {"train_batch": 4, "minibatch": 2, "train_queries": 12, "epochs": 2, "max_response_tokens": 8, **changed}
    return SCALES[NAME].model_copy(
        update={name: Value(value=value, ours="small enough to test") for name, value in sizes.items()}
    )


def prompts(folder: Path) -> list[dict]:
    rows = [
        {
            "data_source": "dapo-math-17k",
            "prompt": [{"role": "user", "content": "1 + " * n + "1?"}],
            "reward_model": {"style": "rule", "ground_truth": str(n + 1)},
            "extra_info": {"index": n, "id": f"q-{n}", "question": ""},
        }
        for n in range(12)
    ]
    write_parquet(pd.DataFrame(rows), folder / "dapo-math-17k.parquet")
    return training_rows(small_scale(), folder)


def test_a_prompt_that_is_too_long_is_left_out(tmp_path, capsys):
    from transformers import AutoTokenizer

    prompts(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(fetch("tiny"))  # a token a byte
    limit = len("1 + 1 + 1?\n\n")  # what is added where a tokenizer has no chat template
    kept = training_rows(small_scale(max_prompt_tokens=limit), tmp_path, tokenizer)
    assert [row["extra_info"]["index"] for row in kept] == [0, 1, 2]
    assert "9 of 12 prompts are longer than 12 tokens and left out" in capsys.readouterr().out
    tell_difference(small_scale(), 12)
    tell_difference(small_scale(), 11)
    assert capsys.readouterr().out.startswith("dapo-math-17k: 11 questions are prepared, and the 6 steps of")


@pytest.mark.verl  # for math-verify
def test_the_profile_is_measured_in_parts_once_for_all_and_planned_from(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("repro.verl.profile.PART", 5)
    monkeypatch.setattr("repro.verl.judged.VERIFIERS", 1)
    model, rows, scale, folder = fetch("tiny"), prompts(tmp_path), small_scale(), tmp_path / "_profile"
    how = {"engine": "transformers", "dtype": "float32"}
    drawn = sampling(scale)
    assert profile_of(drawn, model, rows, 2, folder, **how) == folder
    first = Profile.load(folder, PROFILE)
    assert (first.samples, len(first.prompt_tokens_Q), first.source.max_new_tokens) == (2, 12, 8)
    assert first.prompt_tokens_Q.tolist() == [len("1 + " * n + "1?") for n in range(12)]
    assert "3 of 3 parts" in capsys.readouterr().out

    profile_of(drawn, model, rows, 2, folder, **how)
    assert capsys.readouterr().out == ""  # nothing is left to do
    lost = folder / "parts/samples-0-2/prompts-5-10.parquet"
    lost.unlink()
    profile_of(drawn, model, rows, 2, folder, **how)  # cut short, then taken up
    assert "1 of 3 parts" in capsys.readouterr().out
    again = Profile.load(folder, PROFILE)
    assert (again.response_tokens_Q_K == first.response_tokens_Q_K).all()
    profile_of(drawn, model, rows, 3, folder, **how)  # another arm's K
    more = Profile.load(folder, PROFILE)
    assert (more.response_tokens_Q_K[:, :2] == first.response_tokens_Q_K).all() and more.samples == 3
    with pytest.raises(SettingsError, match=r"made with other settings \(temperature: 1\.0 → 0\.5\): name another"):
        profile_of(sampling(small_scale(temperature=0.5)), model, rows, 2, folder, **how)

    n_groups = prepare(scale, SETTINGS, "sgpo-filter", tmp_path / "run", rows, profile=_solved(more, tmp_path))
    plan = pd.read_parquet(tmp_path / "run" / "plan.parquet")
    assert len(plan) == n_groups and {extra["index"] for extra in plan["extra_info"]} <= set(range(6))
    copied = Profile.load(tmp_path / "run" / "profile", PROFILE)
    ledger = profile_ledger(copied.first(8), FlopCounter(10, 1, 4))  # what the trainer charges
    assert (ledger.rollouts, ledger.profile_tokens) == (96, copied.response_tokens_Q_K[:, :8].sum())


def _solved(profile: Profile, folder: Path) -> Path:
    """The same with eight samples, the first six queries sometimes solved, the others always."""
    tokens_Q_K = np.tile(profile.response_tokens_Q_K[:, :1], 8)
    correct_Q_K = np.arange(8) < np.where(np.arange(12) < 6, 4, 8)[:, None]
    Profile(profile.source, correct_Q_K, tokens_Q_K, profile.prompt_tokens_Q).save(folder / "solved", PROFILE)
    return folder / "solved"


@pytest.mark.verl
def test_one_call_profiles_plans_and_starts_verl_with_what_the_scale_says(tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("REPRO_ROOT", str(paths.ROOT))
    monkeypatch.setattr(ready, "gpus_here", lambda: 1)
    monkeypatch.setattr("repro.verl.judged.VERIFIERS", 1)
    monkeypatch.setattr(ready, "GPU_PACKAGES", ())
    monkeypatch.setattr(ready, "local_model", lambda name: fetch("tiny"))
    how = {"engine": "transformers", "dtype": "float32"}
    monkeypatch.setattr(runs_module, "profile_of", partial(profile_of, **how))
    started = []
    monkeypatch.setattr("repro.verl.start.run", started.append)
    prompts(tmp_path)
    for name in SCALES[NAME].validation_data.value:
        write_parquet(pd.DataFrame(prompts(tmp_path)[:2]), tmp_path / f"{name}.parquet")
    where = {"data": tmp_path, "runs": tmp_path / "runs"}
    folder = runs_module.run(small_scale(), SETTINGS, "sgpo", **where, more=["trainer.save_freq=5"])
    (config,) = started
    assert (config.trainer.nnodes, config.trainer.n_gpus_per_node, config.trainer.save_freq) == (1, 1, 5)
    assert (config.ray_kwargs.ray_init.address, config.ray_kwargs.ray_init.num_gpus) == ("local", 1)
    assert str(paths.ROOT) == config.ray_kwargs.ray_init.runtime_env.env_vars.REPRO_ROOT
    run = RunOnVerl.of(config)
    assert (run.arm, run.profile.samples, len(run.profile.prompt_tokens_Q)) == ("sgpo", 8, 12)
    assert Path(config.data.train_files) == folder / "plan.parquet"
    assert (tmp_path / "runs" / NAME / "_profile" / "profile.parquet").exists()
    with pytest.raises(SettingsError, match=r"^data\.train_files=a: .* --data names the folder"):
        runs_module.run(small_scale(), SETTINGS, "sgpo", **where, more=["data.train_files=a"])
    with pytest.raises(SettingsError, match=r"test_freq=20 is no multiple of trainer\.save_freq=50, so the best"):
        runs_module.run(small_scale(), SETTINGS, "sgpo", **where, more=["trainer.save_freq=50"])
    _solved(run.profile, tmp_path)
    with pytest.raises(SettingsError, match=r"\(the profile: \w{16} → \w{16}\): restore them"):
        runs_module.run(
            small_scale(), SETTINGS, "sgpo", **where, more=["trainer.save_freq=5"], profile=tmp_path / "solved"
        )
    write_parquet(pd.DataFrame(prompts(tmp_path)[:3]), tmp_path / "gsm8k.parquet")
    with pytest.raises(SettingsError, match=r"\(the rows of the data: \w{16} → \w{16}\)"):
        runs_module.run(small_scale(), SETTINGS, "sgpo", **where, more=["trainer.save_freq=5"])
    write_parquet(evaluations(0, small_scale().steps), folder / "tables/evaluations.parquet")
    assert runs_module.run(small_scale(), SETTINGS, "sgpo", **where) == folder and len(started) == 1


def evaluations(seed: int, steps: int) -> pd.DataFrame:
    rows = [{"seed": seed, "step": step, "accuracy": 0.5, "diverged": False} for step in (0, steps)]
    return pd.DataFrame(rows)


def test_finished_runs_become_the_arms_tables_without_a_gpu(tmp_path):
    settings = SETTINGS.model_copy(update={"seeds": [0, 1]})
    scale, own = SCALES[NAME], settings_at(SCALES[NAME], settings)
    for seed in (0, 1):
        folder = folder_of(scale, "grpo", seed, tmp_path / "runs")
        write_parquet(evaluations(seed, own.steps_of("grpo")), folder / "tables/evaluations.parquet")
        write_parquet(pd.DataFrame({"seed": [seed], "seconds": [1.0]}), folder / "tables/seconds.parquet")
        (folder / "settings.json").write_text(own.model_dump_json())
    tables = train_arm("grpo", settings, tmp_path / "runs")
    assert tables["evaluations"]["seed"].tolist() == [0, 0, 1, 1] and tables["seconds"]["seconds"].tolist() == [
        1.0,
        1.0,
    ]


def test_a_run_is_finished_at_its_last_step_or_where_it_diverged(tmp_path):
    assert not finished(tmp_path, 40)
    write_parquet(evaluations(0, 20), tmp_path / "tables/evaluations.parquet")
    assert finished(tmp_path, 20) and not finished(tmp_path, 40)
    write_parquet(evaluations(0, 20).assign(diverged=[False, True]), tmp_path / "tables/evaluations.parquet")
    assert finished(tmp_path, 40)


def test_launch_scripts_find_their_repository_from_anywhere(tmp_path):
    scripts = sorted((paths.ROOT / "launch").glob("*.sh"))
    assert {script.name for script in scripts} >= {"run.sh", "slurm.sh", "ray_submit.sh"}
    for script in scripts:
        subprocess.run(["bash", "-n", str(script)], check=True)
    shell = {**os.environ, "RAY_ADDRESS": "http://127.0.0.1:9", "SLURM_SUBMIT_DIR": str(tmp_path)}
    shell |= {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "here"}
    for script, arguments, sentence in (
        ("run", [], "which arm"),
        ("ray_submit", [NAME, "grpoo"], "did you mean 'grpo'"),
        ("ray_submit", [NAME, "grpo"], "no Ray dashboard answers at http://127.0.0.1:9"),
        ("slurm", [NAME, "grpo"], f"{tmp_path} is not the root"),
    ):
        command = [str(paths.ROOT / f"launch/{script}.sh"), *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=shell, capture_output=True, text=True)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1) and sentence in done.stderr, done.stderr
    here = {name: value for name, value in os.environ.items() if name not in ("REPRO_ROOT", "RAY_ADDRESS")}
    here |= {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": ""}
    command = [str(paths.ROOT / "launch/run.sh"), NAME, "grpo", "--seed", "1", "trainer.save_freq=5"]
    done = subprocess.run(command, cwd=tmp_path, env=here, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    lacks = f"{NAME} needs GPUs" if importlib.util.find_spec("verl") else "this runs on verl, which is not installed"
    assert f"repro: {lacks}" in done.stderr


@pytest.mark.parametrize(("seconds", "status", "requeued"), [(4, 0, True), (0, 3, False)])
def test_a_job_at_its_time_limit_is_requeued_and_one_that_ended_is_not(tmp_path, seconds, status, requeued):
    (tmp_path / "scontrol").write_text('#!/bin/sh\necho "$@" > "$(dirname "$0")/asked"\n')
    (tmp_path / "scontrol").chmod(0o755)
    script = f"set -euo pipefail; source {paths.ROOT}/launch/requeue.sh; echo ready; until_limit sh -c "
    script += f"'sleep {seconds}; exit {status}'"
    shell = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    job = subprocess.Popen(["bash", "-c", script], env=shell, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if requeued:
        assert job.stdout.readline() == "ready\n"
        time.sleep(0.5)  # until the trap is set
        job.send_signal(signal.SIGUSR1)
    told = job.communicate(timeout=60)[1]
    assert job.returncode == status and ("job 7 is requeued" in told) == requeued == (tmp_path / "asked").exists()


def test_parts_are_large_enough_for_an_engine_to_fill_its_slots():
    assert SETTINGS.planner.slots <= 2 * PART
