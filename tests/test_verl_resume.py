"""What our trainer puts around verl's: groups in the plan's order, a record that no crash parts from its checkpoint,
and evaluations where the uninterrupted run has them."""

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

pytest.importorskip("tensordict", reason="verl is not installed here: `make extra-verl` installs it")

from omegaconf import OmegaConf

from repro.arms import build
from repro.settings import Arm, SettingsError
from repro.verl.record import Record

pytestmark = pytest.mark.verl

EVERY, STEPS = 20, 100


@pytest.fixture(scope="module")
def modules():
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    from repro.verl import trainer

    return SimpleNamespace(base=PPOTrainerSync, trainer=trainer)


def new_trainer(modules, folder, step: int):
    """A trainer after `step` steps, without verl's workers."""
    trainer = modules.trainer.ArmTrainer.__new__(modules.trainer.ArmTrainer)
    paths = {"default_local_dir": str(folder), "resume_mode": "auto", "val_before_train": True}
    trainer.config = OmegaConf.create({"trainer": paths})
    trainer.record = Record(0, EVERY, 1, flops=None)
    trainer.run = SimpleNamespace(output=folder / "tables")
    trainer.cursor, trainer.diverged, trainer.global_steps, trainer.total_training_steps = 7, False, step, STEPS
    trainer.plan_file = None
    return trainer


def resumed(modules, folder, step: int, monkeypatch):
    trainer = new_trainer(modules, folder, 0)
    monkeypatch.setattr(modules.base, "_load_checkpoint", lambda self: setattr(self, "global_steps", step))
    trainer._load_checkpoint()
    return trainer


def saved(modules, folder, step: int, monkeypatch, evaluations=(), diverged: bool = False):
    trainer = new_trainer(modules, folder, step)
    trainer.record.log.evaluations += [{"seed": 0, "step": at, "diverged": False} for at in evaluations]
    trainer.diverged = diverged
    monkeypatch.setattr(modules.base, "_save_checkpoint", lambda self: None)
    trainer._save_checkpoint()


def test_after_a_refill_the_plans_first_groups_that_fit_are_trained_on(modules):
    trainer = new_trainer(modules, Path(), 1)
    trainer.run, trainer.sizes_G = SimpleNamespace(rollouts_per_step=16), [4, 8, 2, 6, 4, 2]
    trainer.place = {f"uid-{place}": place for place in range(1, 9)}  # place 6 is 0 of the next round
    uids = {"uid-8", "uid-6", "uid-5", "uid-3", "uid-1"}  # of 2, 4, 2, 6, 8
    assert trainer._that_fit(uids) == ["uid-1", "uid-3", "uid-5"]
    assert trainer._that_fit({"uid-5", "uid-3"}) == ["uid-3", "uid-5"]


def test_verls_buffer_asks_the_plan_and_polls_seldom(modules, monkeypatch):
    calls = []
    buffer = SimpleNamespace(
        poll_interval=2.0,
        partitions={"train": {}},
        _clear_groups=lambda partition, uids: calls.append(uids),
        _select_prompt_uids=lambda partition, uids, count: (sorted(uids, reverse=True)[:count], {"k": {}}, {"u": 1}),
    )
    monkeypatch.setattr(modules.base, "_build_replay_buffer", lambda self: buffer)
    for rollout, seconds in (("vllm", 2.0), ("hf", 0.05)):
        trainer = new_trainer(modules, Path(), 1)
        trainer.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"name": rollout}}})
        trainer.run, trainer.sizes_G, trainer.place = SimpleNamespace(rollouts_per_step=8), [4, 4, 4], {"a": 0, "b": 1}
        built = trainer._build_replay_buffer()
        assert built.poll_interval == seconds
        buffer.poll_interval = 2.0
    assert built._select_prompt_uids("train", {"b", "a"}, 1) == (["a", "b"], {"k": {}}, {"u": 1})
    assert trainer.expected == 8


def test_a_resumed_run_follows_the_plan_that_it_had_made_anew(modules, tmp_path, monkeypatch):
    followed = []
    monkeypatch.setattr(modules.trainer.ArmTrainer, "_follow", lambda self, path: followed.append(path))
    monkeypatch.setattr(modules.base, "_save_checkpoint", lambda self: None)
    for plan in (None, tmp_path / "plan-8.parquet"):
        trainer = new_trainer(modules, tmp_path, 20)
        trainer.plan_file = plan
        trainer._save_checkpoint()
        assert resumed(modules, tmp_path, 20, monkeypatch).cursor == 7
    assert followed == [tmp_path / "plan-8.parquet"]


def test_the_record_is_there_before_verl_calls_the_checkpoint_its_last(modules, tmp_path, monkeypatch):
    trainer = new_trainer(modules, tmp_path, 10)
    path, seen = tmp_path / "global_step_10" / "repro.json", []
    monkeypatch.setattr(modules.base, "_save_checkpoint", lambda self: seen.append(path.exists()))
    trainer._save_checkpoint()
    assert seen == [True]


@pytest.mark.parametrize(
    ("step", "evaluations", "due"),
    [(10, [0], False), (20, [0], True), (20, [0, 20], False), (STEPS, [0, 80], True), (STEPS, [STEPS], False)],
)
def test_a_resumed_run_evaluates_where_the_other_would(modules, tmp_path, monkeypatch, step, evaluations, due):
    saved(modules, tmp_path, step, monkeypatch, evaluations)
    trainer = resumed(modules, tmp_path, step, monkeypatch)
    assert trainer.config.trainer.val_before_train == due
    assert trainer.cursor == 7 and trainer.total_training_steps == STEPS


def test_a_run_that_diverged_is_not_trained_on(modules, tmp_path, monkeypatch):
    saved(modules, tmp_path, 30, monkeypatch, [0, 20], diverged=True)
    trainer = resumed(modules, tmp_path, 30, monkeypatch)
    assert trainer.diverged and trainer.total_training_steps == 30 and trainer.config.trainer.val_before_train


def test_the_last_evaluation_of_a_resumed_run_is_written(modules, tmp_path, monkeypatch):
    saved(modules, tmp_path, STEPS, monkeypatch, [0])
    trainer = resumed(modules, tmp_path, STEPS, monkeypatch)
    trainer.record.log.evaluations.append({"seed": 0, "step": STEPS, "diverged": False})  # verl's, before it trains
    trainer.global_steps += 1
    trainer.on_train_end()
    assert pd.read_parquet(tmp_path / "tables" / "evaluations.parquet")["step"].tolist() == [0, STEPS]


def test_seconds_and_evaluation_join_the_checkpoint_of_their_step(modules, tmp_path, monkeypatch):
    saved(modules, tmp_path, 20, monkeypatch)
    trainer = new_trainer(modules, tmp_path, 20)
    monkeypatch.setattr(modules.base, "_compute_metrics", lambda self, *_: None)
    trainer.record.log.evaluations.append({"seed": 0, "step": 20, "diverged": False})
    trainer._compute_metrics(None, {}, {"gen": 1.5}, 20, 0)
    again = resumed(modules, tmp_path, 20, monkeypatch).record
    assert again.evaluated(20) and [row["seconds"] for row in again.log.seconds] == [1.5]


def test_a_configuration_that_does_something_else_than_the_arm_is_refused():
    from repro.verl.config import compose
    from repro.verl.loss import actor_settings
    from repro.verl.run import check_config

    method = build("d3s", Arm(title="", about="", group="", samplers=["d3s"], aggregation="token-mean"))
    said = {f"actor_rollout_ref.actor.{key}": value for key, value in actor_settings(method, 32).items()}
    said |= {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.use_dynamic_bsz": True}
    said["data.max_response_length"] = 32
    check_config(compose(said, ["actor_rollout_ref.actor.clip_ratio_c=3.0"]), method)
    for override in (
        "actor_rollout_ref.actor.policy_loss.loss_mode=gspo",
        "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum",
        "actor_rollout_ref.actor.clip_ratio_high=0.9",
        "algorithm.rollout_correction.bypass_mode=true",
    ):
        with pytest.raises(SettingsError, match=override.partition("=")[0]):
            check_config(compose(said, [override]), method)
