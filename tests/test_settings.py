"""Settings: what is wrong is refused before anything runs, in one sentence with the place and the nearest name."""

import copy
import functools
import json
from typing import Any

import pytest
import yaml

from repro import arms
from repro.paths import PARAMS
from repro.plots.of_arms import on_one_batch
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
        # a key that is unknown or missing, also in a scale
        ({"engin": {}}, ["unknown key 'engin'", "did you mean 'engine'?"]),
        ({"engine.step": 3}, ["unknown key 'engine.step'", "did you mean 'steps'?"]),
        ({"scales.smoke.engine.step": 3}, ["at scale smoke", "unknown key 'engine.step'", "'steps'"]),
        ({"engine.steps": ...}, ["'engine.steps' is missing"]),
        # a name
        ({"scale": "smok"}, ["'smok'", "did you mean 'smoke'?"]),
        ({"baseline": "grop"}, ["'grop'", "did you mean 'grpo'?"]),
        ({COST_AWARE: ["cost-aware"]}, ["arms.cost-aware", "'cost-aware'", "did you mean 'cost_aware'?"]),
        ({COST_AWARE: [{"cost_aware": {"bet": 0.1}}]}, ["arms.cost-aware", "'bet'", "did you mean 'beta'?"]),
        ({"arms.1e5": {"title": "x", "about": "y", "group": "z"}}, ["'1e5' in arms", "begins with a letter"]),
        # a type
        ({"engine.steps": 60.5}, ["engine.steps", "60.5"]),
        ({"engine.learning_rate": "1e-4"}, ["engine.learning_rate", "'1e-4'"]),
        ({COST_AWARE: {"cost_aware": {"beta": 0.1}}}, ["arms.cost-aware.samplers", "list"]),
        # a value, alone or beside another
        ({"engine.steps": 0}, ["engine.steps", "0"]),
        (
            {"engine.rollouts_per_step": 256, "engine.minibatch": 60},
            ["no multiple of its minibatch 60"],
        ),
        ({"scales.smoke.engine": {"rollouts_per_step": 32, "minibatch": 15}}, ["multiple"]),  # a scale not chosen
        ({"policy.hidden": 96, "policy.heads": 5}, ["policy.hidden 96", "policy.heads 5"]),
        ({"task.families.extra": EXTRA}, ["task.families", "sum to 1.06"]),
        ({"task.harder.families": {"gcd": EXTRA | {"share": 1.0}}}, ["task.harder.families.gcd is trained on too"]),
        ({"evaluation.price": 0.7, "evaluation.generation_gflops": None}, ["price 0.7 needs generation_gflops"]),
        ({"evaluation.generation_gflops": 1e4, "evaluation.budget_gflops": 1e4}, ["generation_gflops 10000.0", "part"]),
        ({"policy.demonstrations.direct": 0.8, "policy.demonstrations.wordy": 0.3}, ["policy.demonstrations", "wordy"]),
        ({"seeds": [0, 1, 0]}, ["seeds: 0 is there twice"]),
        ({"theory.lower_bound.epsilon": 2.0}, ["theory.lower_bound", "epsilon 2.0 at lipschitz 1.0", "no bound"]),
        ({"statistics.levels": [0.496, 0.504]}, ["statistics.levels.0", "0.496 is no whole percent"]),
        ({COST_AWARE: [{"cost_aware": {"beta": 1.5}}]}, ["arms.cost-aware", "cost_aware.beta", "1.5"]),
        ({"engine.rollouts_per_step": 128, "arms.grpo.plan": {"uniform": {"group_size": 7}}}, ["arms.grpo", "of 7"]),
        # two titles alike
        ({"arms.zvf.title": "GRPO"}, ["is that of grpo too"]),
    ],
    ids=first_key,
)
def test_what_is_wrong_is_one_sentence_with_its_place(changes, parts):
    sentence = refusal(changes)
    assert all(part in sentence for part in parts), sentence


def test_an_arm_asked_for_by_a_wrong_name():
    settings = load()
    with pytest.raises(SettingsError, match=r"no arm 'cost_aware'.*did you mean 'cost-aware'\?"):
        settings.arm("cost_aware")
    assert settings.arm("cost-aware").samplers == [("cost_aware", {})]


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


def test_settings_are_shown_by_what_differs_from_the_defaults():
    """The whole has 57,000 characters, most of them of arms."""
    small = load(scale="smoke", seeds=[7]).with_arms({"grpo": "grpo", "mine": {"samplers": ["d3s"]}})
    first, named, changed, sections = repr(small).splitlines()
    assert first == "Settings at scale smoke, seeds 7" and named == "arms: grpo (baseline), mine"
    steps = load(scale="cpu").engine.steps
    assert f"engine.steps 4 ({steps}), " in changed and len(repr(load())) < 2000
    assert sections.startswith("sections: task, policy, engine, ")
    assert repr(small.arms["mine"]) == "OwnArm(title='mine', about='', group='Own', samplers=[('d3s', {})])"
    assert "<summary>engine</summary><pre>Engine(device=&#x27;cpu&#x27;, " in small._repr_html_()


def test_an_arm_shows_what_it_draws_from_one_batch():
    """Four groups of four: one right, three right, all right, none right."""
    settings = load(scale="smoke")
    drawn = {name: on_one_batch(settings.arm(name))["drawn"].tolist() for name in ("grpo", "zvf", "pods", "cost-aware")}
    assert drawn["grpo"] == [1] * 16 and drawn["zvf"] == [1] * 8 + [0] * 8
    assert drawn["pods"] == [1, 1, 0, 0, 1, 0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 0]
    assert sum(drawn["cost-aware"]) == 16 and not any(drawn["cost-aware"][8:])
    zvf = settings.arm("zvf")
    assert "group 4, no. 4" in zvf.plot().data and "group 4, no. 4" in zvf._repr_html_()
    unknown = zvf.model_copy(update={"samplers": [("absent", {})]})
    assert "no module" in unknown._repr_html_() and "<svg" not in unknown._repr_html_()
