"""`python -m repro.verl --model …`: one's own model and data, composed, checked and written without Ray or a GPU."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from repro import settings as settings_module
from repro.arms import build
from repro.engine.backends.load import ModelMissing, fetch
from repro.paths import ROOT
from repro.settings import SettingsError
from repro.verl import compose as composing
from repro.verl import prepare as own
from repro.verl import presets, questions, ready, sums
from repro.verl.identity import BLOCK, PLACES, hash_rows, hash_weights
from repro.verl.layers import Asked, arm_of, of_arm
from repro.verl.presets import Preset
from repro.verl.run import RunOnVerl, check_config

SETTINGS = settings_module.load()
SMALL = ("data.train_batch_size=8", "actor_rollout_ref.actor.ppo_mini_batch_size=4", "data.max_response_length=32")


def write_lines(path: Path, count: int = 40) -> str:
    lines = [json.dumps({"prompt": f"What is {n} + 1?", "answer": n + 1}) for n in range(count)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.verl
def test_an_override_sets_the_value_of_one_key(tmp_path):
    """A mapping, null or a file for a section would get past what reads overrides by their keys."""
    verls = composing.compose([])
    for entry, said in (
        ("data={train_files: mine.parquet}", "data is a section"),
        ("++actor_rollout_ref.rollout={n: 4}", r"set its keys one by one, as actor_rollout_ref\.rollout\.KEY=VALUE"),
        ("data=null", "data is a section"),
        ("+actor_rollout_ref.model.override_config={hidden_act: relu}", "override_config is a section"),
        ("~algorithm={}", "algorithm is a section"),
        ("+data@_global_=legacy_data", "'data@_global_' is no key of verl's: write SECTION.KEY=VALUE"),
        ("+model@data=hf_model", "no key of verl's"),
        ("data[train_files]=mine.parquet", "no key of verl's"),
        ("repro={best: mine}", "repro is a section"),
    ):
        with pytest.raises(SettingsError, match=rf"^{re.escape(entry)}: .*{said}"):
            composing.require_one_value(entry, verls)
    for entry in (
        "+data.apply_chat_template_kwargs={enable_thinking: false}",
        "actor_rollout_ref.model.override_config.attn_implementation=flash_attention_2",
        "trainer.logger=[console,wandb]",
        "actor_rollout_ref.actor.optim.betas.0=0.8",
    ):
        composing.require_one_value(entry, verls)
    with pytest.raises(SettingsError, match=r"^data=.*: data is a section"):
        composing.compose(["data={train_files: mine.parquet}"])


def test_a_key_that_the_command_decides_is_refused_however_it_is_written():
    for entry in ("++data.val_files.0=a", "~data.val_files=a", "repro.arm=grpo", "hydra.verbose=true"):
        with pytest.raises(SettingsError, match=f"^{re.escape(entry)}: "):
            composing.refuse([entry], own.INSTEAD)
    composing.refuse(["data.val_files_kept=a", "repro.best=null"], own.INSTEAD)


def mine(folder: Path, arm: str = "zvf", *overrides: str, **more) -> Asked:
    data = write_lines(folder / "mine.jsonl")
    told = {"preset": presets.find("own"), "data": data, "output": folder / "run", "overrides": (*SMALL, *overrides)}
    return Asked(arm=arm, model=str(fetch("tiny")), **{**told, **more})


def written(run: own.Prepared):
    own.settle(run, None)
    return own.write(run, None)


def test_own_questions_are_lines_or_verls_rows_with_their_place(tmp_path):
    rows = questions.load(write_lines(tmp_path / "mine.jsonl"))
    assert rows[3]["prompt"] == [{"role": "user", "content": "What is 3 + 1?"}]
    assert (rows[3]["reward_model"]["ground_truth"], rows[3]["data_source"]) == ("4", "mine")
    pd.DataFrame(rows).drop(columns="extra_info").to_parquet(tmp_path / "verls.parquet")
    again = questions.load(str(tmp_path / "verls.parquet"))
    assert [row["extra_info"]["index"] for row in again] == list(range(40)) and again[3]["prompt"] == rows[3]["prompt"]
    train, held_out = questions.split(rows)
    assert (len(train), len(held_out)) == (38, 2)
    assert not {row["extra_info"]["id"] for row in train} & {row["extra_info"]["id"] for row in held_out}
    assert [row["extra_info"]["index"] for row in train] == list(range(38))
    assert len({row["extra_info"]["question"] for row in sums.rows()}) == 300


@pytest.mark.parametrize(
    ("prompt", "answer", "why"),
    [
        ("a", "Infinity", "no finite number"),
        ("a", "1e400", "no finite number"),
        ("a", '" "', "text or a number"),
        ("", "1", "`prompt` is empty"),
    ],
)
def test_an_answer_or_a_prompt_that_says_nothing_is_refused(prompt, answer, why, tmp_path):
    (tmp_path / "bad.jsonl").write_text(f'{{"prompt": "a", "answer": 2}}\n{{"prompt": "{prompt}", "answer": {answer}}}')
    with pytest.raises(SettingsError, match=rf"bad\.jsonl, line 2: give .*{why}"):
        questions.load(str(tmp_path / "bad.jsonl"))


def test_bad_data_are_named_with_their_line(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"prompt": "1 + 1?", "answer": 2}\n{"prompt": "2 + 2?"}\n')
    with pytest.raises(SettingsError, match=r"bad\.jsonl, line 2: give a JSON object with `prompt` and `answer`"):
        questions.load(str(path))
    pd.DataFrame({"question": ["1 + 1?"]}).to_parquet(tmp_path / "bad.parquet")
    with pytest.raises(SettingsError, match=r"bad\.parquet, row 0: verl's format has `prompt`"):
        questions.load(str(tmp_path / "bad.parquet"))
    for line in (
        '{"prompt": [], "answer": 1}',
        '{"prompt": [{"role": "user"}], "answer": 1}',
        '{"prompt": 1, "answer": 1}',
    ):
        path.write_text(line)
        with pytest.raises(SettingsError, match=r"line 1: .*a prompt is a list of messages"):
            questions.load(str(path))
    path.write_text('{"prompt": "a", "answer": [1]}')
    with pytest.raises(SettingsError, match=r"line 1: .*`answer` is text or a number"):
        questions.load(str(path))
    with pytest.raises(SettingsError, match="there is no file"):
        questions.load("nowhere.jsonl")
    with pytest.raises(SettingsError, match="did you mean 'gpu-smoke'"):
        presets.find("gpu-smok")


class Thinking:
    """A tokenizer whose template adds a letter for each of its options."""

    chat_template = "a template"

    def apply_chat_template(self, messages, *, tokenize, add_generation_prompt, **options) -> str:
        return messages[-1]["content"] + "".join("!" for value in options.values() if value)

    def __call__(self, texts, add_special_tokens):
        return {"input_ids": [list(range(len(text))) for text in texts]}


def test_options_of_the_chat_template_count_for_the_length_of_a_prompt(tmp_path):
    rows = questions.load(write_lines(tmp_path / "mine.jsonl"))
    longest = max(len(row["prompt"][-1]["content"]) for row in rows)
    assert len(questions.short_enough(rows, Thinking(), longest, {"enable_thinking": False})) == 40
    kept = questions.short_enough(rows, Thinking(), longest, {"enable_thinking": True})
    assert [row["extra_info"]["index"] for row in kept] == list(range(10))  # those with one digit


@pytest.mark.verl
def test_without_a_chat_template_training_and_profile_ask_the_same():
    """All of a prompt's messages, and nothing else."""
    from transformers import AutoTokenizer

    from repro.verl.text_agent import TextAgentLoop

    agent = TextAgentLoop.__new__(TextAgentLoop)
    agent.tokenizer, agent._cap_text_prompt_length = AutoTokenizer.from_pretrained(fetch("tiny")), list
    asked = [{"role": "system", "content": "Add."}, {"role": "user", "content": "What is 1 + 1?"}]
    row = {"prompt": asked, "data_source": "a", "reward_model": {"ground_truth": "2"}, "extra_info": {"index": 0}}
    trained = asyncio.run(agent.ct_build_initial_tokens(asked))
    assert [trained] == questions.prompts_of(agent.tokenizer, [row], {})
    assert trained == agent.tokenizer("Add.\n\nWhat is 1 + 1?")["input_ids"]


@pytest.mark.verl  # for omegaconf
def test_a_resumed_run_goes_on_in_its_own_logs(tmp_path, monkeypatch):
    from omegaconf import OmegaConf

    for name in ("WANDB_RUN_ID", "WANDB_RESUME", "VERL_FILE_LOGGER_PATH"):
        monkeypatch.delenv(name, raising=False)
    config = {"trainer": {"default_local_dir": str(tmp_path / "checkpoints"), "logger": ["console", "wandb", "file"]}}

    def variables() -> dict:
        ready.loggers_of(made := OmegaConf.create({**config, "ray_kwargs": {"ray_init": {"address": "auto"}}}))
        return dict(made.ray_kwargs.ray_init.runtime_env.env_vars)

    first = variables()
    (tmp_path / "metrics.jsonl").write_text("step 1\n")
    again = variables()
    assert again == first and again["WANDB_RESUME"] == "allow" and len(again["WANDB_RUN_ID"]) == 12
    assert again["VERL_FILE_LOGGER_PATH"] == str(tmp_path / "metrics.jsonl")
    assert (tmp_path / "metrics-1.jsonl").read_text() == "step 1\n" and not (tmp_path / "metrics.jsonl").exists()


@pytest.mark.verl
def test_the_arm_and_the_command_line_decide_and_the_plan_follows(tmp_path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(fetch("tiny"))  # without a chat template
    run = own.prepare(mine(tmp_path, "zvf", "actor_rollout_ref.rollout.n=4"), SETTINGS, tokenizer)
    engine, config = run.settings.engine_of("zvf"), run.config
    assert (engine.rollouts_per_step, engine.minibatch, engine.steps) == (32, 16, 38 // 8)
    assert config.actor_rollout_ref.actor.policy_loss.loss_mode == "vanilla"
    assert config.actor_rollout_ref.rollout.agent.default_agent_loop == "repro_text"
    assert (config.trainer.device, config.actor_rollout_ref.rollout.name) == ("cuda", "vllm")
    written(run)
    assert pd.read_parquet(tmp_path / "run/queries.parquet")["data_source"].tolist() == ["mine"] * 38
    of_verl = RunOnVerl.of(config)
    assert of_verl.method.plan.keywords == {"group_size": 4}
    assert (of_verl.rollouts_per_step, of_verl.updates, of_verl.settings.scale) == (32, 2, "own")
    written(run)  # the same again
    assert config.repro.best == "mine"
    told = mine(tmp_path, "zvf", "actor_rollout_ref.rollout.n=4")
    (tmp_path / "mine.jsonl").write_text((tmp_path / "mine.jsonl").read_text().replace('"answer": 40', '"answer": 41'))
    with pytest.raises(SettingsError, match=r"settings of verl \(the rows of the data: \w{16} → \w{16}\): restore"):
        written(own.prepare(told, SETTINGS, tokenizer))
    other = own.prepare(mine(tmp_path, "zvf", "actor_rollout_ref.rollout.n=2"), SETTINGS)
    with pytest.raises(SettingsError, match="was begun with other settings"):
        written(other)
    rate = mine(tmp_path, "zvf", "actor_rollout_ref.rollout.n=4", "actor_rollout_ref.actor.optim.betas=[0.8,0.9]")
    with pytest.raises(SettingsError, match=r"other settings of verl \(.*betas"):
        written(own.prepare(rate, SETTINGS, tokenizer))

    spelt = mine(tmp_path, "zvf", "actor_rollout_ref.rollout.n=int('4')")  # as Hydra reads it
    assert own.prepare(spelt, SETTINGS).method.plan.keywords == {"group_size": 4}

    cpu = own.prepare(replace(mine(tmp_path, "d3s"), cpu=True, gpus=(1, 2)), SETTINGS).config
    assert (cpu.trainer.device, cpu.trainer.n_gpus_per_node, cpu.actor_rollout_ref.rollout.name) == ("cpu", 2, "hf")
    assert cpu.actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype == "fp32"
    assert cpu.actor_rollout_ref.rollout.calculate_log_probs  # written back as on GPUs

    for overrides, sentence in (
        (["data.train_batch_size=100"], "data.train_batch_size=100 is more than the 38 training prompts"),
        (["actor_rollout_ref.actor.ppo_mini_batch_size=3"], "is not a multiple of"),
        (["trainer.save_frq=1"], r"^trainer\.save_frq=1: verl's .* did you mean 'trainer\.save_freq'"),
        (["actor_rollout_ref.actor.ppo_epochs=2"], r"ppo_epochs=2: a batch trains once; leave it out, or set it to 1$"),
        (["data.max_prompt_length=2"], "every prompt is longer than"),
        (["actor_rollout_ref.rollout.n=0"], r"^actor_rollout_ref\.rollout\.n=0: it should be a whole number from 1 on"),
        (["trainer.save_freq=null"], r"^trainer\.save_freq=None: it should be a whole number from -1 on"),
        (["data.train_batch_size=0"], r"^data\.train_batch_size=0: it should be a whole number from 1 on"),
        (["actor_rollout_ref.actor.ppo_mini_batch_size=0"], r"batch_size=0: it should be a whole number from 1 on"),
        (
            ["trainer.save_freq=4"],
            r"^trainer\.test_freq=10 is no multiple of trainer\.save_freq=4, .*=null$",
        ),
        (["data.train_files=a.parquet"], r"^data\.train_files=a\.parquet: .* name the questions, or .* as --data"),
        (["++data.val_files=[a.parquet]"], "--validation, next to --data"),
        (["trainer.total_training_steps=-1"], "total_training_steps=-1: it should be a whole number from 1 on"),
        (["actor_rollout_ref.actor.optim.lr=-1"], "optim.lr=-1: it should be a number above 0"),
        (["actor_rollout_ref.rollout.top_p=2"], r"top_p=2: it should be a number above 0, and at most 1$"),
        (["data.train_batch_size=eight"], r"^data\.train_batch_size=eight: verl's own value is 1024"),
        (["reward.custom_reward_function.path=no.py"], r"path=no\.py: there is no such file"),
        (["actor_rollout_ref.rollout={n: 2}"], r"^actor_rollout_ref\.rollout=\{n: 2\}: .* is a section"),
    ):
        with pytest.raises(SettingsError, match=sentence):
            own.prepare(mine(tmp_path, "zvf", *overrides), SETTINGS, tokenizer)
    for preset in ({"data.train_files": "a"}, {"data": {"train_files": "a"}}):
        with pytest.raises(SettingsError, match=r"name the questions, .* as --data|data is a section"):
            own.prepare(mine(tmp_path, "zvf", preset=Preset("mine", overrides=preset)), SETTINGS, tokenizer)


def test_a_model_and_rows_are_known_by_what_they_hold(tmp_path):
    weights = np.random.default_rng(0).bytes(3 * PLACES * BLOCK)  # of which a third is read
    for name, other in (("a", weights), ("b", weights), ("c", bytes(len(weights) // 2) + weights[len(weights) // 2 :])):
        (tmp_path / name / "final").mkdir(parents=True)
        (tmp_path / name / "final" / "model.safetensors").write_bytes(other)
    a, b, c = (hash_weights(tmp_path / name / "final") for name in "abc")
    assert a == b != c
    rows = questions.load(write_lines(tmp_path / "mine.jsonl"))
    pd.DataFrame(rows).to_parquet(tmp_path / "mine.parquet")
    again = pd.read_parquet(tmp_path / "mine.parquet").to_dict("records")  # with numpy's arrays
    assert hash_rows(rows, []) == hash_rows(again, []) != hash_rows([], rows) != hash_rows(rows[::-1], [])


@pytest.mark.verl
def test_what_the_small_policys_settings_decide_is_refused(tmp_path):
    from repro.verl.study import train

    for override, cure in (
        ("actor_rollout_ref.rollout.n=4", "group_size of the arm's plan"),
        ("trainer.total_training_steps=3", "give --steps"),
        ("data.max_response_length=32", "engine.max_new_tokens"),
        ("actor_rollout_ref.rollout.temperature=0.5", "engine.temperature"),
    ):
        with pytest.raises(SettingsError, match=f"^{override}: .*{cure}"):
            train("grpo", 0, SETTINGS, tmp_path, overrides=[override])
    assert not list(tmp_path.iterdir())


@pytest.mark.verl
def test_the_command_checks_without_ray_and_a_preset_needs_a_gpu(tmp_path, monkeypatch, capsys):
    from repro.verl.__main__ import main

    monkeypatch.setattr(ready, "gpus_here", lambda: 0)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    data = write_lines(tmp_path / "mine.jsonl")
    main(["--arm", "zvf", "--model", "my/model", "--data", data, "--check", "--steps", "3", *SMALL])
    told = capsys.readouterr().out
    assert "verl accepts my/model with arm zvf, on this machine's CPU" in told and "3 steps of 64 rollouts" in told
    assert "data.train_batch_size=8" in told
    main(["--arm", "zvf", "--preset", "gpu-smoke", "--device", "cuda", "--check"])
    told = capsys.readouterr().out
    assert "2 steps of 128 rollouts, mini-batches of 64" in told and "on 1 node(s) with 1 GPU(s)" in told
    with pytest.raises(ready.NotReady, match="needs GPUs, and there is none here"):
        main(["--arm", "zvf", "--preset", "gpu-smoke", "--device", "cuda"])
    with pytest.raises(SettingsError, match="name your data too"):
        main(["--arm", "zvf", "--model", "my/model"])
    with pytest.raises(SettingsError, match=r"^--resume goes with --preset study"):
        main(["--arm", "zvf", "--model", "my/model", "--data", data, "--resume"])
    with pytest.raises(SettingsError, match="--data goes with --model or"):
        main(["--arm", "zvf", "--data", data])
    for option in ("--model", "--preset"):
        with pytest.raises(SettingsError, match=f"{option} is empty: name one"):
            main(["--arm", "zvf", option, ""])


@pytest.mark.verl
def test_what_verl_would_ignore_or_fail_on_late_is_refused_with_its_place_and_cure(tmp_path):
    from omegaconf import OmegaConf

    run = own.prepare(mine(tmp_path, "dr-grpo"), SETTINGS)
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    for key, value, cure in (
        ("trainer.v1.trainer_mode", "colocate_async", "set it to repro or repro_colocate_async"),
        ("trainer.use_v1", False, "set it to true"),
        (f"{actor}.strategy", "megatron", "set it to fsdp or fsdp2"),
        (f"{actor}.shuffle", True, "set it to false"),
        (f"{actor}.policy_loss.loss_mode", "gspo", "the arm's own objective"),
        (f"{actor}.loss_agg_mode", "token-mean", "the arm's own objective"),
        (f"{actor}.clip_ratio_high", 0.9, "the arm's own objective"),
        (f"{rollout}.name", "sglang", "set it to vllm or hf"),
        (f"{rollout}.multi_turn.enable", True, "one turn"),
        (f"{rollout}.agent.default_agent_loop", "tool_agent", "one turn"),
        ("algorithm.norm_adv_by_std_in_grpo", True, "the arm's own `advantage` decides"),
        ("algorithm.filter_groups.enable", True, "give it `filter: zero_variance`"),
        ("data.shuffle", True, "the arm's plan orders"),
        ("data.filter_overlong_prompts", True, "left out beforehand"),
        ("reward.reward_manager.name", "dapo", "custom_reward_function"),
        ("reward.reward_model.enable", True, "custom_reward_function"),
        ("custom_reward_function.path", "mine.py", "its name is reward"),
        ("trainer.v1.sampler.custom_sampler.path", "mine.py", "set it to null"),
    ):
        config = run.config.copy()
        OmegaConf.update(config, key, value, force_add=True)
        with pytest.raises(SettingsError, match=rf"^{re.escape(key)}={str(value).lower()}: .*{cure}"):
            check_config(config, run.method)
    config = OmegaConf.merge(run.config, {"algorithm": {"rollout_correction": {"bypass_mode": True}}})
    with pytest.raises(SettingsError, match=r"^algorithm\.rollout_correction\.bypass_mode=true: .*set it to false"):
        check_config(config, replace(run.method, samplers=[len]))
    with pytest.raises(SettingsError, match=r"^algorithm\.adv_estimator=gae: .*set it to grpo"):
        own.prepare(mine(tmp_path, "zvf", "algorithm.adv_estimator=gae"), SETTINGS)


@pytest.mark.verl
def test_groups_ahead_of_their_step_are_corrected_and_their_arm_allows_them(tmp_path):
    mode, weighted = "trainer.v1.trainer_mode=repro_colocate_async", "algorithm.rollout_correction.rollout_is"
    found = own.prepare(mine(tmp_path, "zvf-cost-aware", mode), SETTINGS).config
    assert found.algorithm.rollout_correction.rollout_is == "token"
    assert found.actor_rollout_ref.rollout.calculate_log_probs
    for arm, override, why in (
        ("zvf", f"{weighted}=null", rf"^{re.escape(weighted)}=null: .*set it to token or sequence"),
        ("zvf", "actor_rollout_ref.rollout.calculate_log_probs=false", "set it to true"),
        ("zvf", "trainer.v1.sampler.max_off_policy_threshold=2", "no group is dropped for its age"),
        ("zvf", "trainer.v1.colocate_async.num_warmup_batches=0.5", "set a whole number from 1 on"),
        ("speed-rl", "data.shuffle=false", r"of this arm its plan is speed_rl; leave it out"),
        ("replay", "data.shuffle=false", r"of this arm it trains on rollouts of earlier steps again; leave it out"),
    ):
        with pytest.raises(SettingsError, match=why):
            own.prepare(mine(tmp_path, arm, mode, override), SETTINGS)


WAYS = [*presets.names(), "--model", "--steps"]


def kinds(preset: str) -> list[str]:
    """An arm of each kind of which verl is told something else, of all in params.yaml."""
    found = {}
    for arm in SETTINGS.all_arms:
        run = Asked(arm, presets.find(preset), "mine", Path("run"))
        entry = arm_of(run, SETTINGS)
        told = of_arm(run, SETTINGS, entry, build(arm, entry))
        found.setdefault((repr(told), arm in SETTINGS.arms, entry.profile is None), arm)
    return list(found.values())


@pytest.mark.verl
@pytest.mark.slow
@pytest.mark.parametrize("preset", WAYS)
def test_every_kind_of_arm_composes_and_so_does_every_preset(preset, tmp_path, monkeypatch, capsys):
    """All kinds with the study's preset and with one's own model; the others share them."""
    from repro.verl.__main__ import main

    monkeypatch.setattr(ready, "gpus_here", lambda: 0)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    data = ["--data", write_lines(tmp_path / "mine.jsonl", 900)]
    words = {"--model": ["--model", "my/model", *data], "--steps": ["--steps", "3"]}
    words["own"] = ["--preset", "own", *words["--model"]]
    arms = kinds({"--model": "own", "--steps": "study"}.get(preset, preset))
    for arm in arms if preset in ("study", "own") else arms[WAYS.index(preset) % len(arms) :: len(WAYS)]:
        main(["--arm", arm, *words.get(preset, ["--preset", preset]), "--check", "--output", str(tmp_path / "runs")])
        assert f"with arm {arm}, on " in capsys.readouterr().out


@pytest.mark.verl
def test_the_check_builds_what_would_fail_later(tmp_path, monkeypatch, capsys):
    from repro.verl.__main__ import main

    monkeypatch.setattr(ready, "gpus_here", lambda: 0)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    model, reward = shutil.copytree(fetch("tiny"), tmp_path / "model"), tmp_path / "mine.py"
    data = write_lines(tmp_path / "mine.jsonl")
    words = ["--arm", "zvf", "--model", str(model), "--data", data, "--check", "--output", str(tmp_path / "runs")]
    main([*words, *SMALL])
    assert f"verl accepts {model} with arm zvf" in capsys.readouterr().out and not (tmp_path / "runs").exists()
    reward.write_text("raise RuntimeError('no')\n")
    own_reward = [f"reward.custom_reward_function.{key}" for key in (f"path={reward}", "name=score")]
    limit = json.loads((model / "config.json").read_text())["max_position_embeddings"]
    for more, why in (
        (["actor_rollout_ref.rollout.top_p=0.9"], "on a CPU the whole distribution is sampled"),
        (own_reward, "mine.py: score cannot be loaded \\(RuntimeError"),
        (["--device", "cuda", f"data.max_prompt_length={limit}"], f"the model's limit is {limit}: lower one"),
        (["data.max_prompt_length=2"], "every prompt is longer"),
    ):
        with pytest.raises(SettingsError, match=why):
            main([*words, *more, *SMALL])
    for name in ("generation_config.json", "tokenizer_config.json", "config.json"):
        if (model / name).exists():
            content = json.loads((model / name).read_text())
            (model / name).write_text(json.dumps({**content, "eos_token_id": None, "eos_token": None}))
    with pytest.raises(ModelMissing, match="names no token that ends a response"):
        main([*words, *SMALL])


@pytest.mark.verl
def test_a_run_on_a_cpu_finds_verl_on_a_cpu(tmp_path):
    """In a process of its own: verl chooses its platform once, when it is first imported."""
    program = """
import sys
from repro.verl import start
def run(config):
    from verl.plugin.platform import get_platform
    print("platform", get_platform().device_name, config.trainer.n_gpus_per_node)
start.run = run
from repro.verl.__main__ import main
sys.exit(main())
"""
    words = ["--arm", "grpo", "--model", "tiny", "--data", "sums", "--steps", "1", "--device", "cpu"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words, "--output", str(tmp_path), *SMALL],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith(("VERL_", "REPRO_"))},
        cwd=ROOT,
    )
    assert done.returncode == 0 and "platform cpu" in done.stdout, done.stderr[-2000:]


@pytest.mark.verl
def test_one_command_writes_the_run_and_starts_verl_with_it(tmp_path, monkeypatch):
    from repro.verl.__main__ import main
    from repro.verl.start import ENVIRONMENT

    started = []
    monkeypatch.setattr("repro.verl.start.run", started.append)
    monkeypatch.setattr(ready, "gpus_here", lambda: 0)
    for name in (*ENVIRONMENT, "CUDA_VISIBLE_DEVICES", "RAY_ADDRESS"):  # what the launch sets is undone
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    words = ["--arm", "grpo", "--model", "tiny", "--data", "sums", "--ranks", "2", "--seed", "1", "--steps", "2"]
    main([*words, "--output", str(tmp_path), *SMALL])
    (config,) = started
    assert config.repro.output == str(tmp_path / "grpo/seed-1/tables")
    assert (config.trainer.total_training_steps, config.ray_kwargs.ray_init.num_gpus) == (2, 2)
    assert Path(config.data.train_files).exists() and Path(config.data.val_files).exists()
