"""Paper scales: the papers' tables to the letter, and what verl is told by them."""

import json
from pathlib import Path

import pandas as pd
import pytest

from repro import settings as settings_module
from repro.arms import build
from repro.files import write_parquet
from repro.paper_scale import SCALES, PaperScale, Value, find
from repro.paper_scale.__main__ import main
from repro.paper_scale.at_scale import arm_at, settings_at
from repro.paper_scale.overrides import overrides
from repro.paper_scale.prepare import ROUNDS, prepare, training_rows
from repro.paper_scale.run import at_hand
from repro.paper_scale.scales import PAPERS, values_table
from repro.settings import SettingsError
from repro.settings.arm import EngineChanges
from repro.verl.compose import check, compose
from repro.verl.composed import begun_with, record
from repro.verl.run import check_config

SETTINGS = settings_module.load(scale="cpu")
# What the tables print, copied from the papers once more: Cost-Aware Learning, Tables 2 to 5; D³S, Tables 4 and 5.
TABLES = {
    "paper-qwen2-5-math-1-5b-instruct": {
        "model": "Qwen/Qwen2.5-Math-1.5B-Instruct",
        "weight_decay": 0.1,
        "train_batch": 256,
        "group_size": 16,
        "temperature": 1.0,
        "minibatch": 64,
        "kl": 0.001,
        "clips.grpo.low": 0.2,
        "clips.grpo.high": 0.28,
        "hours.grpo": 48,
        "hours.zvf": 72,
    },
    "paper-qwen2-5-math-1-5b-instruct-cispo": {
        "model": "Qwen/Qwen2.5-Math-1.5B-Instruct",
        "warmup_steps": 100,
        "weight_decay": 0.01,
        "train_batch": 512,
        "minibatch": 128,
        "gradient_clip": 1.0,
        "kl": 0.001,
        "entropy": 0,
        "clips.cispo.low": 0.0,
        "clips.cispo.high": 5.0,
        "dual_clip": 3.0,
        "hours.cispo": 72,
    },
    **{
        f"paper-qwen3-{size.lower()}": {
            "model": f"Qwen/Qwen3-{size}",
            "epochs": 15,
            "train_batch": 512,
            "minibatch": 256,
            "group_size": group,
            "temperature": 1.0,
            "max_prompt_tokens": 1024,
            "max_response_tokens": 4096,
            "kl": 0.001,
            "gpu": "H100",
        }
        for size, group in {"4B": 8, "8B": 5}.items()
    },
    **{
        f"paper-{name}": {
            "epochs": epochs,
            "temperature": temperature,
            "top_p": top_p,
            "learning_rate": rate,
            "group_size": 32,
            **{f"clips.{objective}.{end}": 0.2 for objective in ("grpo", "gspo") for end in ("low", "high")},
        }
        for name, (epochs, temperature, top_p, rate) in {
            "qwen2-5-math-7b": (1, 1.0, 0.9, 5e-7),
            "qwen2-5-math-1-5b": (1, 1.0, 0.9, 5e-7),
            "llama3-1-8b-instruct": (2, 0.6, 0.9, 1e-8),
            "openmath2-llama3-1-8b": (2, 0.7, 0.95, 2e-7),
        }.items()
    },
}
OF_THE_TEXT = {"train_data", "validation_data", "model"}  # given in the text, whatever the table says


def test_scales_are_the_tables_scales():
    assert list(SCALES) == list(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_values_marked_as_the_papers_are_those_of_its_table_and_no_others(name):
    given = {key: entry.value for key, entry in SCALES[name].values.items() if entry.source == "paper"}
    assert TABLES[name].items() <= given.items()
    assert given.keys() - TABLES[name].keys() <= OF_THE_TEXT


def test_every_value_says_where_or_why():
    for scale in SCALES.values():
        for key, entry in scale.values.items():
            assert entry.why, f"{scale.name}.{key}"
            assert entry.source == "ours" or entry.why.startswith(("Table", "§", "G.5")), f"{scale.name}.{key}"
        assert len(values_table(scale)) == len(scale.values) + len(scale.aside)


def test_selection_of_d3s_is_what_the_sampler_does_by_default():
    import inspect

    from repro.methods.samplers.d3s import d3s

    defaults = {key: value.default for key, value in inspect.signature(d3s).parameters.items()}
    assert {key: entry.value for key, entry in PAPERS["d3s"].selection.items()}.items() <= defaults.items()


def test_steps_leave_out_an_incomplete_batch():
    scale = SCALES["paper-qwen3-8b"]
    assert scale.rollouts_per_step == 512 * 5
    assert scale.steps == 15 * (scale.train_queries.value // 512)
    assert scale.steps * 512 <= 15 * scale.train_queries.value


def test_a_value_of_the_wrong_type_is_refused():
    scale = SCALES["paper-qwen3-8b"]
    with pytest.raises(ValueError, match="group_size"):
        PaperScale(**{**dict(scale), "group_size": scale.kl})


def test_a_value_has_one_source_and_a_saving_one_share():
    for sources in ({}, {"paper": "Table 1", "ours": "a guess"}):
        with pytest.raises(ValueError, match="a value has one source"):
            Value(value=1, **sources)
    by_factor = SCALES["paper-qwen3-4b"].savings[0]
    assert (by_factor.share, by_factor.stated.value) == (0.65, 0.65)
    by_speedup = SCALES["paper-qwen2-5-math-7b"].savings[0]
    assert (by_speedup.share, by_speedup.stated.value) == (1 / 2.04, 2.04)


def told(name: str, arm: str, **where) -> dict[str, str]:
    return dict(entry.split("=", 1) for entry in overrides(SCALES[name], SETTINGS, arm, **where))


def test_an_arm_says_objective_aggregation_and_filter():
    actor, name = "actor_rollout_ref.actor", "paper-qwen2-5-math-7b"
    grpo = told(name, "grpo")
    assert grpo[f"{actor}.policy_loss.loss_mode"] == "vanilla"
    assert grpo[f"{actor}.loss_agg_mode"] == "seq-mean-token-mean"
    assert (grpo[f"{actor}.clip_ratio_low"], grpo[f"{actor}.clip_ratio_high"]) == ("0.2", "0.2")
    assert (grpo["algorithm.filter_groups.enable"], grpo["repro.profile"]) == ("false", "null")
    assert grpo["actor_rollout_ref.rollout.n"] == "32"
    gspo = told(name, "d3s-gspo")
    assert gspo[f"{actor}.policy_loss.loss_mode"] == "gspo"
    assert gspo[f"{actor}.clip_ratio_high"] == "0.2"  # the table's, not the objective's own default
    assert gspo[f"{actor}.loss_agg_mode"] == "token-mean"
    dr_grpo = told(name, "dr-grpo")
    assert dr_grpo["algorithm.norm_adv_by_std_in_grpo"] == "false"
    assert dr_grpo[f"{actor}.loss_scale_factor"] == dr_grpo["data.max_response_length"]
    assert told(name, "zvf")["algorithm.filter_groups.enable"] == "true"
    assert told(name, "sgpo")["repro.profile"].endswith("sgpo/seed-0/profile")


def test_settings_at_a_scale_are_the_tables_and_an_arms_own_come_first():
    scale = SCALES["paper-qwen2-5-math-1-5b-instruct-cispo"]
    own = settings_at(scale, SETTINGS)
    assert {name: own.arm(name).aggregation for name in ("grpo", "d3s", "sgpo")} == {
        "grpo": scale.aggregation.value,
        "d3s": "token-mean",
        "sgpo": "group-mean",
    }
    assert (own.engine.rollouts_per_step, own.engine.minibatch, own.engine.steps) == (512 * 16, 128 * 16, scale.steps)
    assert own.engine.max_new_tokens == scale.max_response_tokens.value
    assert own.arm("cispo").objective == ("cispo", {"clip_low": 0.0, "clip_high": 5.0})
    assert own.arm("grpo").plan == ("uniform", {"group_size": 16})
    assert own.arm("sgpo-filter").plan[1]["group_size"] == 16  # its equal groups
    arm = SETTINGS.arm("cispo").model_copy(
        update={"objective": ("cispo", {"clip_low": 1.0}), "plan": ("uniform", {"group_size": 4})}
    )
    assert arm_at(scale, arm).objective == ("cispo", {"clip_low": 1.0, "clip_high": 5.0})
    assert arm_at(scale, arm).plan == ("uniform", {"group_size": 4})
    decayed = own.engine_of("grpo-kl-decay")
    assert decayed.model_dump() == own.engine.model_dump() | {"kl": 0.001, "weight_decay": 0.1}
    assert own.engine.weight_decay == 0.01  # the table's, here another than the arm's
    hot = EngineChanges(learning_rate=1.0, rollouts_per_step=8, minibatch=8, kl=0.5)
    arms = {**SETTINGS.arms, "gspo": SETTINGS.arm("gspo").model_copy(update={"engine": hot})}
    tuned = settings_at(scale, SETTINGS.model_copy(update={"arms": arms}))
    assert tuned.engine_of("gspo") == tuned.engine.model_copy(update={"kl": 0.5})  # rate and batch are the table's
    share = SETTINGS.steps_of("grpo-longer") / SETTINGS.engine.steps
    assert own.steps_of("grpo-longer") == round(share * scale.steps) > own.steps_of("grpo")


def test_seeds_nodes_and_names():
    run = told("paper-qwen3-8b", "grpo", seed=3, nodes=2, gpus=4)
    assert (run["trainer.nnodes"], run["trainer.n_gpus_per_node"], run["data.seed"]) == ("2", "4", "3")
    assert run["trainer.default_local_dir"] == "runs/paper-qwen3-8b/grpo/seed-3/checkpoints"
    assert run["repro.best"] == SCALES["paper-qwen3-8b"].validation_data.value[0]
    assert told("paper-qwen3-8b", "grpo", gpus=7)["trainer.n_gpus_per_node"] == "7"  # which does not divide 2560


def small_scale() -> PaperScale:
    sizes = {"train_batch": 4, "minibatch": 2, "train_queries": 12, "epochs": 2}
    changed = {name: Value(value=value, ours="small enough to test") for name, value in sizes.items()}
    return SCALES["paper-qwen2-5-math-1-5b-instruct"].model_copy(update=changed)


def write_prompts(folder: Path) -> None:
    rows = [
        {"data_source": "x", "prompt": [{"role": "user", "content": f"{n}?"}], "extra_info": {"index": n}}
        for n in range(12)
    ]
    write_parquet(pd.DataFrame(rows), folder / "dapo-math-17k.parquet")


def test_the_plan_is_written_in_its_order_with_its_sizes(tmp_path):
    write_prompts(tmp_path)
    scale, folder = small_scale(), tmp_path / "run"
    asked = training_rows(scale, tmp_path)
    assert prepare(scale, SETTINGS, "grpo", folder, asked) == 4 * (scale.steps + 1) == 28
    rows = pd.read_parquet(folder / "plan.parquet")
    index = [extra["index"] for extra in rows["extra_info"]]
    assert sorted(index[:12]) == sorted(index[12:24]) == list(range(12)) and index[:12] != list(range(12))
    assert set(rows["__rollout_n__"]) == {16}
    again = settings_module.Settings.model_validate(json.loads((folder / "settings.json").read_text()))
    assert again == settings_at(scale, SETTINGS)
    assert prepare(scale, SETTINGS, "zvf", tmp_path / "zvf", asked) == 4 * (ROUNDS * scale.steps + 1)


def test_a_missing_profile_or_data_set_is_a_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"python -m repro\.data prepare dapo-math-17k"):
        training_rows(small_scale(), tmp_path)
    write_prompts(tmp_path)
    rows = training_rows(small_scale(), tmp_path)
    with pytest.raises(SettingsError, match=r"arms\.sgpo plans from a profile"):
        prepare(small_scale(), SETTINGS, "sgpo", tmp_path / "run", rows)


def test_a_folder_holds_one_run_and_no_mixture(tmp_path):
    write_prompts(tmp_path)
    scale, rows = small_scale(), training_rows(small_scale(), tmp_path)
    prepare(scale, SETTINGS, "grpo", tmp_path / "run", rows)
    prepare(scale, SETTINGS, "grpo", tmp_path / "run", rows)
    other = scale.model_copy(update={"learning_rate": Value(value=3e-6, ours="another")})
    with pytest.raises(SettingsError, match=r"begun with other settings \(engine\.learning_rate: 1e-06 → 3e-06\)"):
        prepare(other, SETTINGS, "grpo", tmp_path / "run", rows)


def test_wrong_names_have_a_nearest_one(capsys):
    with pytest.raises(SettingsError, match="did you mean 'paper-qwen3-8b'"):
        find("paper-qwen3-8")
    assert main(["overrides", "paper-qwen3-8b", "grpoo"]) == 1
    assert "did you mean 'grpo'" in capsys.readouterr().err
    for command in (["check", "-", "grpoo"], ["run", "grpoo"]):  # before params.yaml's scale is asked for
        assert main(command) == 1 and "did you mean 'grpo'" in capsys.readouterr().err
    assert main(["check", "paper-qwen3-8b"]) == main(["run", "grpo", "paper-qwen3-8b"]) == 1
    told = capsys.readouterr().err
    assert "paper-qwen3-8b is a scale, and which arm" in told and "before the arm: paper-qwen3-8b grpo" in told
    assert main(["overrides", "-", "grpo"]) == main(["overrides", "grpo"]) == 1  # params.yaml names none of the papers'
    assert capsys.readouterr().err.count("is not a paper's") == 2


def test_the_command_prints_one_override_a_line(capsys):
    assert main(["overrides", "paper-qwen3-8b", "cost-aware", "--nodes", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "repro.arm=cost-aware" in lines and "trainer.nnodes=2" in lines
    assert all("=" in line and " " not in line for line in lines)


@pytest.mark.verl
def test_printed_overrides_are_those_of_the_run_and_refuse_what_it_refuses(capsys):
    assert main(["overrides", "paper-qwen3-8b", "grpo", "data.max_response_length=8192"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "data.max_response_length=8192" and "actor_rollout_ref.rollout.max_model_len=9216" in lines
    assert main(["overrides", "paper-qwen3-8b", "grpo", "trainer.save_frq=5"]) == 1
    assert "did you mean 'save_freq'" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["list"], ["show", "paper-qwen3-8b"], ["evaluate", "grpo"], ["peaks", "grpo"]])
def test_a_setting_of_verls_where_none_is_composed_is_refused(command, capsys):
    assert main([*command, "nonsense.key=3"]) == 1
    assert f"nonsense.key=3: `{command[0]}` composes no configuration" in capsys.readouterr().err


@pytest.mark.verl
@pytest.mark.parametrize("name", SCALES)
def test_verl_accepts_every_scale_with_every_kind_of_arm(name):
    first = name == next(iter(SCALES))
    for arm in ("grpo", "cispo", "gspo", "dr-grpo", "zvf-cost-aware", "d3s", "sgpo") if first else ("grpo", "d3s-gspo"):
        config = compose(overrides(SCALES[name], SETTINGS, arm))
        check(config)
        check_config(config, build(arm, settings_at(SCALES[name], SETTINGS).arm(arm)))  # what our trainer demands
        scale, actor = SCALES[name], config.actor_rollout_ref.actor
        assert actor.optim.lr == scale.learning_rate.value
        assert config.actor_rollout_ref.rollout.n == scale.group_size.value
        assert config.data.train_batch_size == scale.train_batch.value
        assert actor.ppo_mini_batch_size == scale.minibatch.value
        assert (actor.use_kl_loss, actor.kl_loss_coef) == (True, scale.kl.value)
        assert config.actor_rollout_ref.rollout.response_length == scale.max_response_tokens.value


@pytest.mark.verl
def test_verls_refusal_is_a_sentence(capsys):
    told = overrides(SCALES["paper-qwen3-8b"], SETTINGS, "grpo")
    with pytest.raises(SettingsError, match="verl refuses paper-qwen3-8b with arm grpo"):
        check(compose([*told, "actor_rollout_ref.actor.loss_agg_mode=no-such"]))
    with pytest.raises(SettingsError, match=r"^trainer\.save_frq=1: section trainer .* did you mean 'save_freq'"):
        compose([*told, "trainer.save_frq=1"])
    for wrong in ("trainer.save_freq=abc", "trainer.save_freq=true", "trainer.val_before_train=3"):
        with pytest.raises(SettingsError, match=rf"^{wrong}: verl's own value is"):
            compose([*told, wrong])
    with pytest.raises(SettingsError, match=r"^trainer\.save_freq=abc: verl's own value is"):
        compose([*told, "++trainer.save_freq=50", "trainer.save_freq=abc"])
    with pytest.raises(SettingsError, match=r"^trainer=3: trainer is a section of verl's .* trainer\.KEY=VALUE"):
        compose([*told, "trainer=3"])
    compose([*told, "actor_rollout_ref.rollout.top_p=0.9", "trainer.save_freq=abc", "trainer.save_freq=50"])
    assert main(["check", "paper-qwen3-8b", "cost-aware"]) == 0
    assert main(["check", "paper-qwen3-8b", "cost-aware", "actor_rollout_ref.actor.ppo_epochs=2"]) == 1
    told = capsys.readouterr()
    assert "verl accepts paper-qwen3-8b with arm cost-aware" in told.out and "ppo_epochs=1" in told.err


@pytest.mark.verl
def test_losses_are_registered_in_verl():
    from verl.trainer.ppo.core_algos import get_policy_loss_fn

    for arm in ("grpo", "gspo", "cispo"):
        run = told("paper-qwen3-8b", arm)
        assert callable(get_policy_loss_fn(run["actor_rollout_ref.actor.policy_loss.loss_mode"]))


@pytest.mark.verl
def test_overrides_reach_the_plan_and_the_settings(tmp_path):
    write_prompts(tmp_path)
    scale = small_scale()
    more = ["actor_rollout_ref.rollout.n=8", "data.train_batch_size=2", "data.max_response_length=48"]
    more += ["trainer.total_training_steps=5", "trainer.test_freq=2", "actor_rollout_ref.actor.use_kl_loss=false"]
    own, at_scale = at_hand(scale, SETTINGS, "grpo", [*more, "actor_rollout_ref.actor.loss_agg_mode=token-mean"])
    assert at_scale.arm("grpo").aggregation == "token-mean"
    assert (own.group_size.value, own.train_batch.value, own.kl.value) == (8, 2, 0.0)
    assert own.group_size.why == "actor_rollout_ref.rollout.n on the command line"
    engine = at_scale.engine_of("grpo")
    assert (engine.rollouts_per_step, engine.max_new_tokens, engine.steps, engine.log_every) == (16, 48, 5, 2)
    assert at_scale.arm("grpo").plan == ("uniform", {"group_size": 8})
    prepare(own, SETTINGS, "grpo", tmp_path / "run", training_rows(own, tmp_path), at_scale=at_scale)
    plan = pd.read_parquet(tmp_path / "run/plan.parquet")
    assert set(plan["__rollout_n__"]) == {8} and len(plan) == 2 * (5 + 1)
    sampled = "actor_rollout_ref.rollout.val_kwargs"
    _, warm = at_hand(scale, SETTINGS, "grpo", [f"{sampled}.n=4", f"{sampled}.temperature=0.6"])
    assert (warm.evaluation.samples, warm.evaluation.final_samples, warm.evaluation.temperature) == (4, 4, 0.6)
    assert at_hand(scale, SETTINGS, "grpo", ["trainer.logger=[console]"]) == (scale, settings_at(scale, SETTINGS))


@pytest.mark.verl
def test_a_run_is_resumed_with_the_configuration_that_it_was_begun_with(tmp_path):
    told = overrides(SCALES["paper-qwen3-8b"], SETTINGS, "grpo")
    record(compose(told), tmp_path)
    same = ["trainer.nnodes=4", "trainer.save_freq=50", "actor_rollout_ref.rollout.gpu_memory_utilization=0.4"]
    same += ["actor_rollout_ref.model.path=/models/Qwen3-8B", "data.val_files=[/elsewhere/a.parquet]"]
    begun_with(compose([*told, *same]), tmp_path)
    begun_with(compose(told), tmp_path / "new")
    with pytest.raises(SettingsError, match=r"of verl \(actor_rollout_ref\.actor\.optim\.betas: \[0\.9, 0\.999\] → "):
        begun_with(compose([*told, "actor_rollout_ref.actor.optim.betas=[0.8,0.99]"]), tmp_path)
    with pytest.raises(SettingsError, match=r"rollout_is: None → token"):
        begun_with(compose([*told, "algorithm.rollout_correction.rollout_is=token"]), tmp_path)
