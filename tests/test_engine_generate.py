"""Generation against plain forward passes of the same model: what is kept, what is drawn, who leaves when."""

import gc
import weakref

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from repro.engine.decoders import AnyDecoder, LeanDecoder
from repro.engine.draws import invert
from repro.engine.generate import generate
from repro.policy.lean import lean_of
from repro.policy.model import build_qwen2
from repro.tasks.tokenizer import EOS, PAD, SYMBOLS

V, EOS_ID, PAD_ID = len(SYMBOLS), SYMBOLS.index(EOS), SYMBOLS.index(PAD)
PROMPTS_Q = [[1, 5, 6], [1, 4, 9, 12, 3, 8, 7, 6, 11, 14], [1, 7, 7, 13, 5]]
SIZES_Q = [5, 9, 2]
LLAMA = dict(vocab_size=V, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)


def sharpen(model):
    """A random policy with opinions: fresh weights are so small that every distribution is nearly flat."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8.0)
    return model.eval()


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return sharpen(build_qwen2(hidden=32, layers=2, heads=4, max_length=128))


def sample(model, prompts_Q=PROMPTS_Q, sizes_Q=SIZES_Q, max_new_tokens=30, temperature=1.0, seed=0, **draws):
    generator = torch.Generator().manual_seed(seed)
    return generate(
        model,
        prompts_Q,
        sizes_Q,
        max_new_tokens=max_new_tokens,
        eos=EOS_ID,
        pad=PAD_ID,
        temperature=temperature,
        generator=generator,
        **draws,
    )


def fresh_log_p(model, prompt, response, temperature=1.0):
    """log_p_T_V at each response token, from one unpadded pass without a cache."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits / temperature, -1)


def rows_of(responses, prompts_Q=PROMPTS_Q, sizes_Q=SIZES_Q):
    """(row, prompt, response tokens) of every response."""
    prompts_N = [prompt for prompt, size in zip(prompts_Q, sizes_Q, strict=True) for _ in range(size)]
    for row, prompt in enumerate(prompts_N):
        yield row, prompt, responses.ids_N_T[row][responses.mask_N_T[row]].tolist()


def check_kept_values(model, responses, temperature=1.0):
    for row, prompt, response in rows_of(responses):
        log_p_T_V = fresh_log_p(model, prompt, response, temperature)
        t = len(response)
        expected_T = log_p_T_V.gather(1, torch.tensor(response)[:, None])[:, 0]
        torch.testing.assert_close(responses.logprob_N_T[row, :t], expected_T, atol=1e-5, rtol=1e-5)
        entropy_T = torch.distributions.Categorical(logits=log_p_T_V).entropy()
        torch.testing.assert_close(responses.entropy_N_T[row, :t], entropy_T, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.5])
def test_log_probabilities_and_entropies_are_those_of_a_fresh_pass(policy, temperature):
    responses = sample(policy, temperature=temperature)
    tokens_N = responses.mask_N_T.sum(1)
    assert len(tokens_N.unique()) >= 5  # rows left at many different times, from between others that stayed
    check_kept_values(policy, responses, temperature)


@pytest.mark.parametrize(
    "build",
    [
        lambda: MistralForCausalLM(MistralConfig(**LLAMA, num_key_value_heads=4, sliding_window=6)),
        lambda: GPT2LMHeadModel(GPT2Config(vocab_size=V, n_embd=32, n_layer=2, n_head=2, n_positions=64)),
    ],
    ids=["mistral", "gpt2"],
)
def test_other_decoders_stand_in(build):
    torch.manual_seed(1)
    model = sharpen(build())
    check_kept_values(model, sample(model))


def test_a_response_ends_with_its_end_of_text_or_at_the_limit(policy):
    responses = sample(policy, sizes_Q=[40, 40, 40], max_new_tokens=12)
    assert responses.finished_N.any() and not responses.finished_N.all()
    for row, _, response in rows_of(responses, sizes_Q=[40, 40, 40]):
        t = len(response)
        assert responses.mask_N_T[row, :t].all() and not responses.mask_N_T[row, t:].any()
        assert EOS_ID not in response[:-1]
        assert (response[-1] == EOS_ID) == bool(responses.finished_N[row])
        assert responses.finished_N[row] or t == 12
        assert (responses.ids_N_T[row, t:] == PAD_ID).all()
        assert not responses.logprob_N_T[row, t:].any() and not responses.entropy_N_T[row, t:].any()


def test_the_same_seed_gives_the_same_bits(policy):
    first = sample(policy)
    torch.manual_seed(99)  # the global stream has no part in it
    second, other = sample(policy), sample(policy, seed=1)
    for name in (name for name, values in vars(first).items() if values is not None):
        assert torch.equal(getattr(first, name), getattr(second, name)), name
    assert first.ids_N_T.shape != other.ids_N_T.shape or not torch.equal(first.ids_N_T, other.ids_N_T)


def test_a_low_temperature_is_greedy(policy):
    responses = sample(policy, temperature=1e-4, max_new_tokens=15)
    for _, prompt, response in rows_of(responses):
        assert response == fresh_log_p(policy, prompt, response).argmax(-1).tolist()


def test_prompts_of_other_lengths_and_larger_groups_beside_it_change_nothing(policy):
    alone = sample(policy, [PROMPTS_Q[0]], [6])
    beside = sample(policy, [PROMPTS_Q[0], PROMPTS_Q[1]], [6, 20])
    t = alone.ids_N_T.shape[1]
    assert torch.equal(alone.ids_N_T, beside.ids_N_T[:6, :t]) and not beside.mask_N_T[:6, t:].any()
    torch.testing.assert_close(alone.logprob_N_T, beside.logprob_N_T[:6, :t], atol=1e-5, rtol=1e-5)


def chi_square_p(counts_V, p_V) -> float:
    """Of the counts against the probabilities; tokens expected less than five times are pooled."""
    expected_V = p_V * counts_V.sum()
    rare_V = expected_V < 5
    observed, expected = (
        np.append(counts_V[~rare_V], counts_V[rare_V].sum()),
        np.append(expected_V[~rare_V], expected_V[rare_V].sum()),
    )
    kept = expected > 0
    return stats.chisquare(observed[kept], expected[kept] * observed.sum() / expected[kept].sum()).pvalue


@pytest.mark.parametrize("temperature", [2.0])
def test_tokens_are_drawn_from_the_tempered_softmax(policy, temperature):
    responses = sample(policy, [PROMPTS_Q[1]], [20_000], max_new_tokens=2, temperature=temperature, seed=3)
    first_N = responses.ids_N_T[:, 0].numpy()
    p_V = fresh_log_p(policy, PROMPTS_Q[1], [0], temperature)[0].exp().double().numpy()
    assert chi_square_p(np.bincount(first_N, minlength=V), p_V) > 1e-3
    flat_V = np.full(V, 1 / V)
    assert chi_square_p(np.bincount(first_N, minlength=V), flat_V) < 1e-9  # the test would notice

    favourite = int(np.bincount(first_N[first_N != EOS_ID], minlength=V).argmax())
    second_N = responses.ids_N_T[first_N == favourite, 1].numpy()
    p_V = fresh_log_p(policy, PROMPTS_Q[1], [favourite, 0], temperature)[1].exp().double().numpy()
    assert chi_square_p(np.bincount(second_N, minlength=V), p_V) > 1e-3


def test_inversion_by_hand_never_draws_the_impossible():
    p_B_V = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]]).expand(5, -1)
    uniform_B = torch.tensor([0.0, 0.25 - 2**-53, 0.25, 0.5, 1 - 2**-53], dtype=torch.float64)
    assert invert(p_B_V, uniform_B)[:, 0].tolist() == [1, 1, 3, 3, 3]


def test_independent_draws_invert_one_number_for_every_response_and_token(policy):
    uniform_N_T = torch.rand((sum(SIZES_Q), 30), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for row, prompt, response in rows_of(sample(policy)):
        p_T_V = fresh_log_p(policy, prompt, response).exp()
        assert invert(p_T_V, uniform_N_T[row, : len(response)])[:, 0].tolist() == response


def test_stratified_responses_are_spread_and_their_probabilities_kept(policy):
    responses = sample(policy, stratified=True)
    check_kept_values(policy, responses)
    first_Q = responses.ids_N_T[:, 0].split(SIZES_Q)
    for prompt, size, first_K in zip(PROMPTS_Q, SIZES_Q, first_Q, strict=True):
        expected_V = size * fresh_log_p(policy, prompt, [0])[0].exp()
        assert ((torch.bincount(first_K, minlength=V) - expected_V).abs() < 1).all()


@pytest.mark.parametrize("decoder", [LeanDecoder, AnyDecoder])
def test_no_finished_row_is_computed(policy, decoder, monkeypatch):
    rows = []

    class Recorded(decoder):
        def prefill(self, ids_Q_P, lengths_Q):
            rows.append(tuple(ids_Q_P.shape))
            return super().prefill(ids_Q_P, lengths_Q)

        def step(self, token_B):
            logits_B_V = super().step(token_B)
            rows.append((len(token_B), len(logits_B_V)))
            return logits_B_V

    of = lean_of(policy) if decoder is LeanDecoder else policy
    monkeypatch.setattr("repro.engine.generate.decoder_of", lambda model: Recorded(of))
    responses = sample(policy)
    tokens_N = responses.mask_N_T.sum(1)
    assert rows[0] == (3, 10)  # every prompt once, whatever its group
    assert [row for row, _ in rows[1:]] == [int((tokens_N > t).sum()) for t in range(1, len(rows))]
    assert all(row == logits for row, logits in rows[1:])


@pytest.mark.parametrize(
    "build",
    [
        lambda: build_qwen2(hidden=32, layers=2, heads=4, max_length=128),
        lambda: build_qwen2(hidden=32, layers=2, heads=4, max_length=128, key_value_heads=1),
        lambda: build_qwen2(hidden=32, layers=2, heads=4, max_length=12),  # shorter than the responses
        lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, num_key_value_heads=2, max_position_embeddings=128)),
        lambda: LlamaForCausalLM(
            LlamaConfig(
                **LLAMA, num_key_value_heads=4, max_position_embeddings=128, tie_word_embeddings=True, head_dim=16
            )
        ),
    ],
    ids=["qwen2", "qwen2-one-head-of-keys", "qwen2-beyond-its-length", "llama", "llama-wide-heads"],
)
def test_the_lean_decoder_draws_what_transformers_would(build, monkeypatch):
    torch.manual_seed(2)
    model = sharpen(build())
    assert lean_of(model) is not None
    lean = sample(model)
    monkeypatch.setattr("repro.engine.generate.decoder_of", AnyDecoder)
    slow = sample(model)
    assert torch.equal(lean.ids_N_T, slow.ids_N_T) and torch.equal(lean.mask_N_T, slow.mask_N_T)
    torch.testing.assert_close(lean.logprob_N_T, slow.logprob_N_T, atol=1e-5, rtol=0)
    torch.testing.assert_close(lean.entropy_N_T, slow.entropy_N_T, atol=1e-5, rtol=0)


def test_a_model_that_the_lean_pass_does_not_know_or_does_not_match_goes_through_transformers():
    biased = LlamaForCausalLM(LlamaConfig(**LLAMA, num_key_value_heads=2, mlp_bias=True))
    scaled = LlamaForCausalLM(
        LlamaConfig(
            **LLAMA, num_key_value_heads=4, rope_scaling={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
        )
    )
    assert lean_of(biased) is None and lean_of(scaled) is None
    changed = LlamaForCausalLM(LlamaConfig(**LLAMA, num_key_value_heads=4))
    forward = changed.model.forward

    def other(**inputs):
        out = forward(**inputs)
        out.last_hidden_state = out.last_hidden_state * 1.1  # as a subclass might do
        return out

    changed.model.forward = other
    with pytest.warns(UserWarning, match="the lean forward pass differs from transformers'"):
        assert lean_of(changed) is None


class Doubled(torch.nn.Linear):
    """Stands in for an adapter: as wide as the layer that it replaces, and another product."""

    def forward(self, x):
        return 2 * super().forward(x)


def resized(model):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model.resize_token_embeddings(V + 3, mean_resizing=False)


def exchanged(model):
    other = torch.nn.Linear(32, 32, bias=False)
    torch.nn.init.normal_(other.weight, generator=torch.Generator().manual_seed(5))
    model.model.layers[1].self_attn.q_proj = other


def adapted(model):
    old = model.model.layers[0].mlp.up_proj
    model.model.layers[0].mlp.up_proj = Doubled(32, 48, bias=False)
    model.model.layers[0].mlp.up_proj.weight = old.weight


def biased(model):
    model.lm_head.bias = torch.nn.Parameter(torch.linspace(-3, 3, V))


@pytest.mark.parametrize(
    ("change", "stays"),
    [(resized, True), (exchanged, True), (adapted, False), (biased, False)],
    ids=["resized", "exchanged", "adapted", "biased"],
)
def test_a_part_replaced_after_use_is_used(change, stays):
    """A resized model has another head; what the lean pass does not cover goes through transformers from then on."""
    torch.manual_seed(2)
    model = sharpen(LlamaForCausalLM(LlamaConfig(**LLAMA, num_key_value_heads=4, max_position_embeddings=128)))
    before, view = sample(model), lean_of(model)
    assert view is not None and lean_of(model) is view
    change(model)
    after = sample(model)
    assert (lean_of(model) is not None) == stays and lean_of(model) is not view
    check_kept_values(model, after)
    assert not torch.equal(after.logprob_N_T[:, 0], before.logprob_N_T[:, 0])


def test_new_values_of_the_same_parameters_need_no_other_view_which_keeps_no_model_alive():
    model = sharpen(build_qwen2(hidden=32, layers=2, heads=4, max_length=128))
    view, there = lean_of(model), weakref.ref(model)
    with torch.no_grad():
        model.lm_head.weight.mul_(2.0)
    assert lean_of(model) is view
    del model
    gc.collect()
    assert there() is None
