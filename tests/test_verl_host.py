"""What is extended of verl's trainer has the names and arguments that we rely on."""

import inspect
from types import SimpleNamespace

import pytest

pytest.importorskip("tensordict", reason="verl is not installed here: `make extra-verl` installs it")

pytestmark = pytest.mark.verl

PHASES = {  # verl's, with which names it calls them
    *(
        "on_init_end",
        "on_train_begin",
        "on_train_end",
        "on_step_end",
        "on_sample_end",
        "get_llm_client",
        "prepare_step",
    ),
    *("fit", "trainer_mode", "_init_dataloader", "_build_replay_buffer", "_get_required_batch_multiple"),
    *("_compute_old_log_prob", "_compute_ref_log_prob", "_compute_advantage", "_update_actor", "_compute_metrics"),
    *("_validate", "_val_metrics_update", "_save_checkpoint", "_load_checkpoint"),
}
CALLED = {"_submit_batch_to_rollout": ["self", "batch"]}


def arguments(function) -> list[str]:
    return [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]


def test_every_phase_that_we_extend_is_verls_with_its_arguments():
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from repro.verl.trainer import AheadTrainer

    ours = {
        name: part
        for kind in AheadTrainer.mro()
        if kind.__module__.startswith("repro")
        for name, part in vars(kind).items()
    }
    verls = {name for name in dir(PPOTrainer) if not name.startswith("__")} | {"trainer_mode"}
    assert ours.keys() & verls - {"_abc_impl"} == PHASES
    for name in PHASES - {"trainer_mode"}:
        given, known = arguments(ours[name]), arguments(getattr(PPOTrainer, name))
        assert given == known[: len(given)] and (given == known or name == "_val_metrics_update"), name
    for name, known in CALLED.items():
        assert arguments(getattr(PPOTrainer, name)) == known, name


def test_a_wait_gives_the_groups_that_are_finished_the_oldest_first(monkeypatch):
    """verl's own buffer on a queue in memory: `a` is slow, `b` was submitted before `c` and `d`."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1 import replay_buffer

    from repro.verl.host import UIDS, HostTrainer

    steps, status = {"d": 2, "c": 2, "b": 1, "a": 1}, dict.fromkeys("bcd", "finished") | {"a": "running"}

    class Queue:
        def kv_list(self):
            tags = {uid: {"is_prompt": True, "status": status[uid], "global_steps": steps[uid]} for uid in steps}
            return {"train": tags | {f"{uid}_{i}_0": {"min_global_steps": 0} for uid in steps for i in range(2)}}

        def kv_clear(self, partition_id, keys):
            for uid in keys:
                del steps[uid]

    monkeypatch.setattr(replay_buffer, "tq", Queue())
    sampler = {"max_off_policy_threshold": 8, "max_off_policy_strategy": "drop", "sampler_kwargs": {}}
    made = HostTrainer.__new__(HostTrainer)
    sizes = {"train_batch_size": 2, "gen_batch_size": 1}
    rest = {"actor_rollout_ref": {"rollout": {"name": "hf"}}, "algorithm": {}, "data": sizes}
    made.config = OmegaConf.create({"trainer": {"v1": {"sampler": sampler, "sync": {}}}, **rest})
    buffer = made._build_replay_buffer()
    made._collect = lambda: SimpleNamespace(of="the step")
    assert buffer.sample(2, "train", 4)[0].of == "the step"
    batch, _ = made.wait(global_steps=2, partition_id="train", batch_size=1)
    assert (batch.extra_info[UIDS], sorted(batch.keys)) == (["b"], ["b_0_0", "b_1_0"])
    status["a"] = "finished"
    batch, _ = made.wait(global_steps=2, partition_id="train", batch_size=2)
    assert batch.extra_info[UIDS][0] == "a" and len(batch.keys) == 4 and len(steps) == 1


def test_the_replay_buffers_hooks_are_verls():
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

    assert arguments(ReplayBuffer.sample) == ["self", "global_steps", "partition_id", "batch_size"]
    assert arguments(ReplayBuffer._materialize_batch)[1:] == [
        "partition_id",
        "selected_prompt_uids",
        "partition_snapshot",
    ]
    for buffer in (ReplayBuffer, ReplayBufferAsync):  # that of repro.plugins.verl
        assert arguments(buffer._dapo_filtered_keys) == ["self", "partition_id"]
