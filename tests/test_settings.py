"""Settings: what is wrong is refused before anything runs, in one sentence with the place and the nearest name."""

import copy
import functools
import json
from typing import Any

import pytest
import yaml

from repro import arms
from repro.paths import PARAMS
from repro.settings import SettingsError, load, parse

COST_AWARE = "arms.cost-aware.samplers"
EXTRA = {"dataset": "gcd", "share": 0.06, "options": {}}


def first_key(value: Any) -> str:
    """The id of a case: the first key that it changes."""
    return next(iter(value)) if isinstance(value, dict) else ""


@functools.cache
def _committed() -> dict[str, Any]:
    return yaml.safe_load(PARAMS.read_text())


def raw(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """params.yaml as it stands, with `changes` of dotted keys (an Ellipsis removes the key)."""
    settings = copy.deepcopy(_committed())
    for place, value in (changes or {}).items():
        *sections, key = place.split(".")
        section = functools.reduce(lambda mapping, name: mapping[name], sections, settings)
        if value is ...:
            del section[key]
        else:
            section[key] = value
    return settings


def refusal(changes: dict[str, Any]) -> str:
    """The sentence with which the settings, or an arm in them, are refused."""
    with pytest.raises(SettingsError) as error:
        arms.check(parse(raw(changes)))
    sentence = str(error.value)
    assert "\n" not in sentence and len(sentence) < 400
    return sentence


@pytest.mark.parametrize("scale", list(_committed()["scales"]))
def test_every_arm_of_the_committed_settings_builds_at_every_scale(scale):
    settings = load(scale=scale)
    assert settings.scale == scale and settings.baseline in settings.arms
    arms.check(settings)


def test_a_scale_replaces_what_it_names_and_nothing_else():
    cpu, smoke = load(scale="cpu"), load(scale="smoke")
    named = _committed()["scales"]["smoke"]
    assert smoke.engine.steps == named["engine"]["steps"] != cpu.engine.steps
    assert smoke.engine.learning_rate == cpu.engine.learning_rate == _committed()["engine"]["learning_rate"]
    assert smoke.task.families == cpu.task.families and smoke.arms == cpu.arms
    assert smoke.theory.sgd.n_points == named["theory"]["sgd"]["n_points"]
    assert smoke.theory.sgd.dimension == cpu.theory.sgd.dimension


def test_overrides_replace_top_level_keys():
    settings = load(scale="cpu", seeds=[7], baseline="cost-aware")
    assert settings.seeds == [7] and settings.baseline == "cost-aware"
    assert load(scale="tutorial", seeds=[7]).seeds == [7] and load(scale="tutorial").seeds != [7]


def test_a_scale_may_set_what_the_section_leaves_at_its_default():
    changes = {
        "scales.smoke.arms": {"grpo": {"plan": {"uniform": {"group_size": 4}}}},
        "scales.smoke.task": {"families": {"gcd": {"emphasis": 2.0}}},
    }
    settings = parse(raw(changes | {"scale": "smoke"}))
    assert settings.arms["grpo"].plan == ("uniform", {"group_size": 4})
    assert settings.task.families["gcd"].emphasis == 2.0


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"task.families.sum-2.options": {"a\n": None}}, [r"task.families.sum-2.options.'a\n' is None: input should"]),
        ({"engin": {}}, ["unknown key 'engin'", "did you mean 'engine'?"]),
        ({"engine.step": 3}, ["unknown key 'engine.step'", "did you mean 'steps'?"]),
        ({"theory.sgd.n_point": 3}, ["unknown key 'theory.sgd.n_point'", "'n_points'"]),
        ({"policy.demonstrations.wordi": 0.1}, ["'policy.demonstrations.wordi'", "'wordy'"]),
        ({"task.families.gcd.shar": 0.1}, ["'task.families.gcd.shar'", "'share'"]),
        ({"arms.grpo.sampler": []}, ["'arms.grpo.sampler'", "'samplers'"]),
        ({"arms.sgpo.profile": {"samples": 8, "agian": 1}}, ["'arms.sgpo.profile.agian'", "'again'"]),
        ({"scales.smoke.engine.step": 3}, ["at scale smoke", "unknown key 'engine.step'", "'steps'"]),
        ({"scales.smoke.arms": {"grp": {}}}, ["at scale smoke", "'arms.grp.title' is missing"]),
        ({"engine.steps": ...}, ["'engine.steps' is missing"]),
        ({"task": ...}, ["'task' is missing"]),
    ],
    ids=first_key,
)
def test_unknown_and_missing_keys(changes, parts):
    sentence = refusal(changes)
    assert all(part in sentence for part in parts), sentence


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"scale": "smok"}, ["'smok'", "did you mean 'smoke'?"]),
        ({"scale": None}, ["scale", "cpu", "smoke"]),
        ({"baseline": "grop"}, ["'grop'", "did you mean 'grpo'?"]),
        ({COST_AWARE: ["cost_awar"]}, ["arms.cost-aware", "samplers", "'cost_awar'", "did you mean 'cost_aware'?"]),
        ({COST_AWARE: ["cost-aware"]}, ["'cost-aware'", "did you mean 'cost_aware'?"]),
        ({COST_AWARE: [{"cost_aware": {"bet": 0.1}}]}, ["arms.cost-aware", "'bet'", "did you mean 'beta'?"]),
        ({"arms.grpo.plan": "unifrom"}, ["arms.grpo", "plans", "'unifrom'", "'uniform'"]),
        ({"arms.grpo.objective": "grop"}, ["arms.grpo", "objectives", "'grop'", "'grpo'"]),
        ({"arms.grpo.objective": {"grpo": {"clip_hi": 0.3}}}, ["'clip_hi'", "'clip_high'"]),
        ({"arms.My Arm": {"title": "x", "about": "y", "group": "z"}}, ["My Arm"]),
        ({"arms.1e5": {"title": "x", "about": "y", "group": "z"}}, ["'1e5' in arms", "begins with a letter"]),
        ({"mixes": {"0o17": {"title": "x", "about": "y", "shares": {"gcd": 1.0}}}}, ["'0o17' in mixes"]),
        ({"scales.0x1": {}}, ["'0x1' in scales", "begins with a letter"]),
        ({"task.families.gcd.dataset": "gdc"}, ["task.families.gcd", "'gdc'", "'gcd'"]),
    ],
    ids=first_key,
)
def test_misspelt_names(changes, parts):
    sentence = refusal(changes)
    assert all(part in sentence for part in parts), sentence


def test_an_arm_asked_for_by_a_wrong_name():
    settings = load()
    with pytest.raises(SettingsError, match=r"no arm 'cost_aware'.*did you mean 'cost-aware'\?"):
        settings.arm("cost_aware")
    assert settings.arm("cost-aware").samplers == [("cost_aware", {})]


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"engine.steps": "60"}, ["engine.steps", "'60'"]),
        ({"engine.steps": 60.5}, ["engine.steps", "60.5"]),
        ({"engine.steps": True}, ["engine.steps", "True"]),
        ({"engine": 3}, ["engine", "3"]),
        ({"engine.learning_rate": "1e-4"}, ["engine.learning_rate", "'1e-4'"]),
        ({"engine.device": "gpu"}, ["engine.device", "'gpu'", "'cuda'"]),
        ({"seeds": 3}, ["seeds", "3"]),
        ({"seeds": ["a"]}, ["seeds.0", "'a'"]),
        ({"arms.grpo.title": None}, ["arms.grpo.title"]),
        ({"scales.smoke": 3}, ["scales.smoke"]),
        ({"scales": ["smoke", "cpu"]}, ["scales"]),
        ({COST_AWARE: [{"cost_aware": {"beta": "high"}}]}, ["arms.cost-aware", "cost_aware.beta", "'high'"]),
        ({COST_AWARE: [{"cost_aware": {"beta": True}}]}, ["arms.cost-aware", "cost_aware.beta", "True"]),
        ({COST_AWARE: [{"cost_aware": 0.2}]}, ["arms.cost-aware.samplers", "0.2"]),
        ({COST_AWARE: [["cost_aware", "random_subset"]]}, ["arms.cost-aware.samplers", "parameter"]),
        ({COST_AWARE: {"cost_aware": {"beta": 0.1}}}, ["arms.cost-aware.samplers", "list"]),
        ({COST_AWARE: "cost_aware"}, ["arms.cost-aware.samplers", "'cost_aware'"]),
        ({COST_AWARE: [3]}, ["arms.cost-aware.samplers", "3 should be a name"]),
        ({"arms.grpo.objective": None}, ["arms.grpo.objective", "None should be a name"]),
    ],
    ids=first_key,
)
def test_wrong_types(changes, parts):
    sentence = refusal(changes)
    assert all(part in sentence for part in parts), sentence


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"engine.steps": 0}, ["engine.steps", "0"]),
        ({"engine.temperature": 0.0}, ["engine.temperature", "0.0"]),
        ({"engine.learning_rate": float("inf")}, ["engine.learning_rate", "inf"]),
        ({"engine.kl": float("inf")}, ["engine.kl", "inf"]),
        ({"engine.weight_decay": float("nan")}, ["engine.weight_decay", "nan"]),
        (
            {"engine.rollouts_per_step": 256, "engine.minibatch": 60},
            ["engine.rollouts_per_step", "multiple of engine.minibatch"],
        ),
        ({"policy.batch": 1_000_000}, ["batch 1000000", "lower one of them"]),
        ({"policy.hidden": 96, "policy.heads": 5}, ["policy.hidden 96", "policy.heads 5"]),
        ({"policy.heads": 4, "policy.key_value_heads": 3}, ["policy.heads 4", "policy.key_value_heads 3"]),
        ({"task.families.extra": EXTRA}, ["task.families", "sum to 1.06"]),
        ({"task.harder.families.extra": EXTRA}, ["task.harder.families", "sum to 1.06"]),
        ({"task.harder.families": {"gcd": EXTRA | {"share": 1.0}}}, ["task.harder.families.gcd is trained on too"]),
        ({"task.harder.families.sum-8.options.max_terms": 99}, ["policy.max_length", "prompt"]),
        ({"evaluation.price": 0.7, "evaluation.generation_gflops": None}, ["price 0.7 needs generation_gflops"]),
        ({"evaluation.generation_gflops": 1e4, "evaluation.budget_gflops": 1e4}, ["generation_gflops 10000.0", "part"]),
        ({"evaluation.budget_gflops": None}, ["generation_gflops", "are a part of budget_gflops"]),
        ({"evaluation.price": 1.0}, ["evaluation.price", "1.0"]),
        ({"policy.demonstrations.direct": 0.8, "policy.demonstrations.wordy": 0.3}, ["policy.demonstrations", "wordy"]),
        ({"seeds": []}, ["seeds"]),
        ({"seeds": [0, 1, 0]}, ["seeds", "[0, 1, 0]", "twice"]),
        ({"seeds": [-1]}, ["seeds.0", "-1"]),
        ({"arms": {}}, ["arms"]),
        ({"statistics.confidence": 1.0}, ["statistics.confidence", "1.0"]),
        ({"theory.sgd.n_points": 2}, ["theory.sgd", "n_points 2 is below dimension 10"]),
        ({"theory.subset.n_points": 2}, ["theory.subset", "n_points 2 is below dimension 10"]),
        ({"theory.subset.tail": 1e-15}, ["theory.subset.tail", "1e-15"]),
        ({"theory.lower_bound.epsilon": 2.0}, ["theory.lower_bound", "epsilon 2.0 at lipschitz 1.0", "no bound"]),
        ({"theory.lower_bound.epsilon": 1e-15}, ["theory.lower_bound", "epsilon 1e-15"]),
        ({"theory.lower_bound.n_components": 2}, ["theory.lower_bound", "n_components 2 gives no bound"]),
        ({"theory.proxy.n_groups": 1}, ["theory.proxy.n_groups", "1"]),
        (
            {"language_model.samples": 10**6},
            ["language_model", "samples 1000000 × max_new_tokens 64", "fits"],
        ),
        ({"language_model.sums_each": 10**5}, ["language_model", "queries 300030 × samples 16", "lower one of them"]),
        ({"planner.batches": 10**6, "planner.groups": 10**6}, ["planner", "batches 1000000 × groups 1000000", "fits"]),
        ({"planner.pool": 10**6, "profile.samples": 1000}, ["planner_pool 1000000 × profile_samples 1000", "fits"]),
        ({"statistics.levels": [0.496, 0.504]}, ["statistics.levels.0", "0.496 is no whole percent"]),
        ({"statistics.levels": [1.0, 0.999999]}, ["statistics.levels.1", "0.999999 is no whole percent"]),
        ({"statistics.levels": [1e-300]}, ["statistics.levels.0", "1e-300 is no whole percent"]),
        ({COST_AWARE: [{"cost_aware": {"beta": 1.5}}]}, ["arms.cost-aware", "cost_aware.beta", "1.5"]),
        ({COST_AWARE: [{"cost_aware": {"beta": float("nan")}}]}, ["cost_aware.beta", "nan"]),
        ({"arms.grpo.objective": {"grpo": {"clip_low": -0.1}}}, ["arms.grpo", "grpo.clip_low", "-0.1"]),
        ({"arms.grpo.plan": {"uniform": {"group_size": 1}}}, ["arms.grpo", "uniform.group_size", "1"]),
        ({"engine.rollouts_per_step": 128, "arms.grpo.plan": {"uniform": {"group_size": 7}}}, ["arms.grpo", "of 7"]),
    ],
    ids=first_key,
)
def test_impossible_values(changes, parts):
    sentence = refusal(changes)
    assert all(part in sentence for part in parts), sentence


@pytest.mark.parametrize(
    "title", ["GRPO ", "GRPO\u200b", "\u2060GRPO", "ＧＲＰＯ", "GR\u00adPO", "GRPO\ufe0f", "GRPO\u3164", "GRPO\u00a0"]
)
def test_titles_that_look_alike_are_refused(title):
    shown = load().arms["grpo"].title.replace("GRPO", title)
    assert "is that of grpo too" in refusal({"arms.zvf.title": shown})


def test_blanks_within_a_title_count_once_and_one_that_shows_nothing_is_refused():
    apart = {"arms.grpo.title": "A  method", "arms.zvf.title": "A \u2003method"}
    assert "arms.zvf.title" in refusal(apart) and "is that of grpo too" in refusal(apart)
    assert "shows nothing; write a title" in refusal({"arms.zvf.title": "\u200b"})
    assert "arms.zvf.group is empty" in refusal({"arms.zvf.group": "\u3164"})


def test_a_slip_in_a_scale_that_is_not_chosen_is_found_too():
    assert "engine.steps" in refusal({"scales.smoke.engine.steps": -1})
    assert "multiple" in refusal({"scales.smoke.engine": {"rollouts_per_step": 32, "minibatch": 15}})


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("scale: [cpu\nseeds: 3\n", ["params.yaml", "not valid YAML", "line 2"]),
        ("", ["params.yaml"]),
        ("- scale\n", ["params.yaml"]),
        *(
            (f"scale: {tagged}\n", ["params.yaml"])
            for tagged in ("!!timestamp foo", "!!int [1]", "!!int {a: 1}", "!!float [1]", "!!set [0]", "!!map [1]")
        ),
    ],
)
def test_a_file_that_is_no_mapping(tmp_path, text, parts):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as error:
        load(path)
    assert all(part in str(error.value) for part in parts) and "\n" not in str(error.value)


def test_a_key_written_twice_is_refused_and_not_the_last_one_taken(tmp_path):
    path = tmp_path / "params.yaml"
    first = "\n  grpo:\n"
    text = PARAMS.read_text()
    assert text.count(first) == 1
    path.write_text(text.replace(first, first + "    {group: x, title: Another, about: copied}" + first))
    with pytest.raises(SettingsError, match="grpo"):
        load(path)


def test_settings_cannot_be_changed_after_they_were_checked():
    with pytest.raises(ValueError, match="frozen"):
        load().engine.steps = 3


def test_the_parameters_of_an_arm_are_bound_to_its_functions():
    arm = parse(raw({COST_AWARE: [{"cost_aware": {"beta": 0.25}}]})).arm("cost-aware")
    method = arms.build("cost-aware", arm)
    others = {"recentre": "constant", "tokens": None, "resampling": "independent"}
    assert [sampler.keywords for sampler in method.samplers] == [{"beta": 0.25, **others}]
    assert method.plan.keywords == {"group_size": 8}
    assert method.objective.keywords == {"clip_low": 0.2, "clip_high": 0.28}
    assert method.plan.func.__module__ == "repro.methods.plans.uniform"


@pytest.mark.parametrize(("price", "weight"), [(None, 1), (0.3, 1), (0.6, 3.5), (0.9, 21)])
def test_generation_has_its_price_as_share_of_the_baselines_bill(price, weight):
    at = load().evaluation.model_copy(update={"budget_gflops": 400.0, "generation_gflops": 120.0, "price": price})
    bill = weight * 120 + 280
    assert (at.weight, at.bill_gflops) == pytest.approx((weight, bill))
    assert weight * 120 / bill == pytest.approx(price or 0.3)


def test_settings_that_have_joined_leave_no_trace_at_their_defaults():
    """Else runs that were made before would be asked for by other keys."""
    settings = load(scale="cpu")
    evaluation = {"generation_gflops": None, "price": None, "greedy": False, "common": False}
    demonstrations = {"bugs": {}, "clean": 0.0, "again": True}
    for section, joined in (
        (settings.evaluation, evaluation),
        (settings.policy.demonstrations, demonstrations),
        (settings.task, {"harder": None}),
    ):
        before = set(type(section).model_fields) - set(joined)
        for given in ({}, joined):
            again = type(section).model_validate({**section.model_dump(include=before), **given})
            assert set(again.model_dump()) == set(json.loads(again.model_dump_json())) == before


def test_settings_survive_the_round_trip_of_a_notebook_parameter():
    settings = load()
    again = parse({**yaml.safe_load(yaml.safe_dump(settings.model_dump(mode="json"))), "scales": {settings.scale: {}}})
    assert again == settings


def test_an_arm_that_is_no_longer_there_goes_by_its_name():
    assert load().titles_of(["sgpo", "gone"]) == {"sgpo": "sGPO", "gone": "gone"}
