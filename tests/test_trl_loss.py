"""ArmTrainer with TRL's own loss, the default: the gradients of GRPOTrainer from the same seed, setting by setting."""

import importlib.util

import numpy as np
import pandas as pd
import pytest
import torch
from test_trl import TOKENIZER, even, gradient, trainer_on_trl
from tiny_run import GROUP, ROLLOUTS
from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM, TrainerCallback

pytestmark = [
    pytest.mark.trl,
    pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is missing: `make extra-trl` installs it"),
]

# Beyond TRL's defaults (loss_type "dapo"). docs/trl.md names them.
PEFT = "PEFT is missing: `make extra-verl` installs it"
TWICE = {"num_iterations": 2}
CASES = {
    "defaults": {},
    **{name: {"loss_type": name} for name in ("grpo", "bnpo", "dr_grpo", "cispo", "sapo", "vespo")},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "luspo": {"loss_type": "luspo", "importance_sampling_level": "sequence"},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
    "clips": {"epsilon": 0.1, "epsilon_high": 0.28, "delta": 1.5, **TWICE},
    "scale none": {"scale_rewards": "none"},
    "scale batch": {"scale_rewards": "batch"},
    "gdpo": {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [1.0, 0.5]},
    "sum of two": {"reward_weights": [1.0, 0.5]},
    "kl": {"beta": 0.1, **TWICE},
    "kl, uncorrected": {"beta": 0.1, "use_bias_correction_kl": False, **TWICE},
    "kl, grpo": {"beta": 0.1, "loss_type": "grpo"},
    "high entropy": {"top_entropy_quantile": 0.2},
    "entropy bonus": {"entropy_coef": 0.1},
    "adaptive entropy": {"use_adaptive_entropy": True, "entropy_target": 1.0},
    "off-policy mask": {"off_policy_mask_threshold": 1e-4, **TWICE},
    "masked": {"mask_truncated_completions": True, "max_completion_length": 6, "loss_type": "grpo"},
    "one update": {"gradient_accumulation_steps": 4, "beta": 0.1},
    "in order": {"shuffle_dataset": False},
    "experts": {"router_aux_loss_coef": 0.1},
    "checkpointing": {"gradient_checkpointing": True},
    "lora": {"beta": 0.1, **TWICE},
}


class Seen(TrainerCallback):
    """The gradient of every optimiser step."""

    def __init__(self):
        self.gradients = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **rest):
        self.gradients.append(gradient(model))


def trained(folder, monkeypatch, of_trl, changes, arm="grpo", reward=even, **parts):
    """(gradients, logs) of each optimiser step."""
    with monkeypatch.context() as patch:
        if "router_aux_loss_coef" in changes:
            patch.setattr("test_trl.build_qwen2", experts)
        if dict(changes).get("beta"):
            patch.setattr("trl.trainer.grpo_trainer.create_model_from_path", lambda *_, **__: reference())
        parts |= {"reward": reward, "changes": changes, "objective": None, "plain": of_trl}
        trainer = trainer_on_trl(folder, arm, **parts)
    trainer.add_callback(seen := Seen())
    trainer.train()
    return seen.gradients, [log for log in trainer.state.log_history if "grad_norm" in log]


def experts(**_):
    """A mixture of experts; each of a batch's tokens asks one."""
    sizes = dict.fromkeys(("hidden_size", "intermediate_size", "shared_expert_intermediate_size"), 16)
    sizes |= {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "moe_intermediate_size": 8}
    ends = {"eos_token_id": TOKENIZER.eos_token_id, "pad_token_id": TOKENIZER.pad_token_id}
    config = Qwen2MoeConfig(vocab_size=len(TOKENIZER), num_experts=2, num_experts_per_tok=1, **sizes, **ends)
    return Qwen2MoeForCausalLM(config)


def reference():
    from repro.policy.model import build_qwen2

    torch.manual_seed(3)
    return build_qwen2(hidden=16, layers=1, heads=2, max_length=64)


def longer(completion_ids, **_):
    """Eighths, which TRL's 32-bit numbers hold exactly."""
    return [len(ids) / 8 for ids in completion_ids]


@pytest.mark.parametrize("case", CASES)
def test_an_arm_that_keeps_everything_trains_as_grpotrainer(case, tmp_path, monkeypatch):
    """The same generation, mini-batches and gradients, of two updates a batch; and the same curves."""
    more = {"reward": [even, longer] if "reward_weights" in CASES[case] else even}
    if case == "lora":  # whose reference is the model without its adapter
        more["peft_config"] = pytest.importorskip("peft", reason=PEFT).LoraConfig(r=4, target_modules="all-linear")
    theirs, told = trained(tmp_path / "theirs", monkeypatch, True, CASES[case], **more)
    ours, tell = trained(tmp_path / "ours", monkeypatch, False, CASES[case], **more)
    assert len(ours) == len(theirs) == 4 and max(float(one.norm()) for one in theirs) > 1e-3
    for one, other in zip(ours, theirs, strict=True):
        assert (one - other).norm() <= 1e-5 * other.norm()
    assert all(set(theirs) <= {*ours, "step_time"} for ours, theirs in zip(tell, told, strict=True))
    curves = ["loss", "reward", "num_tokens", "completions/mean_length"]
    curves += ["entropy", "clip_ratio/region_mean"] if case in ("bnpo", "entropy bonus") else []  # every row is read
    for name in curves:
        assert [log[name] for log in tell if name in log] == pytest.approx(
            [log[name] for log in told if name in log], rel=1e-4, abs=1e-6
        )


def doubled(rollouts, progress, rng):
    return rollouts.take(np.repeat(np.arange(len(rollouts)), 2))


def halved(rollouts, progress, rng):
    """Each once as it is, and once more, at weights that make the same of it."""
    return rollouts.take(np.repeat(np.arange(len(rollouts)), 2), np.tile([1.5, 0.5], len(rollouts)))


SAMPLERS = {"defaults": halved, "grpo": doubled, "vespo": halved, "kl": doubled, "masked": halved}


@pytest.mark.parametrize("case", SAMPLERS)
def test_copies_and_weights_fold_into_trls_loss(case, tmp_path, monkeypatch):
    """Of a batch with one update: other copies of the same rows make the same loss, and the model reads each once."""
    changes = {**CASES[case], "gradient_accumulation_steps": 4, "num_iterations": 1, "max_steps": 1}
    theirs, _ = trained(tmp_path / "theirs", monkeypatch, True, changes)
    ours, [log] = trained(tmp_path / "ours", monkeypatch, False, changes, samplers=[SAMPLERS[case]])
    assert (ours[0] - theirs[0]).norm() <= 1e-5 * theirs[0].norm() and theirs[0].norm() > 1e-3
    assert log["arm/trained_tokens"] <= log["arm/generated_tokens"] + 8 * log["arm/prompt_tokens"]


def test_the_table_of_completions_says_what_was_drawn_and_trained_on(tmp_path):
    """Of a batch that was refilled in the data's order, and with rows of an evaluation below."""
    from datasets import Dataset

    changes = {"log_completions": True, "shuffle_dataset": False, "eval_strategy": "steps", "eval_steps": 2}
    data = Dataset.from_list([{"prompt": "1+1="}] * 8)
    trainer = trainer_on_trl(
        tmp_path,
        "zvf-cost-aware",
        objective=None,
        changes={**changes, "max_steps": 2},
        refill_rounds=4,
        eval_dataset=data,
    )
    chosen, select = [], trainer._select
    trainer._select = lambda batch: chosen.append((batch, select(batch))) or chosen[-1][1]
    trainer.train()
    [(batch, selected)] = chosen
    table, evaluated = (pd.read_parquet(tmp_path / f"completions/completions_0000{step}.parquet") for step in (1, 2))
    assert len(table) > len(batch) == ROLLOUTS
    assert table["prompt"][::GROUP].tolist() == trainer.train_dataset["prompt"][: len(table) // GROUP]  # in order
    drawn, weight = (np.bincount(selected.row_N, given, len(batch)) for given in (None, selected.weights_N))
    left = table.iloc[batch.place_N]
    np.testing.assert_array_equal(left["arm/drawn"], drawn)
    np.testing.assert_allclose(left["arm/weight"], weight)
    np.testing.assert_allclose(
        left["advantage"][drawn > 0], selected.advantages_N[np.unique(selected.row_N, return_index=True)[1]]
    )
    assert table["advantage"].isna().sum() == len(table) - len(batch) and table["arm/drawn"].sum() == len(selected)
    assert evaluated["arm/drawn"].isna().all() and evaluated["advantage"].notna().all()
