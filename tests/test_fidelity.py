"""Gradient norms of single rollouts against autograd, proxies by hand, and Theorem 4.2 as an identity."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from repro.engine.generate import Responses
from repro.engine.log_probabilities import Batch, response_log_probabilities
from repro.engine.snapshots import BASE, Checkpoint, load_checkpoint
from repro.experiments.fidelity import probe as probing
from repro.experiments.fidelity import summary as study
from repro.experiments.fidelity.gradient_norms import score_norms
from repro.experiments.fidelity.probe import judge, pearson, probe
from repro.experiments.fidelity.proxies import PROXIES, UNIFORM, Known
from repro.methods.objectives.aggregate import token_coefficients
from repro.methods.objectives.cispo import cispo
from repro.methods.objectives.grpo import grpo
from repro.methods.objectives.gspo import gspo
from repro.policy.model import build_qwen2, save_policy
from repro.settings import load
from repro.tasks.tokenizer import build_tokenizer

PAD = 0
RTOL = 1e-6  # the model's norm layers and the softmax round to float32 whatever the weights' type
PROMPTS, RESPONSES = [3, 1, 5, 2], [4, 9, 1, 6]  # tokens


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return build_qwen2(hidden=16, layers=2, heads=2, max_length=64).double().eval()


def make_batch(prompts=PROMPTS, responses=RESPONSES, extra=0):
    """Random tokens; `extra` columns of padding that no response reaches."""
    generator = torch.Generator().manual_seed(1)
    n, width = len(prompts), max(responses) + extra
    mask_N_T = torch.arange(width) < torch.tensor(responses)[:, None]
    drawn_N_T = torch.randint(3, 20, (n, max(RESPONSES)), generator=generator)
    ids_N_T = torch.nn.functional.pad(drawn_N_T, (0, width - drawn_N_T.shape[1])).masked_fill(~mask_N_T, PAD)
    zeros_N_T = torch.zeros(n, width)
    known = {"ids_N_T": ids_N_T, "mask_N_T": mask_N_T, "prompt_tokens_N": torch.tensor(prompts)}
    known |= {"finished_N": torch.ones(n, dtype=torch.bool)}
    rest = {part.name: zeros_N_T for part in dataclasses.fields(Responses) if part.name not in known}
    tokens = torch.randint(3, 20, (n, max(PROMPTS)), generator=generator).tolist()
    return Batch([row[:length] for row, length in zip(tokens, prompts, strict=True)], Responses(**known, **rest))


def norms(model, batch, **options):
    return score_norms(model, batch, np.arange(len(batch.prompts_N)), pad=PAD, temperature=0.7, **options)


@pytest.mark.parametrize("objective", [grpo, gspo, cispo])
def test_norms_are_those_of_each_rollouts_own_loss_by_autograd(model, objective):
    batch, advantages = make_batch(), torch.tensor([1.5, -0.5, -2.0, 0.25], dtype=torch.float64)
    expected = []
    for row in range(len(PROMPTS)):
        model.zero_grad()
        logprob_1_T, _ = response_log_probabilities(model, batch, np.array([row]), PAD, 0.7)
        mask_1_T = batch.responses.mask_N_T[[row], : RESPONSES[row]]
        loss_1_T, _ = objective(logprob_1_T, logprob_1_T.detach(), advantages[[row]], mask_1_T)
        (loss_1_T * token_coefficients(mask_1_T, "sequence-mean")).sum().backward()
        expected.append(sum(float(p.grad.square().sum()) for p in model.parameters()) ** 0.5)
    found = norms(model, batch).score_N * advantages.abs().numpy() / np.array(RESPONSES)
    np.testing.assert_allclose(found, expected, rtol=RTOL)
    model.zero_grad()


def test_the_output_layers_share_is_the_head_alone_and_errors_are_by_hand(model):
    batch = make_batch()
    found = norms(model, batch)
    head = model.get_output_embeddings()
    hidden = []
    handle = head.register_forward_pre_hook(lambda module, given: hidden.append(given[0].detach()))
    for row, (prompt, response) in enumerate(zip(PROMPTS, RESPONSES, strict=True)):
        with torch.no_grad():
            _, log_p_1_T_V = response_log_probabilities(model, batch, np.array([row]), PAD, 0.7)
        drawn_T_V = torch.nn.functional.one_hot(batch.responses.ids_N_T[row, :response], 21)
        error_T_V = drawn_T_V - log_p_1_T_V[0].exp().double()
        states_T_D = hidden.pop()[0, :response]  # the first is the prompt's last token's, which predicts the response
        assert len(states_T_D) == response and prompt > 0
        layer = (error_T_V.T @ states_T_D).norm() / 0.7
        np.testing.assert_allclose(found.output_layer_N[row], float(layer), rtol=RTOL)
        np.testing.assert_allclose(found.error_sum_N[row], float(error_T_V.sum(0).norm()), rtol=RTOL)
        np.testing.assert_allclose(found.error_square_N[row], float(error_T_V.square().sum()), rtol=RTOL)
    handle.remove()


def test_neither_padding_nor_slices_nor_company_change_a_norm(model):
    whole = norms(model, make_batch())
    padded = norms(model, make_batch(extra=7), slice_tokens=1)
    alone = score_norms(model, make_batch(), np.array([2]), pad=PAD, temperature=0.7)
    for part in dataclasses.fields(whole):
        np.testing.assert_allclose(getattr(padded, part.name), getattr(whole, part.name), rtol=RTOL)
        np.testing.assert_allclose(getattr(alone, part.name), getattr(whole, part.name)[[2]], rtol=RTOL)


def test_proxies_by_hand():
    known = Known(
        advantages_N=np.array([-2.0, 0.0]),
        tokens_N=np.array([4.0, 9.0]),
        divisor_N=np.array([4.0, 9.0]),
        entropy_N=np.array([9.0, 1.0]),
        surprise_square_N=np.array([4.0, 1.0]),
        error_square_N=np.array([6.25, 1.0]),
        error_sum_N=np.array([1.5, 1.0]),
        output_layer_N=np.array([3.0, 1.0]),
    )
    first = {
        "constant": 1.0,
        "advantage": 2.0,
        "times-root-length": 4.0,
        "over-root-length": 1.0,
        "mean-entropy": 4.5,
        "root-entropy": 1.5,
        "surprise": 1.0,
        "error": 1.25,
        "error-sum": 0.75,
        "output-layer": 1.5,
    }
    for name, proxy in PROXIES.items():
        np.testing.assert_allclose(proxy(known), [first[name], float(name == "constant")], err_msg=name)


def test_judge_scores_the_norm_itself_as_perfect_and_uniform_as_eq_8():
    norms_N, costs_N = np.array([0.0, 1.0, 2.0, 4.0]), np.array([4.0, 1.0, 9.0, 4.0])
    rows = judge(norms_N, costs_N, norms_N > 0, {"itself": norms_N, "constant": np.ones(4)})
    by_name = {row["proxy"]: row for row in rows}
    assert by_name["itself"]["pearson"] == by_name["itself"]["pearson_signal"] == pytest.approx(1)
    assert by_name["itself"]["product"] == pytest.approx(1) and by_name["itself"]["chi2"] == pytest.approx(0, abs=1e-12)
    assert np.isnan(by_name["constant"]["pearson"])
    assert by_name[UNIFORM]["product"] == pytest.approx(18 * 21 / 15**2)  # eq. 8: (Σc)(Σg²)/(Σg√c)²
    assert pearson(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.5])) == pytest.approx(4.5 / (2 * 61 / 6) ** 0.5)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """An untrained base policy, and the settings of scale `smoke`."""
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("policy") / "model"
    save_policy(build_qwen2(hidden=16, layers=1, heads=2, max_length=192), build_tokenizer(), folder)
    return Checkpoint(BASE, 0, 0, folder, None, load(scale="smoke"))


def test_a_snapshot_lies_over_the_base_policy_and_a_wrong_one_is_refused(checkpoint, tmp_path):
    from safetensors.torch import save_file

    model, _ = load_checkpoint(checkpoint)
    state = {name: value.clone() + 1 for name, value in model.state_dict().items()}
    save_file(state, tmp_path / "whole.safetensors")
    snapshot = dataclasses.replace(checkpoint, arm="grpo", weights=tmp_path / "whole.safetensors")
    loaded, _ = load_checkpoint(snapshot)
    assert all(torch.equal(value, state[name]) for name, value in loaded.state_dict().items())
    tied = {name: value for name, value in state.items() if name != "lm_head.weight"}
    save_file(tied, tmp_path / "whole.safetensors")
    assert torch.equal(load_checkpoint(snapshot)[0].lm_head.weight, state["lm_head.weight"])
    save_file({name: value for name, value in tied.items() if "norm" not in name}, tmp_path / "whole.safetensors")
    with pytest.raises(ValueError, match=r"does not fit the base policy at .*norm"):
        load_checkpoint(snapshot)
    with pytest.raises(FileNotFoundError, match="does not exist: run the same again"):
        load_checkpoint(dataclasses.replace(snapshot, weights=tmp_path / "none"))


def test_a_probe_is_a_pure_function_and_says_when_there_is_nothing_to_measure(checkpoint, monkeypatch):
    empty = probe(checkpoint)  # an untrained policy never answers
    assert (
        empty["sample"].empty and empty["summary"]["product"].isna().all() and (empty["summary"]["signal"] == 0).all()
    )
    nothing = study.rank(empty["summary"], checkpoint.settings.statistics)
    assert nothing["product"].isna().all() and (study.measures(nothing).iloc[:, 1:] == "–").all(axis=None)
    monkeypatch.setattr(probing, "score", lambda texts, valid_N, queries_N: np.arange(len(texts)) % 4 % 3 % 2.0)
    tables = probe(checkpoint)
    for name, table in probe(checkpoint).items():
        pd.testing.assert_frame_equal(table, tables[name])
    summary, sums = (tables[name].set_index("proxy") for name in ("summary", "token_sum"))
    assert list(summary.index) == list(sums.index) == [*PROXIES, UNIFORM]
    np.testing.assert_allclose(summary["product"], 1 + summary["chi2"], rtol=1e-9)
    assert summary.loc["output-layer", "product"] < summary.loc["constant", "product"]
    sample = tables["sample"]
    np.testing.assert_allclose(
        sample["times-root-length"], sample["advantage"] * sample["response_tokens"] ** 0.5, rtol=1e-12
    )


def test_the_best_proxy_is_the_cheapest_of_those_that_tie():
    values = {name: 3.0 for name in PROXIES} | {"error": 1.50, "surprise": 1.52, "output-layer": 1.0, UNIFORM: 9.0}
    rows = [
        {"seed": seed, "proxy": name, "pearson": 0.5, "pearson_signal": 0.25, "product": value + seed}
        for name, value in values.items()
        for seed in (0, 1)
    ]
    ranking = study.rank(pd.DataFrame(rows), load(scale="smoke").statistics)
    assert ranking.loc["error", ["product", "product_low", "product_high"]].tolist() == pytest.approx(
        [2.0, 2 - 12.706205 / 2, 2 + 12.706205 / 2]
    )  # t of two seeds
    assert study.best(ranking) == "surprise"
    assert study.best(ranking, ("hidden states",)) == "output-layer"
    table = study.measures(ranking).set_index("proxy")
    assert table.loc[study.formula("surprise"), "cost, 1 is ideal"] == "2.02 [-4.33, 8.37]"
    assert table["correlation with the norm"].eq("0.50 [0.50, 0.50]").all() and len(table) == len(values)
    assert study.formula("root-entropy").endswith("/T$") and study.formula("root-entropy", "").endswith("H_t}$")
