"""What our trainer puts around verl's: a step's rounds, a record that no crash parts from its checkpoint,
and evaluations where the uninterrupted run has them."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("tensordict", reason="verl is not installed here: `make extra-verl` installs it")

from omegaconf import OmegaConf, open_dict

from repro.errors import Refused
from repro.methods.rollouts import Rollouts
from repro.settings import SettingsError
from repro.verl import best
from repro.verl.data import SIZE
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
    trainer.diverged, trainer.global_steps, trainer.total_training_steps = False, step, STEPS
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


def test_verls_buffer_asks_for_the_steps_rounds_and_polls_seldom(modules, monkeypatch):
    def waited(global_steps, partition_id, batch_size):
        return partition_id, batch_size

    for rollout, seconds in (("vllm", 2.0), ("hf", 0.05)):
        buffer = SimpleNamespace(poll_interval=2.0, sample=waited, _materialize_batch=None)
        monkeypatch.setattr(modules.base, "_build_replay_buffer", lambda self, built=buffer: built)
        trainer = new_trainer(modules, Path(), 1)
        trainer.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"name": rollout}}})
        trainer._collect = lambda: "the step's"
        assert trainer._build_replay_buffer().poll_interval == seconds
        assert buffer.sample(global_steps=1, partition_id="train", batch_size=9) == ("the step's", {})
        assert buffer.sample(global_steps=1, partition_id="val", batch_size=9) == ("val", 9)


def test_the_record_is_there_before_verl_calls_the_checkpoint_its_last(modules, tmp_path, monkeypatch):
    trainer = new_trainer(modules, tmp_path, 10)
    path, seen = tmp_path / "global_step_10" / "repro.json", []
    monkeypatch.setattr(modules.base, "_save_checkpoint", lambda self: seen.append(path.exists()))
    trainer._save_checkpoint()
    assert seen == [True]


def test_a_checkpoint_that_the_disk_does_not_take_is_one_sentence(modules, tmp_path, monkeypatch):
    def full(self):
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")

    monkeypatch.setattr(modules.base, "_save_checkpoint", full)
    with pytest.raises(Refused, match=r"global_step_10 could not be written, as where the disk is full: free some"):
        new_trainer(modules, tmp_path, 10)._save_checkpoint()
    monkeypatch.setattr(modules.base, "_save_checkpoint", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        new_trainer(modules, tmp_path, 10)._save_checkpoint()


@pytest.mark.parametrize(("named", "after"), [("", "20"), ("10", "10"), (None, None)])
def test_a_resumed_run_finds_the_last_whole_checkpoint_where_its_name_was_not_written(
    modules, tmp_path, monkeypatch, named, after
):
    for step, last in ((10, "data.pt"), (20, "data.pt"), (30, "model.pt")):
        saved(modules, tmp_path, step, monkeypatch)
        (tmp_path / f"global_step_{step}" / last).touch()
    latest = tmp_path / "latest_checkpointed_iteration.txt"
    if named is not None:
        latest.write_text(named)
    resumed(modules, tmp_path, 20, monkeypatch)
    assert (latest.read_text() if latest.exists() else None) == after


def test_a_killed_process_of_rays_is_one_sentence(monkeypatch):
    ray = pytest.importorskip("ray")
    from repro.verl import start

    def killed(config, task_runner_class):
        error = ray.exceptions.ActorDiedError()
        raise ray.exceptions.RayTaskError(
            "run", "a traceback", error
        ).as_instanceof_cause()  # of the runner, which saw it

    for name in ("require_plugin", "loggers_of", "task_runner"):
        monkeypatch.setattr(start, name, lambda *of: None)
    for name in ("trainer.main_ppo.run_ppo", "utils.config.validate_config"):
        monkeypatch.setattr(f"verl.{name}", killed if "run" in name else lambda *of, **how: None)
    for name in ("need_critic", "need_reference_policy"):
        monkeypatch.setattr(f"verl.trainer.ppo.utils.{name}", lambda config: False)
    with pytest.raises(Refused, match=r"was killed, or its node has gone: run the same command again, which goes on"):
        start.run(OmegaConf.create({"trainer": {"v1": {"trainer_mode": "sync"}}}))

    def slow(config, task_runner_class):
        tries.append(1)
        raise Exception("The current node timed out during startup. This could happen because")

    tries = []
    monkeypatch.setattr("verl.trainer.main_ppo.run_ppo", slow)
    with pytest.raises(Refused, match=r"^Ray did not start in 6 tries, .* then run the same command again"):
        start.run(OmegaConf.create({}))
    assert len(tries) == 6


@pytest.mark.parametrize(
    ("step", "evaluations", "due"),
    [(10, [0], False), (20, [0], True), (20, [0, 20], False), (STEPS, [0, 80], True), (STEPS, [STEPS], False)],
)
def test_a_resumed_run_evaluates_where_the_other_would(modules, tmp_path, monkeypatch, step, evaluations, due):
    saved(modules, tmp_path, step, monkeypatch, evaluations)
    trainer = resumed(modules, tmp_path, step, monkeypatch)
    assert trainer.config.trainer.val_before_train == due
    assert trainer.total_training_steps == STEPS


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


def test_an_evaluation_samples_few_questions_more_and_keeps_the_best_checkpoint(modules, tmp_path, monkeypatch):
    trainer = new_trainer(modules, tmp_path / "checkpoints", 20)
    with open_dict(trainer.config):
        trainer.config.repro = {"best": "aime24"}
    evaluation = SimpleNamespace(samples=1, final_samples=1)
    trainer.run = SimpleNamespace(settings=SimpleNamespace(evaluation=evaluation))
    trainer.samples_of, trainer.profile_infos, trainer.held_out = {"aime24": 4}, None, {}
    trainer.val_dataloader = [{"raw_prompt": ["a", "b"], "data_source": ["aime24", "gsm8k"]}]
    (tmp_path / "checkpoints/global_step_20/actor").mkdir(parents=True)
    sampled = []

    def validate(self):
        sampled.extend(self.val_dataloader[0][SIZE])
        infos = {"acc": [1.0, 1.0, 0.0, 1.0, 1.0], "query": ["a"] * 4 + ["b"], "response_tokens": [5] * 5}
        infos |= {"truncated": [0.0] * 5, "pred": ["4", "4", "5", "4", "7"]}
        return self._val_metrics_update(["aime24"] * 4 + ["gsm8k"], ["u"] * 4 + ["v"], infos, [])

    monkeypatch.setattr(modules.base, "_validate", validate)
    metrics = trainer._validate()
    assert sampled == [4, 1] and trainer.val_dataloader[0].keys() == {"raw_prompt", "data_source"}
    assert metrics["val-core/aime24/acc/mean@4"] == 0.75 and metrics["val-core/gsm8k/acc/mean@1"] == 1.0
    assert 0.75 < metrics["val-core/aime24/acc/best@4/mean"] <= 1.0
    assert 0.75 < metrics["val-core/aime24/acc/maj@4/mean"] <= 1.0  # most votes are for 4, which is right
    assert best.known(tmp_path) == {"source": "aime24", "accuracy": 0.75, "step": 20}
    assert (tmp_path / "best/global_step_20/actor").is_dir()


def test_the_answer_of_ones_own_reward_function_is_passed_on_for_votes(modules):
    from repro.verl.reward import Verdict

    item = SimpleNamespace(
        batch={"responses": torch.tensor([7, 8, 2]), "attention_mask": torch.ones(5)},
        non_tensor_batch={"data_source": "mine", "reward_model": {"ground_truth": "8"}, "extra_info": {"id": "q"}},
    )
    manager = Verdict.__new__(Verdict)
    manager.tokenizer = SimpleNamespace(eos_token_id=2, decode=lambda ids, **_: "8")
    manager.config = OmegaConf.create({"data": {"max_response_length": 3}})

    def told(score) -> dict:
        async def judge(**fields):
            return score

        manager.compute_score = judge
        return asyncio.run(manager.run_single([item]))

    assert told({"score": 1.0, "pred": 8})["reward_extra_info"] == {
        **{"acc": 1.0, "truncated": 0.0, "response_tokens": 3, "query": "q"},
        "pred": "8",
    }
    assert "pred" not in told({"score": 0.5})["reward_extra_info"] and told(0.5)["reward_score"] == 0.5
    for given, score, correct in (
        ({"score": 2.0, "acc": 1}, 2.0, 1.0),
        ({"score": 1.0, "acc": False}, 1.0, 0.0),
        ({"score": 0.6, "acc": None}, 0.6, 0.0),
        ({"score": "1"}, 1.0, 1.0),
    ):
        found = told(given)
        assert (found["reward_score"], found["reward_extra_info"]["acc"]) == (score, correct)
    for given, why in (
        (None, "its score is None"),
        (float("nan"), "its score is nan"),
        ({"score": 1.0, "acc": np.inf}, "its acc is inf"),
        ({"reward": 1.0}, "KeyError: 'score'"),
    ):
        with pytest.raises(SettingsError, match=rf"reward function judge of \S+ fails on a response to 'q' \(.*{why}"):
            told(given)


def test_the_scores_of_a_first_batch_that_say_nothing_are_told(modules):
    from repro.verl.judged import doubt

    assert doubt(np.array([1.0, 0.0])) is None and doubt(np.array([0.2, 1.0, 2.0])) is None
    assert doubt(np.array([0.0, 0.0])).startswith("every score of the first batch is 0: ")
    assert doubt(np.array([2.0, -1.0])).startswith("no score of the first batch is 1, ")


def test_the_loggers_see_what_was_kept_and_what_it_cost(modules):
    trainer = new_trainer(modules, Path(), 1)
    whole = {"group_N": [0] * 4, "rewards_N": [1, 0, 0, 0], "advantages_N": [1.7, -0.6, -0.6, -0.6]}
    trainer.rollouts = Rollouts.from_batch(**whole, prompt_tokens_N=[8] * 4, response_tokens_N=[9] * 4)
    trainer.record.ledger.trained_tokens = 51
    trainer.selected = trainer.rollouts.take(np.array([0, 0, 2]), np.array([1.0, 1.0, 2.0]))
    of_step = {"reward": 0.25, "accuracy": 0.25, "groups_without_signal": 0.0, "refill_rounds": 2}
    told = trainer._measured(of_step)
    expected = {"arm/drawn": 0.75, "arm/distinct": 0.5, "arm/per_distinct": 1.0, "arm/refill_rounds": 2}
    expected["arm/reward"] = 0.25
    assert expected.items() <= told.items() and told["arm/trained_tokens"] == 51 and told["arm/flops"] == 0
    trainer.selected, trainer.rollouts = None, None
    assert trainer._measured(of_step)["arm/drawn"] == 0.0
    renamed = modules.trainer._for_verl([{"mfu": 0.4, "loss": 1.0}, {"mfu": 0.6, "loss": 3.0}])
    assert renamed == {"perf/mfu/actor": 0.5, "actor/loss": 2.0}
