"""Filters and samplers in other trainers' hooks: verl's is the real one, the others are made again from the files that
each module names."""

import argparse
import doctest
import sys
from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from repro import plugins
from repro.plugins import NotForHosts, credits, kept, prime_rl

REWARDS, GROUPS = [1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0], [7] * 4 + [8] * 4 + [9] * 4
PROMPTS, RESPONSES = [8] * 12, [10, 44, 16, 53, 9, 12, 30, 20, 15, 25, 40, 8]


def twice(rollouts, progress, rng, *, weight=0.5):
    return rollouts.take(np.array([0, 0, 1, 8]), np.array([weight, 1.0, 2.0, 1.0]))


def test_credits_give_the_mean_over_what_was_drawn():
    found = credits(twice, REWARDS, GROUPS, PROMPTS, RESPONSES, weight=0.25)
    root, advantages_N = 3**0.5, np.zeros(12)  # GRPO: group 7 has √3 and −1/√3, group 9 ±1
    advantages_N[[0, 1, 8]] = [1.25 * root, -2 / root, 1.0]
    np.testing.assert_allclose(found, advantages_N * 12 / 4, rtol=1e-5)
    again = [credits("cost_aware", REWARDS, GROUPS, PROMPTS, RESPONSES, seed=seed) for seed in (0, 0, 1)]
    assert (again[0] == again[1]).all() and (again[0] != again[2]).any() and not again[0][4:8].any()
    assert not credits("zero_variance", [1, 1], [0, 0], [8, 8], [9, 9]).any()
    assert doctest.testmod(plugins) == (0, 1)


def test_what_a_host_cannot_do_is_refused():
    with pytest.raises(NotForHosts, match="chooses tokens"):
        credits("advantage_tokens", REWARDS, GROUPS, PROMPTS, RESPONSES)
    with pytest.raises(NotForHosts, match="samplers has no 'pod'"):
        credits("pod", REWARDS, GROUPS, PROMPTS, RESPONSES)


# slime: load_function of slime/utils/misc.py, Sample of slime/utils/types.py, and the ends of slime/ray/rollout.py
# `_convert_samples_to_train_data` and of filter_hub/base_types.py `call_dynamic_filter`.
def load_function(path):
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


@dataclass
class Sample:
    group_index: int
    tokens: list[int]
    response_length: int
    reward: float | dict
    loss_mask: list[int] | None = None
    remove_sample: bool = False

    def get_reward_value(self, args):
        return self.reward if not args.reward_key else self.reward[args.reward_key]


def test_slime_filters_groups_and_trains_on_what_the_sampler_chose():
    args = argparse.Namespace(
        reward_key="score", advantage_estimator="grpo", rollout_seed=42, repro={"pods": {"share": 0.5}}
    )
    samples = [
        Sample(group, [0] * (prompt + response), response, {"score": float(reward)})
        for group, prompt, response, reward in zip(GROUPS, PROMPTS, RESPONSES, REWARDS, strict=True)
    ]
    keep = load_function("repro.plugins.slime.keep_zero_variance")
    assert [keep(args, samples[start : start + 4]) for start in (0, 4, 8)] == [True, False, True]
    assert keep(args, [[sample] for sample in samples[4:8]]) is False  # trajectories in fragments
    raw, rewards = load_function("repro.plugins.slime.select_pods")(args, samples)
    assert raw == [float(reward) for reward in REWARDS]
    masks = [[0] * sample.response_length if sample.remove_sample else None for sample in samples]
    assert [number for number, mask in enumerate(masks) if mask is None] == [0, 1, 8, 10]
    np.testing.assert_allclose([rewards[row] for row in (0, 1, 8, 10)], [2, -2, 2, -2], rtol=1e-5)
    with pytest.raises(NotForHosts, match="has no 'pod'"):
        load_function("repro.plugins.slime.select_pod")
    with pytest.raises(NotForHosts, match="take grpo or gspo"):
        args.advantage_estimator = "ppo"
        load_function("repro.plugins.slime.select_pods")(args, samples)


# prime-rl: AdmissionGate, CurriculumResult and `_setup_gate` of orchestrator/curriculum/base.py, and the samples that
# `CustomAlgorithm.score_group` of orchestrator/algo/custom.py hands on.
class AdmissionGate:
    def admit(self, result):
        return True


@dataclass
class TrainingSample:
    token_ids: list[int]
    mask: list[bool]


@dataclass
class PrimeRollout:
    reward: float
    samples: list[TrainingSample]
    advantages: list[float] = field(default_factory=list)


def test_prime_rl_admits_groups_and_takes_an_advantage_for_each_rollout(monkeypatch):
    base = ModuleType("prime_rl.orchestrator.curriculum.base")
    base.AdmissionGate = AdmissionGate
    parts = base.__name__.split(".")
    for depth in range(1, len(parts)):
        monkeypatch.setitem(sys.modules, ".".join(parts[:depth]), ModuleType(".".join(parts[:depth])))
    monkeypatch.setitem(sys.modules, base.__name__, base)
    monkeypatch.delitem(sys.modules, prime_rl.__name__)
    module = import_module(prime_rl.__name__)

    def rollout(prompt, response, reward):
        return PrimeRollout(reward, [TrainingSample([0] * (prompt + response), [False] * prompt + [True] * response)])

    group = [rollout(*row) for row in zip(PROMPTS[:4], RESPONSES[:4], REWARDS[:4], strict=True)]
    gate = module.Gate(**{"filter": "pass_rate", "low": 0.2, "high": 0.3})
    assert isinstance(gate, AdmissionGate)
    assert gate.admit(SimpleNamespace(task_key="t", rollouts=tuple(group))) is True
    assert gate.admit(SimpleNamespace(task_key="t", rollouts=tuple(group[:3]))) is False  # 1/3
    found = module.select(group, **{"sampler": "pods", "share": 0.5})
    np.testing.assert_allclose(found, [2, -2, 0, 0], rtol=1e-5)
    expected = credits("cost_aware", REWARDS[:4], [0] * 4, PROMPTS[:4], RESPONSES[:4], seed=3)
    assert module.select(group, "cost_aware", seed=3) == expected.tolist()


@pytest.mark.verl
@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
def test_verl_trains_on_the_groups_that_the_filter_keeps(monkeypatch, mode):
    pytest.importorskip("verl", reason="verl is missing: `make extra-verl` installs it")
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1 import replay_buffer, trainer_base

    names = {uid: [f"{uid}_{session}_0" for session in range(4)] for uid in "abcd"}
    scores = {"a": [1, 0, 0, 0], "b": [1, 1, 1, 1], "c": [1, 1, 1, 0], "d": [1, 1, 0, 0]}
    present, asked = list("abc"), []

    class Queue:
        def kv_list(self):
            prompt = {"is_prompt": True, "status": "finished", "global_steps": 1}
            return {"train": {uid: prompt for uid in present} | {key: {} for uid in present for key in names[uid]}}

        def kv_batch_get(self, keys, partition_id, select_fields):
            assert select_fields == ["rm_scores"]
            return {"rm_scores": [np.array([0.0, scores[key[0]][int(key[2])]]) for key in keys]}

        def kv_clear(self, partition_id, keys):
            present[:] = [uid for uid in present if uid not in keys]

    def refill(trainer, prompts):
        asked.append(prompts)
        present.append("d")

    queue = Queue()
    sampler = {
        "max_off_policy_threshold": 8,
        "max_off_policy_strategy": "drop",
        "custom_sampler": {
            "path": "pkg://repro.plugins.verl",
            "name": "FilteredGroups" if mode == "sync" else "FilteredGroupsAsync",
        },
        "sampler_kwargs": {"filter": {"pass_rate": {"low": 0.1, "high": 0.6}}, "train_batch_size": 2},
    }
    trainer = SimpleNamespace(
        config=OmegaConf.create({"trainer": {"v1": {"sampler": sampler, mode: {}}}}), trainer_mode=mode
    )
    trainer._add_prompts_to_generate = lambda prompts: refill(trainer, prompts)
    made = trainer_base.PPOTrainer._build_replay_buffer(trainer)
    for module in (replay_buffer, import_module("repro.plugins.verl")):
        monkeypatch.setattr(module, "tq", queue)
    batch, metrics = made.sample(1, "train", 2)
    assert {key[0] for key in batch.keys} == {"a", "d"} and len(batch.keys) == 8
    assert metrics["training/filter_groups/evicted_samples"] == 2
    assert metrics[replay_buffer.DAPO_FILTERED_REWARD_COUNTS_KEY] == Counter({1.0: 1, 0.75: 1})
    assert asked[0] == 2


def test_a_filter_of_one_group():
    assert kept("pass_rate", [1, 0, 1], low=0.6).tolist() == [True]
    assert kept("zero_variance", REWARDS, GROUPS).tolist() == [True, False, True]
