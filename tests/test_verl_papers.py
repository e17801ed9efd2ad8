"""The papers' scales as presets: the tables to the letter, and what verl is told by them."""

import inspect
from pathlib import Path

import pandas as pd
import pytest

from repro import settings as settings_module
from repro.arms import build
from repro.files import write_parquet
from repro.methods.samplers.d3s import d3s
from repro.settings import SettingsError
from repro.settings.arm import EngineChanges
from repro.verl import presets
from repro.verl.compose import compose
from repro.verl.composed import begun_with, flat, record
from repro.verl.layers import Asked, arm_of, layered, written
from repro.verl.papers import PAPERS, SCALES, PaperScale, Value, arm_at, values_table
from repro.verl.prepare import prepare
from repro.verl.seeds import settings_at

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


def test_a_value_has_one_source():
    for sources in ({}, {"paper": "Table 1", "ours": "a guess"}):
        with pytest.raises(ValueError, match="a value has one source"):
            Value(value=1, **sources)


def asked(name: str, arm: str, *overrides: str, **more) -> Asked:
    preset = presets.find(name)
    runs = Path("runs", name, arm, "seed-0")
    told = {"output": runs, "data": "no-such-folder", "sets": tuple(preset.scale.data_sets), **more}
    return Asked(arm, preset, preset.model, overrides=overrides, **told)


def told(name: str, arm: str, **more) -> dict:
    run = asked(name, arm, **more)
    entry = arm_of(run, SETTINGS)
    return layered(run, SETTINGS, entry, build(arm, entry))


def test_an_arm_says_objective_and_aggregation():
    actor, name = "actor_rollout_ref.actor", "paper-qwen2-5-math-7b"
    grpo = told(name, "grpo")
    assert grpo[f"{actor}.policy_loss.loss_mode"] == "vanilla"
    assert grpo[f"{actor}.loss_agg_mode"] == "seq-mean-token-mean"
    assert (grpo[f"{actor}.clip_ratio_low"], grpo[f"{actor}.clip_ratio_high"]) == (0.2, 0.2)
    assert grpo["repro.profile"] is None
    assert grpo["actor_rollout_ref.rollout.n"] == 32
    gspo = told(name, "d3s-gspo")
    assert gspo[f"{actor}.policy_loss.loss_mode"] == "gspo"
    assert gspo[f"{actor}.clip_ratio_high"] == 0.2  # the table's, not the objective's own default
    assert gspo[f"{actor}.loss_agg_mode"] == "token-mean"
    assert told(name, "dr-grpo")["algorithm.norm_adv_by_std_in_grpo"] is False
    assert told(name, "sgpo")["repro.profile"].endswith("sgpo/seed-0/profile")


def at(name: str, arm: str, settings=SETTINGS):
    return settings_at(settings.model_copy(update={"scale": name}), arm)


def test_settings_at_a_scale_are_the_tables_and_an_arms_own_come_first():
    name = "paper-qwen2-5-math-1-5b-instruct-cispo"
    scale = SCALES[name]
    own = {
        arm: at(name, arm) for arm in ("grpo", "d3s", "sgpo", "cispo", "sgpo-filter", "grpo-kl-decay", "grpo-longer")
    }
    assert {arm: own[arm].arm(arm).aggregation for arm in ("grpo", "d3s", "sgpo")} == {
        "grpo": scale.aggregation.value,
        "d3s": "token-mean",
        "sgpo": "group-mean",
    }
    engine = own["grpo"].engine
    assert (engine.rollouts_per_step, engine.minibatch, engine.steps) == (512 * 16, 128 * 16, scale.steps)
    assert engine.max_new_tokens == scale.max_response_tokens.value
    assert own["cispo"].arm("cispo").objective == ("cispo", {"clip_low": 0.0, "clip_high": 5.0})
    assert own["grpo"].arm("grpo").plan == ("uniform", {"group_size": 16})
    assert own["sgpo-filter"].arm("sgpo-filter").plan[1]["group_size"] == 16  # its equal groups
    arm = SETTINGS.arm("cispo").model_copy(
        update={"objective": ("cispo", {"clip_low": 1.0}), "plan": ("uniform", {"group_size": 4})}
    )
    assert arm_at(scale, arm).objective == ("cispo", {"clip_low": 1.0, "clip_high": 5.0})
    assert arm_at(scale, arm).plan == ("uniform", {"group_size": 4})
    decayed = own["grpo-kl-decay"].engine_of("grpo-kl-decay")
    assert decayed.model_dump() == engine.model_dump() | {"kl": 0.001, "weight_decay": 0.1}
    assert engine.weight_decay == 0.01  # the table's, here another than the arm's
    hot = EngineChanges(learning_rate=1.0, rollouts_per_step=8, minibatch=8, kl=0.5)
    arms = {**SETTINGS.arms, "gspo": SETTINGS.arm("gspo").model_copy(update={"engine": hot})}
    tuned = at(name, "gspo", SETTINGS.model_copy(update={"arms": arms})).engine_of("gspo")
    assert tuned == at(name, "gspo").engine.model_copy(update={"kl": 0.5})  # rate and batch are the table's
    share = SETTINGS.steps_of("grpo-longer") / SETTINGS.engine.steps
    assert own["grpo-longer"].steps_of("grpo-longer") == round(share * scale.steps) > own["grpo"].steps_of("grpo")


def test_every_scale_of_the_papers_can_be_named_in_params():
    for name in SCALES:
        assert settings_at(settings_module.load(scale=name), "grpo").scale == name


@pytest.mark.parametrize("name", ["own", "gpu-smoke", *SCALES])
def test_every_arm_goes_with_every_preset(name):
    """Without verl: what it is told of the arm; and a group has the size of the plan, or that which the table says."""
    preset, rollout = presets.find(name), "actor_rollout_ref.rollout"
    for arm in SETTINGS.all_arms:
        run = Asked(arm, preset, preset.model or "mine", Path("run"))
        entry = arm_of(run, SETTINGS)
        method = build(arm, entry)
        values, planned = (
            layered(run, SETTINGS, entry, method),
            getattr(method.plan, "keywords", {}).get("group_size", 8),
        )
        assert values["repro.arm"] == arm and (values["repro.profile"] is None) == (entry.profile is None)
        own = SETTINGS.arm(arm).plan[1].get("group_size")
        assert entry.plan[1].get("group_size") in (own, preset.overrides.get(f"{rollout}.n"))
        assert values[f"{rollout}.n"] == (preset.overrides[f"{rollout}.n"] if preset.scale else planned)
        assert all(entry.startswith("++") and "=" in entry for entry in written(values))


@pytest.mark.verl
@pytest.mark.parametrize("name", SCALES)
def test_verl_accepts_every_scale_with_every_kind_of_arm(name):
    verls, scale = flat(compose([])), SCALES[name]
    assert set(scale.overrides) <= set(verls)  # verl has every key
    first = name == next(iter(SCALES))
    for arm in ("grpo", "cispo", "gspo", "dr-grpo", "zvf-cost-aware", "d3s", "sgpo") if first else ("grpo", "d3s-gspo"):
        run = prepare(asked(name, arm, seed=3, gpus=(2, 4)), SETTINGS)
        config = run.config
        actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
        assert run.settings == at(name, arm)  # what is known without verl
        assert (actor.optim.lr, rollout.n) == (scale.learning_rate.value, scale.group_size.value)
        assert config.data.train_batch_size == scale.train_batch.value
        assert actor.ppo_mini_batch_size == scale.minibatch.value
        assert (actor.use_kl_loss, actor.kl_loss_coef) == (True, scale.kl.value)
        assert actor.clip_ratio_c == scale.dual_clip.value
        lengths = scale.max_prompt_tokens.value, scale.max_response_tokens.value
        assert (rollout.prompt_length, rollout.response_length, rollout.max_model_len) == (*lengths, sum(lengths))
        assert actor.loss_scale_factor == (lengths[1] if arm == "dr-grpo" else None)
        assert (config.trainer.nnodes, config.trainer.n_gpus_per_node) == (2, 4)
        assert {config.data.seed, rollout.seed, actor.data_loader_seed, actor.fsdp_config.seed} == {3}
        assert config.trainer.default_local_dir == f"runs/{name}/{arm}/seed-0/checkpoints"
        assert config.trainer.experiment_name == f"{arm}-seed-3"
        assert config.repro.best == scale.validation_data.value[0]
        assert list(config.data.val_files) == [f"no-such-folder/{each}.parquet" for each in scale.validation_data.value]


def write_prompts(folder: Path, *names: str) -> None:
    rows = [
        {"data_source": "x", "prompt": [{"role": "user", "content": f"{n}?"}], "extra_info": {"index": n}}
        for n in range(12)
    ]
    for name in names:
        write_parquet(pd.DataFrame(rows), folder / f"{name}.parquet")


@pytest.mark.verl
def test_what_the_command_line_says_reaches_the_plan_and_the_settings(tmp_path):
    from repro.verl.prepare import settle, write

    name = "paper-qwen2-5-math-1-5b-instruct"
    write_prompts(tmp_path, *SCALES[name].data_sets)
    sizes = ["actor_rollout_ref.rollout.n=8", "data.train_batch_size=2", "data.max_response_length=48"]
    sizes += ["actor_rollout_ref.actor.ppo_mini_batch_size=2", "trainer.total_training_steps=5", "trainer.test_freq=20"]
    sampled = "actor_rollout_ref.rollout.val_kwargs"
    more = ["actor_rollout_ref.actor.use_kl_loss=false", f"{sampled}.n=4", f"{sampled}.temperature=0.6"]
    run = prepare(asked(name, "zvf", *sizes, *more, data=str(tmp_path), output=tmp_path / "run"), SETTINGS)
    engine, evaluation = run.settings.engine_of("zvf"), run.settings.evaluation
    assert (engine.rollouts_per_step, engine.max_new_tokens, engine.steps, engine.log_every) == (16, 48, 5, 20)
    assert (engine.kl, run.config.actor_rollout_ref.rollout.max_model_len) == (0.0, 1024 + 48)
    assert run.settings.arm("zvf").plan == ("uniform", {"group_size": 8})
    assert (evaluation.samples, evaluation.final_samples, evaluation.temperature) == (4, 4, 0.6)
    settle(run, None)
    write(run, None)
    asked_of = pd.read_parquet(tmp_path / "run/queries.parquet")
    assert [extra["index"] for extra in asked_of["extra_info"]] == list(range(12))
    assert settings_module.stored(tmp_path / "run/settings.json") == run.settings
    settle(run, None)  # the same again
    for other, why in (
        (
            "actor_rollout_ref.actor.optim.lr=3e-6",
            r"begun with other settings \(engine\.learning_rate: 1e-06 → 3e-06\)",
        ),
        ("actor_rollout_ref.actor.optim.betas=[0.8,0.9]", r"other settings of verl \(.*betas"),
    ):
        with pytest.raises(SettingsError, match=why):
            changed = prepare(
                asked(name, "zvf", *sizes, *more, other, data=str(tmp_path), output=tmp_path / "run"), SETTINGS
            )
            settle(changed, None)


@pytest.mark.verl
def test_a_run_is_resumed_with_the_configuration_that_it_was_begun_with(tmp_path):
    def config(*overrides: str):
        return prepare(asked("paper-qwen3-8b", "grpo", *overrides), SETTINGS).config

    record(config(), tmp_path)
    begun_with(config("trainer.nnodes=4", "trainer.save_freq=20", "actor_rollout_ref.rollout.max_num_seqs=4"), tmp_path)
    begun_with(config(), tmp_path / "new")
    with pytest.raises(SettingsError, match=r"rollout_is: None → token"):
        begun_with(config("algorithm.rollout_correction.rollout_is=token"), tmp_path)
