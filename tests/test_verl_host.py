"""What is extended of verl's trainer has the names and arguments that we rely on."""

import inspect

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
    from repro.verl.host import PPOTrainer
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
