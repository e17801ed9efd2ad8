"""One front door: every documented command, what is asked before hours are spent, the profile, the tables of an arm's
seeds. No GPU is needed."""

import argparse
import importlib
import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from repro import paths, training
from repro import settings as settings_module
from repro.engine.backends.load import fetch
from repro.experiments.profile.cost import profile_ledger
from repro.files import write_parquet
from repro.pipeline.manifest import manifest
from repro.pipeline.stage import all_stages, stage
from repro.policy.flops import FlopCounter
from repro.protocol.profile import Profile
from repro.settings import SettingsError
from repro.verl import launch, ready, seeds
from repro.verl.__main__ import main
from repro.verl.papers import SCALES
from repro.verl.profile import Sampling, profile_of
from repro.verl.questions import short_enough
from repro.verl.ready import NotReady
from repro.verl.run import PROFILE, RunOnVerl, finished
from repro.verl.seeds import finished_tables, settings_at

NAME = "paper-qwen2-5-math-1-5b-instruct"
SETTINGS = settings_module.load(scale=NAME)
PAGES = ["README.md", "docs/cluster.md", "configs/launch/README.md", "docs/data.md", "docs/study.md"]
COMMAND = re.compile(r"(?:python -m repro\.verl|configs/launch/(?:run|slurm|ray_submit)\.sh) (--[^`#\n|]*)")


def documented() -> list[str]:
    """The options of every command that trains, as the pages have them."""
    found = [match.strip() for page in PAGES for match in COMMAND.findall((paths.ROOT / page).read_text())]
    return list(dict.fromkeys(command for command in found if "--arm" in command))


class Parsed(BaseException):
    """Arguments that a command takes."""


def test_every_documented_command_parses(monkeypatch):
    parse = argparse.ArgumentParser.parse_args

    def parsed(parser, arguments=None, namespace=None):
        parse(parser, arguments, namespace)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
    folders = (paths.ROOT, paths.ROOT / "docs", paths.ROOT / "configs/launch")
    texts = [path.read_text() for folder in folders for path in folder.glob("*.md") if path.name != "LOG.md"]
    found = {match.strip() for text in texts for match in re.findall(r"python -m (repro\.[^`#\n|─,]*)", text)}
    for command in sorted(found):
        module, *words = shlex.split(command.rstrip("\\ "))
        of_package = importlib.util.find_spec(module).submodule_search_locations is not None
        name = f"{module}.__main__" if of_package else module
        main_of = importlib.import_module(name).main
        if not words:  # a sentence that names the command
            continue
        monkeypatch.setattr(sys, "argv", [module, *(word for word in words if "…" not in word)])
        with pytest.raises(Parsed):
            main_of()
    assert len(found) > 25


@pytest.mark.verl
@pytest.mark.parametrize("command", documented())
def test_every_documented_command_composes(command, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ready, "gpus_here", lambda: 0)
    lines = "".join(f'{{"prompt": "What is {n} + 1?", "answer": {n + 1}}}\n' for n in range(900))
    (tmp_path / "mine.jsonl").write_text(lines)
    names = {"MODEL": str(fetch("tiny")), "ARM": "grpo", "NAME": "grpo", "PRESET": NAME}
    names |= dict.fromkeys(["mine.jsonl", "train.parquet"], str(tmp_path / "mine.jsonl"))
    words = [names.get(word, word) for word in shlex.split(command) if word != "--measure"]
    main([*words, *([] if "--check" in words else ["--check"]), "--output", str(tmp_path / "runs")])
    arm = words[words.index("--arm") + 1]
    assert f"with arm {arm}, on " in capsys.readouterr().out and not (tmp_path / "runs").exists()


def test_the_presets_are_listed_with_their_values(capsys):
    main(["--presets"])
    told = capsys.readouterr().out
    assert all(name in told for name in (*SCALES, "study", "own", "gpu-smoke"))
    main(["--presets", "paper-qwen3-8b"])
    told = capsys.readouterr().out
    assert "group_size" in told and "Table 4" in told
    main(["--presets", "gpu-smoke"])
    assert "data.train_batch_size" in capsys.readouterr().out
    with pytest.raises(SettingsError, match="did you mean 'paper-qwen3-8b'"):
        main(["--presets", "paper-qwen3-8"])
    with pytest.raises(SettingsError, match="did you mean 'grpo'"):  # before verl or a GPU is looked for
        main(["--preset", NAME, "--arm", "grpoo"])


def test_the_scale_alone_sends_training_to_verl(monkeypatch):
    """Whoever asks for runs at such a scale gets verl's; a page depends on the scale's values and the arm there."""
    tables = {"evaluations": pd.DataFrame({"seed": [0], "accuracy": [0.5]})}
    monkeypatch.setattr(
        seeds, "finished_tables", lambda arm, settings: {name: table.copy() for name, table in tables.items()}
    )
    found = training.train(SETTINGS, ["cost-aware", "grpo"], tables=["evaluations"])["evaluations"]
    assert found["arm"].tolist() == ["cost-aware", "grpo"]
    cpu = settings_module.load(scale="cpu")
    assert [entry.name for entry in all_stages(SETTINGS)] == [entry.name for entry in all_stages(cpu)]
    own, elsewhere = (manifest(stage("report", each, "cost-aware"), each)["runs"] for each in (SETTINGS, cpu))
    assert set(own) == set(elsewhere) == {"grpo", "cost-aware"} and own["grpo"] != elsewhere["grpo"]


def test_runs_that_are_not_finished_are_named_with_the_command_that_trains_them(tmp_path):
    command = f"`configs/launch/run.sh --arm cost-aware --preset {NAME} --seed 0`"
    with pytest.raises(NotReady, match=rf"^seeds 0 of cost-aware are not finished in .*cost-aware: .*{command}"):
        finished_tables("cost-aware", SETTINGS, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_what_is_missing_is_named_before_anything_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "http://head:8265")
    with pytest.raises(NotReady, match="the dashboard's"):
        ready.require_machine(NAME, "grpo")
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setattr(ready, "gpus_here", lambda: 8)
    monkeypatch.setattr(ready, "require_verl", lambda: None)
    monkeypatch.setattr(ready, "require_plugin", lambda: None)
    monkeypatch.setattr(ready, "GPU_PACKAGES", ("numpy", "no_such_engine"))
    with pytest.raises(NotReady, match="needs no_such_engine, not installed here"):
        ready.require_machine(NAME, "grpo")
    attention = "actor_rollout_ref.model.override_config.attn_implementation="
    monkeypatch.setattr(ready, "GPU_PACKAGES", ("numpy",))
    with pytest.raises(NotReady, match="needs flash_attn, not installed here"):
        ready.require_machine(NAME, "grpo", [f"{attention}flash_attention_2"])
    ready.require_machine(NAME, "grpo", [f"{attention}flash_attention_2", f"{attention}sdpa"])
    ready.require_machine(NAME, "grpo")
    monkeypatch.setattr(ready, "GPU_PACKAGES", ())
    monkeypatch.setattr("repro.verl.__main__.require_verl", lambda: None)
    with pytest.raises(NotReady) as no:
        main(["--preset", NAME, "--arm", "grpo", "--data", str(tmp_path)])
    told = str(no.value)
    assert "lacks dapo-math-17k.parquet, aime-1983-2024.parquet" in told
    assert "`python -m repro.data prepare dapo-math-17k aime-1983-2024 amc23 math500 gsm8k --out" in told
    assert "--keep-evaluated" in told and "--prompt plain" in told


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
    import ray

    def locked(**_):
        raise ray.exceptions.AuthenticationError("no token")

    monkeypatch.setattr(ready, "_knock", lambda address: None)
    monkeypatch.setattr("ray.init", locked)
    with pytest.raises(NotReady, match="wants its token: give RAY_AUTH_TOKEN the one"):
        ready.gpus_at_hand()


SMALL = ("data.train_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=2", "data.max_response_length=8")
SHORT = Sampling(1.0, 1.0, 1024, 8)


def prompts(folder: Path) -> list[dict]:
    """Twelve prompts, which every data set of the scale has."""
    rows = [
        {
            "data_source": "dapo-math-17k",
            "prompt": [{"role": "user", "content": "1 + " * n + "1?"}],
            "reward_model": {"style": "rule", "ground_truth": str(n + 1)},
            "extra_info": {"index": n, "id": f"q-{n}", "question": ""},
        }
        for n in range(12)
    ]
    for name in SCALES[NAME].data_sets:
        write_parquet(pd.DataFrame(rows), folder / f"{name}.parquet")
    return rows


def test_a_prompt_that_is_too_long_is_left_out(tmp_path, capsys):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(fetch("tiny"))  # a token a byte
    limit = len("1 + 1 + 1?\n\n")  # what is added where a tokenizer has no chat template
    kept = short_enough(prompts(tmp_path), tokenizer, limit, {})
    assert [row["extra_info"]["index"] for row in kept] == [0, 1, 2]
    assert "9 of 12 prompts are longer than 12 tokens and left out" in capsys.readouterr().out


@pytest.mark.verl  # for math-verify
def test_the_profile_is_measured_in_parts_once_for_all(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("repro.verl.profile.PART", 5)
    monkeypatch.setattr("repro.verl.judged.VERIFIERS", 1)
    model, rows, folder = fetch("tiny"), prompts(tmp_path), tmp_path / "_profile"
    how = {"engine": "transformers", "dtype": "float32"}
    assert profile_of(SHORT, model, rows, 2, folder, **how) == folder
    first = Profile.load(folder, PROFILE)
    assert (first.samples, len(first.prompt_tokens_Q), first.source.max_new_tokens) == (2, 12, 8)
    assert first.prompt_tokens_Q.tolist() == [len("1 + " * n + "1?") for n in range(12)]
    assert "3 of 3 parts" in capsys.readouterr().out

    profile_of(SHORT, model, rows, 2, folder, **how)
    assert capsys.readouterr().out == ""  # nothing is left to do
    lost = folder / "parts/samples-0-2/prompts-5-10.parquet"
    lost.unlink()
    profile_of(SHORT, model, rows, 2, folder, **how)  # cut short, then taken up
    assert "1 of 3 parts" in capsys.readouterr().out
    again = Profile.load(folder, PROFILE)
    assert (again.response_tokens_Q_K == first.response_tokens_Q_K).all()
    profile_of(SHORT, model, rows, 3, folder, **how)  # another arm's K
    more = Profile.load(folder, PROFILE)
    assert (more.response_tokens_Q_K[:, :2] == first.response_tokens_Q_K).all() and more.samples == 3
    with pytest.raises(SettingsError, match=r"made with other settings \(temperature: 1\.0 → 0\.5\): name another"):
        profile_of(Sampling(0.5, 1.0, 1024, 8), model, rows, 2, folder, **how)
    ledger = profile_ledger(more.first(3), FlopCounter(10, 1, 4))  # what the trainer charges
    assert (ledger.rollouts, ledger.profile_tokens) == (36, more.response_tokens_Q_K.sum())


def _solved(profile: Profile, folder: Path) -> Path:
    """The same with eight samples, the first six queries sometimes solved, the others always."""
    tokens_Q_K = np.tile(profile.response_tokens_Q_K[:, :1], 8)
    correct_Q_K = np.arange(8) < np.where(np.arange(12) < 6, 4, 8)[:, None]
    Profile(profile.source, correct_Q_K, tokens_Q_K, profile.prompt_tokens_Q).save(folder / "solved", PROFILE)
    return folder / "solved"


@pytest.mark.verl
def test_one_call_profiles_plans_and_starts_verl_with_what_the_preset_says(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("REPRO_ROOT", str(paths.ROOT))
    monkeypatch.setattr(ready, "gpus_here", lambda: 1)
    monkeypatch.setattr("repro.verl.judged.VERIFIERS", 1)
    monkeypatch.setattr(ready, "GPU_PACKAGES", ())
    monkeypatch.setattr(launch, "fetch", lambda name: fetch("tiny"))
    monkeypatch.setattr(launch, "_require_model", lambda run, tokenizer: None)  # the tiny model's limit is lower
    monkeypatch.setattr(launch, "why_not_vllm", lambda: "it is not asked here")

    def measured(*told, **how):
        return profile_of(*told, **{**how, "dtype": "float32"})

    monkeypatch.setattr(launch, "profile_of", measured)
    started = []
    monkeypatch.setattr("repro.verl.start.run", started.append)
    prompts(tmp_path)
    words = ["--preset", NAME, "--arm", "sgpo", "--data", str(tmp_path), "--output", str(tmp_path / "runs"), *SMALL]
    main([*words, "trainer.save_freq=5"])
    (config,) = started
    folder = tmp_path / "runs/sgpo/seed-0"
    assert (config.trainer.nnodes, config.trainer.n_gpus_per_node, config.trainer.save_freq) == (1, 1, 5)
    assert (config.ray_kwargs.ray_init.address, config.ray_kwargs.ray_init.num_gpus) == ("local", 1)
    assert str(paths.ROOT) == config.ray_kwargs.ray_init.runtime_env.env_vars.REPRO_ROOT
    assert config.actor_rollout_ref.model.path == SCALES[NAME].model.value  # which every node fetches
    run = RunOnVerl.of(config)
    assert (run.arm, run.profile.samples, len(run.profile.prompt_tokens_Q)) == ("sgpo", 8, 12)
    assert Path(config.data.train_files) == folder / "queries.parquet"
    assert (tmp_path / "runs/_profile/profile.parquet").exists()
    assert "12 questions are prepared, and the 1005 steps of" in capsys.readouterr().out
    _solved(run.profile, tmp_path)
    for more, why in (
        (["data.train_files=a"], r"^data\.train_files=a: .* folder, as --data"),
        (["trainer.save_freq=50"], r"test_freq=20 is no multiple of trainer\.save_freq=50, so the best"),
        (["trainer.save_freq=5", "--profiles", str(tmp_path / "solved")], r"\(the profile: \w{16} → \w{16}\): restore"),
    ):
        with pytest.raises(SettingsError, match=why):
            main([*words, *more])
    write_parquet(pd.DataFrame(prompts(tmp_path)[:3]), tmp_path / "gsm8k.parquet")
    with pytest.raises(SettingsError, match=r"\(the rows of the data: \w{16} → \w{16}\)"):
        main([*words, "trainer.save_freq=5"])
    write_parquet(evaluations(0, run.settings.steps_of("sgpo")), folder / "tables/evaluations.parquet")
    main(words)
    assert "seed-0 is finished" in capsys.readouterr().out and len(started) == 1


def evaluations(seed: int, steps: int) -> pd.DataFrame:
    rows = [{"seed": seed, "step": step, "accuracy": 0.5, "diverged": False} for step in (0, steps)]
    return pd.DataFrame(rows)


def test_finished_runs_become_the_arms_tables_without_a_gpu(tmp_path):
    settings = SETTINGS.model_copy(update={"seeds": [0, 1]})
    own = settings_at(settings, "grpo")
    for seed in (0, 1):
        folder = tmp_path / f"grpo/seed-{seed}"
        write_parquet(evaluations(seed, own.steps_of("grpo")), folder / "tables/evaluations.parquet")
        write_parquet(pd.DataFrame({"seed": [seed], "seconds": [1.0]}), folder / "tables/seconds.parquet")
        (folder / "settings.json").write_text(own.model_dump_json())
    tables = finished_tables("grpo", settings, tmp_path)
    assert tables["evaluations"]["seed"].tolist() == [0, 0, 1, 1]
    assert tables["seconds"]["seconds"].tolist() == [1.0, 1.0]
    other = settings.arm("grpo").model_copy(update={"aggregation": "token-mean"})
    changed = settings.model_copy(update={"arms": {**settings.arms, "grpo": other}})
    with pytest.raises(SettingsError, match=r"begun with other settings \(arms\.grpo\.aggregation: "):
        finished_tables("grpo", changed, tmp_path)


def test_a_run_is_finished_at_its_last_step_or_where_it_diverged(tmp_path):
    assert not finished(tmp_path, 40)
    write_parquet(evaluations(0, 20), tmp_path / "tables/evaluations.parquet")
    assert finished(tmp_path, 20) and not finished(tmp_path, 40)
    write_parquet(evaluations(0, 20).assign(diverged=[False, True]), tmp_path / "tables/evaluations.parquet")
    assert finished(tmp_path, 40)


def test_launch_scripts_find_their_repository_from_anywhere(tmp_path):
    scripts = sorted((paths.ROOT / "configs/launch").glob("*.sh"))
    assert {script.name for script in scripts} >= {"run.sh", "slurm.sh", "ray_submit.sh"}
    for script in scripts:
        subprocess.run(["bash", "-n", str(script)], check=True)
    shell = {**os.environ, "RAY_ADDRESS": "http://127.0.0.1:9", "SLURM_SUBMIT_DIR": str(tmp_path)}
    shell |= {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "here"}
    verl = importlib.util.find_spec("verl") is not None
    no_answer = "no Ray dashboard answers at http://127.0.0.1:9" if verl else "verl is not installed"
    for script, arguments, sentence in (
        ("run", [], "which arm"),
        ("ray_submit", ["--preset", NAME, "--arm", "grpo"], no_answer),
        ("slurm", ["--preset", NAME, "--arm", "grpo"], f"{tmp_path} is not the root"),
    ):
        command = [str(paths.ROOT / f"configs/launch/{script}.sh"), *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=shell, capture_output=True, text=True)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1) and sentence in done.stderr, done.stderr
    here = {name: value for name, value in os.environ.items() if name not in ("REPRO_ROOT", "RAY_ADDRESS")}
    here |= {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": ""}
    words = ["--preset", NAME, "--arm", "grpo", "--seed", "1", "trainer.save_freq=5"]
    command = [str(paths.ROOT / "configs/launch/run.sh"), *words]
    done = subprocess.run(command, cwd=tmp_path, env=here, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    lacks = f"{NAME} needs GPUs" if verl else "verl is not installed"
    assert f"repro.verl: {lacks}" in done.stderr


@pytest.mark.parametrize(("seconds", "status", "requeued"), [(4, 0, True), (0, 3, False)])
def test_a_job_at_its_time_limit_is_requeued_and_one_that_ended_is_not(tmp_path, seconds, status, requeued):
    (tmp_path / "scontrol").write_text('#!/bin/sh\necho "$@" > "$(dirname "$0")/asked"\n')
    (tmp_path / "scontrol").chmod(0o755)
    script = f"set -euo pipefail; source {paths.ROOT}/configs/launch/requeue.sh; echo ready; until_limit sh -c "
    script += f"'sleep {seconds}; exit {status}'"
    shell = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    job = subprocess.Popen(["bash", "-c", script], env=shell, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if requeued:
        assert job.stdout.readline() == "ready\n"
        time.sleep(0.5)  # until the trap is set
        job.send_signal(signal.SIGUSR1)
    told = job.communicate(timeout=60)[1]
    assert job.returncode == status and ("job 7 is requeued" in told) == requeued == (tmp_path / "asked").exists()
