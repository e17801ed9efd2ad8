"""What the settings say of arms: groups, own seeds, snapshots, mixes; and that every arm is tried beforehand."""

import subprocess
import sys

import pytest
from test_settings import raw, refusal

from repro import arms
from repro.methods.rollouts import Rollouts
from repro.methods.samplers import random_subset as module
from repro.pipeline.stage import stage
from repro.policy.model import SHIPPED
from repro.runs.key import Asked
from repro.settings import SettingsError, load, parse

SETTINGS = load()
MIX = {"title": "few silent", "about": "", "shares": {"sum-6": 0.75, "gcd": 0.25}}


def test_arms_with_seeds_of_their_own_are_left_out_of_comparisons():
    settings = parse(raw({"arms.gspo.seeds": [3, 4]}))
    own = {name for name, arm in settings.arms.items() if arm.seeds is not None}
    assert own == {"grpo-again", "gspo"}
    assert settings.compared_arms == [name for name in settings.all_arms if name not in own]
    assert settings.seeds_of("gspo") == [3, 4] and settings.seeds_of("grpo") == settings.seeds
    assert [name for name in SETTINGS.arms if name not in SETTINGS.compared_arms] == ["grpo-again"]


def test_the_noise_floor_repeats_one_seed_of_the_baseline_and_has_as_many_others_as_there_are_seeds():
    for scale in ("cpu", "smoke"):
        settings = load(scale=scale)
        again, common = settings.seeds_of("grpo-again"), settings.seeds
        assert len(again) == len(set(again)) == 1 + len(SETTINGS.seeds)
        assert [seed for seed in again if seed in common] == [0]
    baseline, again = (SETTINGS.arms[name].model_dump() for name in ("grpo", "grpo-again"))
    assert {key for key in baseline if baseline[key] != again[key]} == {"title", "about", "group", "seeds", "repeat"}


def test_every_arm_has_its_group_and_groups_stand_together():
    groups = [arm.group for arm in SETTINGS.arms.values()]
    in_order = list(dict.fromkeys(groups))
    assert groups == sorted(groups, key=in_order.index)
    assert "group" in refusal({"arms.grpo": {"title": "x", "about": "y"}})


def test_snapshots_come_at_multiples_up_to_the_end_and_only_of_the_arms_named():
    changes = {"engine.steps": 50, "fidelity.snapshot_every": 20, "fidelity.arms": ["zvf"], "drift.arms": []}
    settings = parse(raw(changes))
    assert settings.snapshots_of("zvf") == [20, 40] and settings.snapshots_of("grpo") == []
    assert parse(raw(changes | {"engine.steps": 40})).snapshots_of("zvf") == [20, 40]
    assert parse(raw(changes | {"engine.steps": 19})).snapshots_of("zvf") == []
    both = parse(raw(changes | {"drift.arms": ["zvf", "sgpo"], "drift.snapshot_every": 25}))
    assert both.snapshots_of("zvf") == [20, 25, 40, 50] and both.snapshots_of("sgpo") == [25, 50]


def test_an_arms_profile_is_the_first_part_of_the_common_one():
    assert parse(raw({"arms.sgpo.profile": {"samples": 32, "again": 2}})).arm("sgpo").profile.again == 2
    with pytest.raises(SettingsError, match=r"arms\.sgpo\.profile\.samples 33 exceeds profile\.samples 32"):
        parse(raw({"arms.sgpo.profile": {"samples": 33}}))
    with pytest.raises(SettingsError, match=r"arms\.sgpo\.profile\.samples is 0"):
        parse(raw({"arms.sgpo.profile": {"samples": 0}}))
    assert parse(raw({})).steps_of("grpo-longer") > parse(raw({})).engine.steps == parse(raw({})).steps_of("grpo")


def test_an_arms_own_engine_settings_replace_the_common_ones_for_it_alone():
    settings = parse(raw({"arms.gspo.engine": {"kl": 0.01, "steps": 7, "refill_rounds": 3}}))
    own = settings.engine_of("gspo")
    assert own.model_dump() == settings.engine.model_dump() | {"kl": 0.01, "steps": 7, "refill_rounds": 3}
    assert settings.engine_of("grpo") == settings.engine and settings.steps_of("gspo") == 7
    decayed = SETTINGS.engine_of("grpo-kl-decay")
    assert decayed.model_dump() == SETTINGS.engine.model_dump() | {"kl": 0.001, "weight_decay": 0.1}
    assert SETTINGS.engine.kl == SETTINGS.engine.weight_decay == 0.0  # which is what sets that arm apart


def test_an_arms_own_engine_settings_change_what_its_training_depends_on_and_no_other():
    changed = parse(raw({"arms.gspo.engine": {"kl": 0.01}}))
    before, after = (
        {name: Asked(each, name, 0, SHIPPED).asks for name in ("gspo", "grpo", "d3s")} for each in (SETTINGS, changed)
    )
    assert {name for name in before if before[name] != after[name]} == {"gspo"}
    others = ("fidelity", "parity_train", "mixes")
    assert [stage(name, SETTINGS).settings(SETTINGS) == stage(name, changed).settings(changed) for name in others] == (
        [True] * 3
    )


def test_a_mix_replaces_shares_and_nothing_else():
    settings = parse(raw({"mixes": {"few-silent": MIX | {"shares": MIX["shares"] | {"sum-2": 0.0}}}}))
    own = settings.with_mix("few-silent")
    assert {name: family.share for name, family in own.task.families.items()} == {"sum-6": 0.75, "gcd": 0.25}
    for name, family in own.task.families.items():
        assert family.options == settings.task.families[name].options
    assert all(own.snapshots_of(arm) == [] for arm in own.arms)
    changed = {"task", "fidelity", "drift"}
    assert own.model_dump(exclude=changed) == settings.model_dump(exclude=changed)
    assert own.task.model_dump(exclude={"families"}) == settings.task.model_dump(exclude={"families"})
    with pytest.raises(SettingsError, match=r"no mix 'few-silence' .*did you mean 'few-silent'\?"):
        settings.with_mix("few-silence")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"fidelity.arms": ["grpo", "zfv"]}, ["fidelity.arms", "'zfv'", "did you mean 'zvf'?"]),
        ({"primaries": ["d3s", "d3"]}, ["primaries", "'d3'", "did you mean 'd3s'?"]),
        ({"mixes": {"m": MIX | {"shares": {"sum-4": 0.5, "sum-5": 0.4}}}}, ["mixes.m", "sum to 0.9"]),
        ({"arms.gspo.seeds": [2, 2]}, ["arms.gspo.seeds: 2 is there twice"]),
        ({"baseline": "grpo-again"}, ["baseline", "'grpo-again'", "cannot be paired"]),
        ({"arms.gspo.aggregation": "sequence"}, ["arms.gspo.aggregation", "'sequence'", "'constant-length'"]),
        ({"arms.zvf.filter": "zero_varianc"}, ["arms.zvf", "filters", "did you mean 'zero_variance'?"]),
        ({"arms.grpo.reward": {"coin_flip": {"probability": 1.0}}}, ["coin_flip.probability", "1.0"]),
        ({"arms.grpo.objective": "__init__"}, ["arms.grpo.objective", "'__init__' is no name of a method"]),
        ({"arms.gspo.engine": {"klx": 0.1}}, ["unknown key 'arms.gspo.engine.klx'", "did you mean 'kl'?"]),
        ({"arms.gspo.engine": {"minibatch": 7}}, ["arms.gspo.engine", "no multiple of its minibatch 7"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_entry_is_one_sentence(changes, parts):
    sentence = refusal(changes)
    assert all(part in sentence for part in parts), sentence


def test_a_batch_without_signal_is_no_fault_of_a_sampler(monkeypatch):
    def picky(rollouts: Rollouts, progress: float, rng):
        return rollouts.take([])

    picky.__name__ = "random_subset"
    monkeypatch.setattr(module, "random_subset", picky)
    arms.check(SETTINGS)


def test_the_functions_of_every_arm_are_tried_before_anything_runs(monkeypatch):
    """Late in training too; what else may be wrong with them is in test_guard.py."""

    def late(rollouts: Rollouts, progress: float, rng):
        if progress > 0.9:
            raise KeyError("share")
        return rollouts

    def per_rollout(rewards_N, group_N):
        return rewards_N > 0

    def unknown_group(rewards_N, group_N):
        return {}["group"]

    def lazy(queries, rollouts_per_step, rng):
        raise ValueError("no plan today")
        yield

    for name, function, sentence in (
        ("samplers.random_subset", late, "arms.random-subset: sampler random_subset: KeyError: 'share'"),
        ("filters.zero_variance", per_rollout, "; it should return one entry per group, groups in sorted order"),
        ("advantages.centred", unknown_group, "arms.dr-grpo: advantage centred: KeyError: 'group'"),
        ("plans.uniform", lazy, "arms.grpo: plan uniform: ValueError: no plan today"),
    ):
        function.__name__ = name.rpartition(".")[2]
        with monkeypatch.context() as patch:
            patch.setattr(f"repro.methods.{name}.{function.__name__}", function)
            assert sentence in refusal({})


def test_advantages_are_tried_on_the_rewards_that_training_sees(monkeypatch):
    seen = []

    def centred(rewards_N, group_N):
        seen.append(rewards_N)
        return rewards_N

    monkeypatch.setattr("repro.methods.advantages.centred.centred", centred)
    settings = parse(raw({"arms.dr-grpo.reward": {"coin_flip": {"probability": 0.01}}}))
    arms.try_out(arms.build("dr-grpo", settings.arms["dr-grpo"]), 0.0)
    assert seen[0].sum() <= 1  # eight of the sixteen verdicts are right


CELLS = """
from IPython.core.interactiveshell import InteractiveShell
from repro import arms
from repro.settings import load

shell = InteractiveShell.instance()
shell.run_cell("1", store_history=True)
shell.run_cell("def mine(rollouts, progress, rng):\\n    return rollouts.absent", store_history=True)
for sampler in (shell.user_ns["mine"], "cost_awar", {"cost_aware": {"bet": 1.0}}):
    try:
        arms.check(load(scale="smoke").with_arms({"own": {"samplers": [sampler]}}))
    except ValueError as error:
        print(error)
"""


def test_an_error_about_an_arm_of_a_cell_names_the_cell_and_the_arm():
    done = subprocess.run([sys.executable, "-c", CELLS], capture_output=True, text=True, check=True, timeout=120)
    failed, unknown, wrong = done.stdout.splitlines()[-3:]
    assert failed.startswith("arm own (Cell In[2]): sampler mine: AttributeError: ")
    assert failed.endswith(" (in mine, Cell In[2]:2)")
    assert unknown.endswith("has no module 'cost_awar'; did you mean 'cost_aware'?") and unknown.startswith("arm own: ")
    assert wrong == "arm own: cost_aware takes no parameter 'bet'; did you mean 'beta'?"
    assert "params.yaml" not in done.stdout
