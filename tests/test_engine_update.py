"""The update's gradient against plain autograd, and importance weighting against the full batch."""

import copy
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from test_engine_generate import sample, sharpen

from repro.arms import build
from repro.engine import log_probabilities as scoring
from repro.engine.log_probabilities import Batch, log_probabilities, response_log_probabilities, slices_of_like_length
from repro.engine.update import UpdateSettings, accumulate_gradients, run_updates, silent_without_advantage
from repro.methods.objectives.aggregate import TokenLoss
from repro.methods.objectives.cispo import cispo
from repro.methods.objectives.grpo import grpo
from repro.methods.objectives.gspo import gspo
from repro.methods.rollouts import Rollouts
from repro.methods.samplers.cost_aware import cost_aware, probabilities
from repro.policy.flops import FlopCounter
from repro.policy.model import build_qwen2
from repro.protocol.ledger import Ledger
from repro.settings import Arm
from repro.tasks.tokenizer import PAD, SYMBOLS

PAD_ID = SYMBOLS.index(PAD)
PROMPTS_Q = [[1, 5, 6], [1, 4, 9, 12, 3, 8, 7, 6, 11, 14], [1, 7, 7, 13, 5], [1, 9, 9]]
GROUP, MAX_TOKENS = 4, 24


@dataclass
class Case:
    """A policy that has moved since it generated `batch`, so that ratios differ from 1 and some are clipped."""

    model: torch.nn.Module
    reference: torch.nn.Module
    batch: Batch
    rollouts: Rollouts


@pytest.fixture(scope="module", params=[1, 2], ids=["shared keys", "own keys"])
def case(request) -> Case:
    torch.manual_seed(0)
    model = sharpen(build_qwen2(hidden=16, layers=2, heads=2, max_length=64, key_value_heads=request.param))
    responses = sample(model, PROMPTS_Q, [GROUP] * len(PROMPTS_Q), MAX_TOKENS, seed=1)
    generator = torch.Generator().manual_seed(2)
    reference = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.03 * parameter.std().nan_to_num(0.0) * torch.randn(parameter.shape, generator=generator))
    rng = np.random.default_rng(2)
    advantages_N = rng.normal(size=len(PROMPTS_Q) * GROUP)
    advantages_N[-GROUP:] = 0.0  # a group without signal
    rollouts = Rollouts.from_batch(
        group_N=np.repeat(np.arange(len(PROMPTS_Q)), GROUP),
        rewards_N=advantages_N,
        advantages_N=advantages_N,
        prompt_tokens_N=responses.prompt_tokens_N.numpy(),
        response_tokens_N=responses.mask_N_T.sum(1).numpy(),
        response_mask_N_T=responses.mask_N_T.numpy(),
        entropy_N_T=responses.entropy_N_T.numpy(),
        logprob_N_T=responses.logprob_N_T.numpy(),
    )
    batch = Batch([prompt for prompt in PROMPTS_Q for _ in range(GROUP)], responses)
    return Case(model, reference, batch, rollouts)


def gradient(case: Case, rollouts: Rollouts, aggregation="sequence-mean", kl=0.0, slice_tokens=64, temperature=1.0):
    """(the gradient as one vector, the sums) that accumulate_gradients leaves."""
    options = UpdateSettings(aggregation, temperature, kl, 1.0, slice_tokens, MAX_TOKENS)
    case.model.zero_grad(set_to_none=True)
    sums = accumulate_gradients(case.model, grpo, case.batch, rollouts, PAD_ID, options, case.reference)
    return torch.cat([parameter.grad.flatten() for parameter in case.model.parameters()]), sums


def token_log_probabilities(model, prompt: list[int], response: list[int], temperature: float) -> torch.Tensor:
    """One row alone, without padding."""
    logits = model(input_ids=torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1] / temperature
    return torch.log_softmax(logits, -1)[torch.arange(len(response)), torch.tensor(response)]


def brute_force(case: Case, rollouts: Rollouts, aggregation: str, kl: float, temperature: float):
    """(gradient, loss, clipped): the loss written out row by row and token by token, differentiated by autograd."""
    responses, terms, clipped = case.batch.responses, [], 0
    kept_M = rollouts.response_mask_N_T.sum(1)
    for m, row in enumerate(rollouts.row_N):
        ids = responses.ids_N_T[row][responses.mask_N_T[row]].tolist()
        new_T = token_log_probabilities(case.model, case.batch.prompts_N[row], ids, temperature)
        with torch.no_grad():
            reference_T = token_log_probabilities(case.reference, case.batch.prompts_N[row], ids, temperature)
        ratio_T = (new_T - responses.logprob_N_T[row, : len(ids)]).exp()
        advantage = rollouts.advantages_N[m] * rollouts.weights_N[m]
        share = {
            "sequence-mean": 1 / (len(kept_M) * kept_M[m]),
            "token-mean": 1 / kept_M.sum(),
            "constant-length": 1 / (len(kept_M) * MAX_TOKENS),
        }[aggregation]
        for t in range(len(ids)):
            if not rollouts.response_mask_N_T[m, t]:
                continue
            free, held = ratio_T[t] * advantage, ratio_T[t].clamp(0.8, 1.28) * advantage
            gap = reference_T[t] - new_T[t]
            terms.append(share * (-torch.minimum(free, held) + kl * (gap.exp() - 1 - gap)))
            clipped += int(held < free)
    loss = torch.stack(terms).sum()
    flat = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(case.model.parameters()))])
    return flat, float(loss.detach()), clipped


@pytest.mark.parametrize("aggregation", ["sequence-mean", "token-mean", "constant-length"])
@pytest.mark.parametrize("kl", [0.0, 0.3])
@pytest.mark.parametrize("masked", [False, True])
def test_the_gradient_is_that_of_the_loss_written_out(case, aggregation, kl, masked):
    rows_M = np.array([3, 0, 7, 7, 10, 13, 5])  # repeats, and a row without signal
    rollouts = case.rollouts.take(rows_M, np.array([0.5, 2.0, 1.5, 1.5, 0.25, 1.0, 3.0]))
    if masked:
        keep_M_T = np.random.default_rng(5).random(rollouts.response_mask_N_T.shape) < 0.5
        keep_M_T[:, 0] = True
        rollouts = rollouts.with_mask(keep_M_T)
    expected, loss, clipped = brute_force(case, rollouts, aggregation, kl, 1.0)
    found, sums = gradient(case, rollouts, aggregation, kl)
    assert clipped > 0
    torch.testing.assert_close(found, expected, atol=1e-5 * float(expected.abs().max()), rtol=1e-4)
    assert sums["loss"] == pytest.approx(loss, rel=1e-4, abs=1e-6)
    assert sums["clipped"] == clipped
    assert sums["tokens"] == rollouts.response_mask_N_T.sum()


def test_the_temperature_divides_the_logits(case):
    rollouts = case.rollouts.take(np.arange(5))
    found, _ = gradient(case, rollouts, temperature=0.7)
    expected, _, _ = brute_force(case, rollouts, "sequence-mean", 0.0, 0.7)
    torch.testing.assert_close(found, expected, atol=1e-5 * float(expected.abs().max()), rtol=1e-4)


def test_the_policy_that_generated_reads_its_own_log_probabilities_again(case):
    rows_M = np.array([2, 9, 4, 15, 11])
    with torch.no_grad():
        logprob_M_T, log_p_M_T_V = response_log_probabilities(case.reference, case.batch, rows_M, PAD_ID, 1.0)
    mask_M_T = case.batch.responses.mask_N_T[rows_M][:, : logprob_M_T.shape[1]]
    kept_M_T = case.batch.responses.logprob_N_T[rows_M][:, : logprob_M_T.shape[1]]
    torch.testing.assert_close(logprob_M_T[mask_M_T], kept_M_T[mask_M_T], atol=1e-5, rtol=1e-5)
    assert torch.allclose(log_p_M_T_V.exp().sum(-1), torch.ones(1))


@pytest.mark.parametrize("slice_tokens", [1, 40, 10_000])
def test_slicing_does_not_change_the_gradient(case, slice_tokens):
    whole, sums = gradient(case, case.rollouts, slice_tokens=100)
    sliced, sliced_sums = gradient(case, case.rollouts, slice_tokens=slice_tokens)
    torch.testing.assert_close(sliced, whole, atol=1e-5 * float(whole.abs().max()), rtol=1e-4)
    assert sliced_sums["tokens"] == sums["tokens"] and sliced_sums["clipped"] == sums["clipped"]


@given(st.lists(st.integers(2, 200), min_size=1, max_size=80), st.integers(1, 2000))
@settings(deadline=None)
def test_slices_cover_every_row_once_within_their_limits(lengths, slice_tokens):
    lengths_M = np.array(lengths)
    slices = slices_of_like_length(lengths_M, slice_tokens)
    assert sorted(np.concatenate(slices).tolist()) == list(range(len(lengths_M)))
    for part in slices:
        longest, shortest = lengths_M[part].max(), lengths_M[part].min()
        assert len(part) == 1 or len(part) * longest <= slice_tokens
        assert longest <= max(1.25 * shortest, shortest + 8)


def test_weighted_gradients_average_exactly_to_the_full_gradient_times_a_constant(case):
    """Σ p_i · gradient of the mini-batch {i} at weight 1/(#{p>0} p_i) = N/#{p>0} · gradient of the whole batch."""
    p_N = probabilities(case.rollouts)
    n, drawable = len(p_N), np.flatnonzero(p_N)
    assert len(drawable) == n - GROUP
    full, _ = gradient(case, case.rollouts)
    expectation = sum(
        p_N[i] * gradient(case, case.rollouts.take([i], np.array([1 / (len(drawable) * p_N[i])])))[0] for i in drawable
    )
    target = full * n / len(drawable)
    torch.testing.assert_close(expectation, target, atol=1e-5 * float(target.abs().max()), rtol=1e-3)


def test_drawn_mini_batches_are_unbiased_within_their_standard_error(case):
    """Hotelling's T² of 400 drawn mini-batch gradients against the full batch's, along eight random directions."""
    rng, draws, directions = np.random.default_rng(7), 400, 8
    full, _ = gradient(case, case.rollouts)
    target = full.numpy() * len(case.rollouts) / np.count_nonzero(probabilities(case.rollouts))
    weighted, plain = [], []
    for _ in range(draws):
        drawn = cost_aware(case.rollouts, 0.0, rng).take(np.arange(GROUP))  # one mini-batch of the draw
        weighted.append(gradient(case, drawn)[0].numpy())
        plain.append(gradient(case, case.rollouts.take(drawn.row_N))[0].numpy())

    def p_value(gradients_D_P: list[np.ndarray]) -> float:
        axes_P_K = rng.normal(size=(len(target), directions)) / np.abs(target).max()
        off_D_K = (np.array(gradients_D_P) - target) @ axes_P_K
        mean_K, covariance = off_D_K.mean(0), np.cov(off_D_K.T)
        t2 = draws * mean_K @ np.linalg.solve(covariance, mean_K)
        return stats.f.sf(t2 * (draws - directions) / (directions * (draws - 1)), directions, draws - directions)

    assert p_value(weighted) > 1e-3
    assert p_value(plain) < 1e-6  # without the weights the same test sees the bias
    weighted_D_P = np.array(weighted)
    error_P = weighted_D_P.std(0, ddof=1) / np.sqrt(draws)
    z_P = ((weighted_D_P.mean(0) - target) / np.where(error_P > 0, error_P, 1.0))[error_P > 0]
    assert np.abs(z_P).max() < 6
    # 1 in expectation. Two thirds of the variance lie along one direction, so it strays: 99% of seeds stay inside.
    assert 0.2 < np.square(z_P).mean() < 4


def every_row(case: Case, rollouts: Rollouts, aggregation: str, objective=grpo) -> torch.Tensor:
    """The gradient with rollouts of zero advantage computed as well, copies apart."""
    options = UpdateSettings(aggregation, 1.0, 0.0, 1.0, 64, MAX_TOKENS, every_row=True)
    case.model.zero_grad(set_to_none=True)
    accumulate_gradients(case.model, objective, case.batch, rollouts, PAD_ID, options)
    return torch.cat([parameter.grad.flatten() for parameter in case.model.parameters()])


@pytest.mark.parametrize("aggregation", ["sequence-mean", "token-mean", "constant-length"])
@pytest.mark.parametrize("objective", [grpo, gspo, cispo])
def test_rollouts_without_an_advantage_or_a_token_have_no_gradient_and_are_not_read(case, aggregation, objective):
    rollouts = case.rollouts.take(np.array([0, 12, 5, 13, 15, 5, 2]))  # 12 to 15 have no advantage
    mask_M_T = rollouts.response_mask_N_T.copy()
    mask_M_T[6] = False
    rollouts = rollouts.with_mask(mask_M_T)
    expected = every_row(case, rollouts, aggregation, objective)
    options = UpdateSettings(aggregation, 1.0, 0.0, 1.0, 64, MAX_TOKENS)
    case.model.zero_grad(set_to_none=True)
    sums = accumulate_gradients(case.model, objective, case.batch, rollouts, PAD_ID, options)
    found = torch.cat([parameter.grad.flatten() for parameter in case.model.parameters()])
    assert sums["rows"] == 2  # 0 and, once, 5
    assert sums["tokens"] == rollouts.response_mask_N_T.sum()
    assert float((found - expected).norm()) <= 1e-6 * float(expected.norm())


def test_a_mini_batch_without_a_gradient_leaves_zeros_which_adam_counts_as_a_step(case):
    sums = gradient(case, case.rollouts.take(np.array([12, 13])))[1]
    assert sums["rows"] == 0 and sums["loss"] == 0.0
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in case.model.parameters())


def test_an_objective_with_a_gradient_at_zero_advantage_reads_every_row(case):
    def with_entropy_bonus(logprob_N_T, old_logprob_N_T, advantages_N, mask_N_T):
        loss_N_T, clipped_N_T = grpo(logprob_N_T, old_logprob_N_T, advantages_N, mask_N_T)
        return TokenLoss(loss_N_T + 0.1 * logprob_N_T, clipped_N_T)

    method = build("mine", Arm(title="mine", about="", group="x"))
    silent = [silent_without_advantage(replace(method, objective=each)) for each in (grpo, gspo, cispo)]
    assert all(silent) and not silent_without_advantage(replace(method, objective=with_entropy_bonus))
    assert every_row(case, case.rollouts.take(np.array([12])), "sequence-mean", with_entropy_bonus).any()


@pytest.mark.parametrize(
    "where",
    [
        lambda new, old: new < np.log(0.01),  # a push against unlikely tokens
        lambda new, old: new < -15,
        lambda new, old: new > -0.01,
        lambda new, old: new - old > 4,
        lambda new, old: new - old < -4,
    ],
)
def test_a_gradient_at_zero_advantage_is_noticed_at_the_edges_too(where):
    def pushed(logprob_N_T, old_logprob_N_T, advantages_N, mask_N_T):
        loss_N_T, clipped_N_T = grpo(logprob_N_T, old_logprob_N_T, advantages_N, mask_N_T)
        return TokenLoss(loss_N_T + 0.1 * logprob_N_T * where(logprob_N_T, old_logprob_N_T), clipped_N_T)

    method = build("mine", Arm(title="mine", about="", group="x"))
    assert not silent_without_advantage(replace(method, objective=pushed))
    assert silent_without_advantage(method)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_packed_log_probabilities_and_gradients_are_those_of_transformers(case, temperature, monkeypatch):
    rows_M = np.array([3, 11, 0, 7, 14, 8])
    found, _ = gradient(case, case.rollouts, temperature=temperature)
    packed_M_T = log_probabilities(case.model, case.batch, rows_M, PAD_ID, temperature)
    monkeypatch.setattr(scoring, "lean_of", lambda model: None)
    padded_M_T = log_probabilities(case.model, case.batch, rows_M, PAD_ID, temperature)
    expected, _ = gradient(case, case.rollouts, temperature=temperature)
    torch.testing.assert_close(packed_M_T, padded_M_T, atol=1e-5, rtol=0)
    assert float((found - expected).norm()) <= 1e-4 * float(expected.norm())


def test_the_ledger_charges_what_was_read_and_keeps_the_papers_count(case):
    rollouts = case.rollouts.take(np.array([0, 12, 5, 13, 15, 5, 2]))  # 12 to 15 have no advantage, 5 is drawn twice
    model, ledger, flops = copy.deepcopy(case.model), Ledger(), FlopCounter.of(case.model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    options = UpdateSettings("sequence-mean", 1.0, 0.0, 1.0, 64, MAX_TOKENS)
    parts = [rollouts.take(np.arange(4)), rollouts.take(np.arange(4, 7))]
    metrics = run_updates(model, optimiser, grpo, case.batch, parts, PAD_ID, options, ledger, flops)
    cost = case.rollouts.costs_N
    assert ledger.trained_tokens == cost[0] + cost[5] + cost[5] + cost[2]  # 5 once in each mini-batch
    assert ledger.paper_tokens == rollouts.costs_N.sum()
    assert ledger.flops_train == pytest.approx(flops.forward_backward(cost[[0, 5, 5, 2]]))
    assert (ledger.updates, ledger.scored_tokens, metrics["computed_rollouts"]) == (2, 0, 4)
