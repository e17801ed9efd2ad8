"""The ledger and its FLOPs, by hand and against torch's own counter."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from repro.policy.flops import FlopCounter
from repro.policy.flops_lora import counter_of
from repro.policy.model import build_qwen2
from repro.protocol.ledger import Ledger
from repro.tasks.tokenizer import SYMBOLS

TINY = FlopCounter(matmul_parameters=100, layers=2, width=8)


def test_three_tokens_by_hand():
    # 2 · 100 a token; 4 · 2 · 8 = 64 times the position, 1 + 2 + 3
    assert TINY.forward([3]) == 600 + 64 * 6
    assert TINY.forward([3, 1]) == 600 + 64 * 6 + 200 + 64
    assert TINY.forward([2], 5) == 400 + 64 * (6 + 7)
    assert TINY.forward([2, 1], np.array([5, 0])) == 400 + 64 * 13 + 200 + 64
    assert TINY.forward_backward([3]) == 3 * (600 + 64 * 6)
    assert TINY.forward([0]) == 0


@given(st.integers(0, 50), st.integers(0, 50))
@settings(deadline=None)
def test_a_pass_may_be_cut_anywhere(first, rest):
    assert TINY.forward([first]) + TINY.forward([rest], first) == TINY.forward([first + rest])


def test_parameters_of_a_built_policy_by_hand():
    # per layer: q, k, v, o are 32 · 32, the three matrices of the MLP 32 · 96; then the tied head
    matmul = 2 * (4 * 32 * 32 + 3 * 32 * 96) + 32 * len(SYMBOLS)
    assert FlopCounter.of(build_qwen2(32, 2, 4, 64)) == FlopCounter(matmul, layers=2, width=32)


def test_untied_heads_grouped_keys_and_wide_heads_are_counted():
    from transformers import Qwen2ForCausalLM

    config = build_qwen2(32, 1, 4, 64).config
    config.tie_word_embeddings, config.num_key_value_heads = False, 2
    untied = FlopCounter.of(Qwen2ForCausalLM(config))
    assert untied.matmul_parameters == 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 96 + 32 * len(SYMBOLS)
    config.head_dim = 16
    assert FlopCounter.of(Qwen2ForCausalLM(config)).width == 64


def test_forward_agrees_with_torch_up_to_the_causal_half_of_attention():
    model = build_qwen2(32, 2, 4, 64)
    model.set_attn_implementation("eager")  # torch 2.13 does not count the fused attention of a CPU
    flops, n, length = FlopCounter.of(model), 3, 40
    with FlopCounterMode(display=False) as counted, torch.no_grad():
        model(input_ids=torch.zeros(n, length, dtype=torch.long), use_cache=False)
    # Dense attention computes all T² pairs where a causal one needs T(T+1)/2: add the missing ones to ours.
    missing = 4 * flops.layers * flops.width * n * (length**2 - length * (length + 1) / 2)
    # What is left is the angles of the rotary embedding: a head's half width per position, once.
    angles = 2 * (32 // 4 // 2) * length
    assert counted.get_total_flops() - flops.forward([length] * n) - missing in (angles, angles * n)


def test_backward_is_twice_the_forward_by_torch_too():
    model = build_qwen2(32, 2, 4, 64)
    model.set_attn_implementation("eager")
    ids = torch.zeros(2, 30, dtype=torch.long)
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        model(input_ids=ids, use_cache=False)
    with FlopCounterMode(display=False) as both:
        model(input_ids=ids, use_cache=False).logits.sum().backward()
    assert both.get_total_flops() / forward.get_total_flops() == pytest.approx(3.0, rel=1e-3)


def test_frozen_weights_have_no_gradient_to_compute_by_torch_too():
    peft = pytest.importorskip("peft", reason="PEFT is missing: `make extra-verl` installs it")
    everywhere = peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    plain = build_qwen2(32, 2, 4, 64)
    base = FlopCounter.of(plain).matmul_parameters
    assert counter_of(plain) == FlopCounter.of(plain) and counter_of(plain, lora=True).frozen == base
    model = peft.get_peft_model(plain, everywhere)
    model.set_attn_implementation("eager")
    flops, n, length = counter_of(model), 2, 30
    assert flops.frozen == base and flops.matmul_parameters == base + 2 * 2 * (32 * 4 * 2 + (32 + 96) * 3)
    ids = torch.zeros(n, length, dtype=torch.long)
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        model(input_ids=ids, use_cache=False)
    with FlopCounterMode(display=False) as both:
        model(input_ids=ids, use_cache=False).logits.sum().backward()
    saved = 3 * forward.get_total_flops() - both.get_total_flops()
    ours = 3 * flops.forward([length] * n) - flops.forward_backward([length] * n)
    first = 2 * 3 * (32 * 32 + 2 * 32) * n * length  # of what the first layer's q, k and v read, none is needed either
    assert saved == pytest.approx(ours + first, rel=1e-3)


def test_generation_by_hand():
    ledger = Ledger()
    ledger.charge_generation(TINY, np.array([3, 2]), [2, 1], np.array([1, 4, 2]))
    assert (ledger.queries, ledger.rollouts, ledger.prompt_tokens, ledger.generated_tokens) == (2, 3, 5, 7)
    # prompts once a group: 3 and 2; then 0, 3 and 1 tokens read after them, the last of each never
    positions = (1 + 2 + 3) + (1 + 2) + 0 + (4 + 5 + 6) + 3
    assert ledger.flops_generate == 200 * (5 + 4) + 64 * positions
    assert ledger.flops == ledger.flops_generate and ledger.updates == 0 and ledger.trained_tokens == 0
    before = ledger.flops_generate
    ledger.charge_profile(TINY, np.array([3]), np.array([[1, 4]]))  # a second profile, in the middle of training
    assert ledger.flops_profile == ledger.flops_generate - before == 200 * 6 + 64 * (1 + 2 + 3 + 4 + 5 + 6)
    assert ledger.profile_tokens == 5 and ledger.generated_tokens == 12


@given(st.integers(1, 30), st.integers(1, 30))
@settings(deadline=None)
def test_generation_alone_on_a_prompt_is_one_forward_without_the_last_token(prompt, response):
    ledger = Ledger()
    ledger.charge_generation(TINY, np.array([prompt]), [1], np.array([response]))
    assert ledger.flops_generate == TINY.forward([prompt + response - 1])


def test_training_and_scoring_by_hand_and_in_total():
    ledger = Ledger()
    ledger.charge_update(TINY, np.array([3, 3]))  # a repeat is paid for again
    ledger.charge_update(TINY, np.array([1]))
    ledger.charge_scoring(TINY, np.array([2]))
    assert (ledger.updates, ledger.trained_tokens, ledger.scored_tokens) == (2, 7, 2)
    assert ledger.flops_train == 3 * (2 * 984 + 264) and ledger.flops_score == 400 + 64 * 3
    assert ledger.flops == ledger.flops_train + ledger.flops_score


def test_a_pass_without_its_optimiser_step_is_paid_for_and_not_counted():
    ledger = Ledger()
    ledger.charge_update(TINY, np.array([3]), steps=0)
    assert (ledger.updates, ledger.trained_tokens, ledger.flops_train) == (0, 3, 3 * 984)


def test_a_row_and_back():
    ledger = Ledger()
    ledger.charge_generation(TINY, np.array([3]), [2], np.array([1, 4]))
    ledger.charge_update(TINY, np.array([4, 7]))
    ledger.charge_scoring(TINY, np.array([4]))
    row = ledger.row()
    assert row["flops"] == ledger.flops and row["trained_tokens"] == 11
    assert all(type(value) in (int, float) for value in row.values())  # plain numbers, for parquet and checkpoints
    assert Ledger.from_row({**row, "accuracy": 0.5}) == ledger
