"""Rollouts on a model: entropies, gradients and cosines against autograd, spelled out."""

import json

import numpy as np
import pytest
import torch

from repro.engine.backends.load import build_tiny
from repro.errors import Refused
from repro.policy.model import save_policy
from repro.replay import replay
from repro.replay.on_model import on_model
from repro.settings import load
from repro.theory.proxy import product, sampling

PROMPTS = ["12+3=", "9-4*2=", "7*7="]
RIGHT = [[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of random weights, and a dump of texts in TRL's and of tokens in slime's form."""
    folder = tmp_path_factory.mktemp("model")
    model, tokenizer = build_tiny()
    save_policy(model, tokenizer, folder / "model")
    rng, rows, samples = np.random.default_rng(0), [], []
    for group, (prompt, rewards) in enumerate(zip(PROMPTS, RIGHT, strict=True)):
        for reward in rewards:
            text = "".join(rng.choice(list("0123456789+-"), rng.integers(2, 9)))
            rows.append({"step": 3, "group": group, "reward": reward, "prompt": prompt, "response": text})
            ids = tokenizer(prompt + text)["input_ids"] + [0]
            samples.append({"group_index": group, "prompt": prompt, "tokens": ids, "reward": reward})
            samples[-1] |= {"response_length": len(text) + 1, "rollout_id": 3}
    for name, records in (("texts", rows), ("tokens", samples)):
        (folder / f"{name}.jsonl").write_text("\n".join(json.dumps({**record}, default=float) for record in records))
    return folder


def forward(folder, row):
    """(model, log-probabilities over the vocabulary, those of the response's tokens) of a rollout."""
    model, tokenizer = build_tiny()
    record = [json.loads(line) for line in (folder / "texts.jsonl").read_text().splitlines()][row]
    first = len(record["prompt"])
    ids = torch.tensor([tokenizer(record["prompt"] + record["response"])["input_ids"] + [0]])
    log_p = model(ids).logits[0, first - 1 : -1].log_softmax(-1)
    return model, log_p, log_p[torch.arange(len(log_p)), ids[0, first:]]


def scores(folder, row, tokens=slice(None)):
    """∇ Σ log π of some tokens of a rollout, as a vector."""
    model, _, picked = forward(folder, row)
    gradient = torch.autograd.grad(picked[tokens].sum(), list(model.parameters()))
    return torch.cat([part.flatten() for part in gradient]).double().numpy()


def by_hand(folder):
    """(entropies, log-probabilities, score vectors) of each rollout: lists of arrays, and a matrix."""
    passes = [forward(folder, row)[1:] for row in range(12)]
    entropies = [-(log_p.exp() * log_p).sum(-1).detach().numpy() for log_p, _ in passes]
    logprobs = [picked.detach().numpy() for _, picked in passes]
    return entropies, logprobs, np.stack([scores(folder, row) for row in range(12)])


@pytest.fixture(scope="module")
def seen(folder):
    how = {"tokenizer": str(folder / "model")}
    found = replay(folder / "texts.jsonl", **how)
    return found, on_model(found, folder / "texts.jsonl", folder / "model", **how)


def test_entropies_and_gradients_are_autograds(folder, seen):
    _, on = seen
    entropies, logprobs, scores_N_W = by_hand(folder)
    rows = on.rollouts
    np.testing.assert_allclose(rows["entropy"], [one.mean() for one in entropies], rtol=1e-5)
    np.testing.assert_allclose(rows["surprise"], [-one.mean() for one in logprobs], rtol=1e-5)
    assert rows["response_tokens"].tolist() == list(map(len, logprobs))
    norms_N = rows["advantage"].abs() * np.linalg.norm(scores_N_W, axis=1)
    np.testing.assert_allclose(rows["norm"], norms_N, rtol=1e-4)
    assert "nats of −log π" in on.notes[0] and "another model" in on.notes[0]  # letters at random: it wrote none


def test_the_proxys_fidelity_is_figure_3s(seen):
    _, on = seen
    rows, costs_N = on.rollouts, on.rollouts["prompt_tokens"] + on.rollouts["response_tokens"]
    size_N = rows["advantage"].abs()
    for divisor, norms_N in (("1", rows["norm"]), ("T", rows["norm"] / rows["response_tokens"])):
        row = on.proxies.set_index(["divisor", "proxy"]).loc[(divisor, "advantage")]
        assert row["pearson"] == pytest.approx(np.corrcoef(size_N, norms_N)[0, 1])
        signal_N = size_N > 0
        assert row["pearson_signal"] == pytest.approx(np.corrcoef(size_N[signal_N], norms_N[signal_N])[0, 1])
        assert row["product"] == pytest.approx(product(norms_N, costs_N, sampling(size_N, costs_N)))


def half(rollouts, progress, rng):
    """The first half, the first of it twice, with weights."""
    rows = np.arange(len(rollouts) // 2)
    return rollouts.take(np.append(rows, 0), np.arange(1.0, len(rows) + 2))


def sharpest(rollouts, progress, rng):
    """Of each response the token of most entropy."""
    return rollouts.with_mask(rollouts.entropy_N_T == rollouts.entropy_N_T.max(1, keepdims=True))


def test_an_arms_gradient_is_compared_with_that_of_the_whole_batch(folder, seen):
    how = {"tokenizer": str(folder / "model")}
    arms = {"grpo": "grpo", "zvf": "zvf", "half": {"samplers": [half]}, "sharpest": {"samplers": [sharpest]}}
    found = replay(folder / "texts.jsonl", **how, settings=load().with_arms(arms))
    on = on_model(found, folder / "texts.jsonl", folder / "model", arms=list(arms), **how).arms
    entropies, _, scores_N_W = by_hand(folder)
    advantage_N = found.rollouts["advantage"].to_numpy()
    whole_W, weight_N = advantage_N @ scores_N_W, np.array([1 + 7, 2, 3, 4, 5, 6, *[0] * 6])
    peaks_N_W = np.stack([scores(folder, row, int(np.argmax(own))) for row, own in enumerate(entropies)])
    for arm, arms_W in (("half", weight_N * advantage_N @ scores_N_W), ("sharpest", advantage_N @ peaks_N_W)):
        cosine = arms_W @ whole_W / np.linalg.norm(arms_W) / np.linalg.norm(whole_W)
        assert on.loc[arm, "cosine"] == pytest.approx(cosine, rel=1e-4)
        assert on.loc[arm, "signal"] == pytest.approx(cosine**2 / on.loc[arm, "bill"], rel=1e-4)
    assert on.loc[["grpo", "zvf"], "cosine"].tolist() == pytest.approx([1, 1])
    lengths_N, signal_N = np.array(list(map(len, entropies))), advantage_N != 0
    assert on.loc["sharpest", "tokens"] == pytest.approx(signal_N.sum() / lengths_N.sum())
    assert on.loc["half", "tokens"] == pytest.approx(lengths_N[signal_N & (weight_N > 0)].sum() / lengths_N.sum())
    assert {"d2s", "d3s"} <= set(seen[1].arms.index)  # which read entropies


def test_tokens_in_the_files_give_the_same_and_lengths_alone_are_refused(folder, seen):
    found, on = seen
    same = replay(folder / "tokens.jsonl")
    theirs = on_model(same, folder / "tokens.jsonl", folder / "model")
    np.testing.assert_allclose(theirs.rollouts["norm"], on.rollouts["norm"], rtol=1e-6)
    few = on_model(same, folder / "tokens.jsonl", folder / "model", sample=4)
    assert few.rollouts["group"].nunique() == 1 and len(few.rollouts) == 4
    numbers = found.rollouts[["step", "group", "reward", "prompt_tokens", "response_tokens"]]
    with pytest.raises(Refused, match="texts or tokens"):
        on_model(replay(numbers), numbers, folder / "model")
    with pytest.raises(Refused, match="no rollout of this step"):
        on_model(found, folder / "texts.jsonl", folder / "model", at=4)
