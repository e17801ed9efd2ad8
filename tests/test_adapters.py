"""Adapters in the upper layers: passes that read a prompt once and skip what does not learn have the plain gradient."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from repro.engine.decoders import CapturedDecoder
from repro.engine.generate import generate
from repro.engine.log_probabilities import Batch, log_probabilities, response_log_probabilities, slices
from repro.policy import shared
from repro.policy.adapters import adapt, merge, trained
from repro.policy.flops import FlopCounter
from repro.policy.lean import lean_of
from repro.policy.shared import response_logits

V, END = 13, 0
CONFIG = {"vocab_size": V, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "initializer_range": 0.3}
CONFIG |= {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True, "pad_token_id": 0}
PROMPTS = [[3, 4, 5, 6, 7], [8, 9, 3]]


def model_of(layers=2, dtype=torch.float32):
    """A small Llama whose adapters already say something."""
    torch.manual_seed(3)
    model = adapt(LlamaForCausalLM(LlamaConfig(**CONFIG)).eval().to(dtype), rank=2, layers=layers, seed=0)
    for name, values in trained(model).items():
        if name.endswith(".B"):
            values.normal_(std=0.1, generator=torch.Generator().manual_seed(len(name)))
    return model


def draw(model, temperature=1.0, tokens=9, end=END):
    generator = torch.Generator(model.device).manual_seed(1)
    how = {"eos": end, "pad": END, "temperature": temperature, "generator": generator}
    responses = generate(model, PROMPTS, [4, 4], max_new_tokens=tokens, **how)
    return Batch([prompt for prompt in PROMPTS for _ in range(4)], responses)


def gradient(model, logprob_M_T, mask_M_T):
    """Of all adapters, one after the other, for token weights that differ."""
    weight_M_T = torch.linspace(-1, 2, mask_M_T.numel(), device=mask_M_T.device).view(mask_M_T.shape)
    own = [one for one in model.parameters() if one.requires_grad]
    return torch.cat([one.flatten() for one in torch.autograd.grad((logprob_M_T * weight_M_T * mask_M_T).sum(), own)])


def relative(one, other):
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_packed_and_cached_passes_have_the_gradient_of_the_padded_pass(layers):
    model = model_of(layers)
    batch, rows = draw(model), np.arange(8)
    mask_M_T = batch.responses.mask_N_T.clone()
    padded = gradient(model, response_log_probabilities(model, batch, rows, END, 1.0)[0], mask_M_T)
    cached = gradient(model, log_probabilities(model, batch, rows, END, 1.0), mask_M_T)
    assert (batch.responses.entering_N_T_D is None) == (layers == 4)
    batch.responses.entering_N_T_D = None
    whole = gradient(model, log_probabilities(model, batch, rows, END, 1.0), mask_M_T)
    assert relative(whole, padded) < 1e-5 and relative(cached, padded) < 1e-5


def test_groups_that_attend_at_once_have_the_gradient_of_each_alone(monkeypatch):
    model = model_of()
    batch, rows = draw(model, end=5, tokens=14), np.arange(8)
    mask_M_T = batch.responses.mask_N_T.clone()
    assert len(mask_M_T.sum(1).unique()) > 1
    alone = gradient(model, log_probabilities(model, batch, rows, END, 1.0), mask_M_T)
    at_once = shared._attend_at_once
    monkeypatch.setattr(shared, "_attend", lambda lean, visible: at_once(lean, visible, [*map(len, visible)]))
    together = gradient(model, log_probabilities(model, batch, rows, END, 1.0), mask_M_T)
    assert 0 < relative(together, alone) < 1e-5


def test_log_probabilities_kept_while_decoding_are_those_of_the_update():
    model = model_of()
    batch, rows = draw(model), np.array([1, 2, 5, 7])
    own = log_probabilities(model, batch, rows, END, 1.0).detach()
    kept = batch.responses.logprob_N_T[rows][:, : own.shape[1]]
    torch.testing.assert_close(own, kept * batch.responses.mask_N_T[rows][:, : own.shape[1]], atol=1e-5, rtol=0)
    assert [part.tolist() for part in slices(model, np.array([5, 8, 7, 8]), 14)] == [[0, 1], [2, 3]]


def test_greedy_responses_are_the_likeliest_of_the_packed_pass():
    model = model_of()
    batch = draw(model, temperature=1e-4)
    tokens = [ids[mask] for ids, mask in zip(batch.responses.ids_N_T, batch.responses.mask_N_T, strict=True)]
    groups = [(PROMPTS[0], tokens[:4]), (PROMPTS[1], tokens[4:])]
    logits_K_V, target_K = response_logits(lean_of(model), groups)
    assert len(target_K) > 30 and torch.equal(logits_K_V.argmax(-1), target_K)


def test_in_eight_bits_sampling_and_update_are_the_same_policy():
    model = model_of(dtype=torch.bfloat16)
    batch = draw(model)
    own = log_probabilities(model, batch, np.arange(8), END, 1.0).detach()
    assert batch.responses.entering_N_T_D.dtype == torch.bfloat16 and lean_of(model).low == 2
    assert float((own - batch.responses.logprob_N_T * batch.responses.mask_N_T).abs().max()) < 0.1


def test_adapters_alone_train_and_a_merged_model_computes_the_same():
    plain = LlamaForCausalLM(LlamaConfig(**CONFIG))
    flops = FlopCounter.of(plain)
    model, ids = model_of(), torch.arange(12).view(2, 6)
    assert set(trained(model)) == {name for name, one in model.named_parameters() if one.requires_grad}
    assert len(trained(model)) == 2 * 7 * 2 and {name.split(".")[2] for name in trained(model)} == {"2", "3"}
    assert FlopCounter.of(model) == flops and len(trained(plain)) == len(plain.state_dict())
    before = model(ids).logits
    merged = merge(model, torch.float32)
    assert set(merged.state_dict()) == set(plain.state_dict())
    torch.testing.assert_close(merged(ids).logits, before, atol=1e-4, rtol=0)


def test_a_captured_step_draws_what_a_step_draws_also_after_the_weights_have_moved(monkeypatch):
    model = model_of()
    for _ in range(2):
        monkeypatch.undo()
        own = draw(model, end=5).responses
        monkeypatch.setattr("repro.engine.generate.decoder_of", lambda model: CapturedDecoder(lean_of(model)))
        captured = draw(model, end=5).responses
        assert torch.equal(captured.ids_N_T, own.ids_N_T) and len(own.mask_N_T.sum(1).unique()) > 1
        torch.testing.assert_close(captured.logprob_N_T, own.logprob_N_T, atol=1e-5, rtol=0)
        torch.testing.assert_close(captured.entering_N_T_D, own.entering_N_T_D, atol=1e-4, rtol=1e-5)
        with torch.no_grad():
            for values in trained(model).values():
                values.mul_(1.3)
    assert len(lean_of(model).captured) == 1
