"""The embedded engine on CUDA makes the step that it makes on a CPU. Skipped where there is no GPU."""

import numpy as np
import pytest
import torch
from test_adapters import END, draw, gradient, model_of, relative
from tiny_run import new_trainer, parity, reward_with

from repro.engine.log_probabilities import Batch, log_probabilities
from repro.engine.train import Trainer
from repro.engine.update import accumulate_gradients
from repro.methods.rollouts import Rollouts
from repro.policy.lean import lean_of
from repro.settings import load

CUDA = "cuda"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
]


def draw_on_the_cpu(monkeypatch) -> None:
    """Uniform numbers of a generator come from its seed by the CPU's generator, whatever its device."""
    rand = torch.rand

    def alike(*shape, device=None, generator=None, **options):
        same = generator and torch.Generator().manual_seed(generator.initial_seed())
        return rand(*shape, generator=same, **options).to(device)

    monkeypatch.setattr(torch, "rand", alike)


def step_on(device: str, arm: str) -> tuple[Trainer, Rollouts, torch.Tensor]:
    """The first step of an arm: its trainer, what its samplers chose, the gradient of that."""
    engine = new_trainer(load().arm(arm), device=device, temperature=1.0, kl=0.1)
    for model in (engine.model, engine.reference):
        model.to(device)
    groups, _ = engine.collect(0)
    assert groups.responses.ids_N_T.device.type == device
    chosen = engine.select(0, engine._rollouts(groups), 0.0)
    batch = Batch([engine.prompts[query] for query in groups.query_N], groups.responses)
    how = engine.tokenizer.pad_token_id, engine.update_settings, engine.reference
    accumulate_gradients(engine.model, engine.method.objective, batch, chosen, *how)
    return engine, chosen, torch.cat([parameter.grad.flatten().cpu() for parameter in engine.model.parameters()])


@pytest.mark.parametrize("arm", ["zvf-cost-aware", "d3s"])
def test_a_step_on_cuda_is_the_cpus(arm, monkeypatch):
    reward_with(monkeypatch, parity)
    draw_on_the_cpu(monkeypatch)
    here, theirs, expected = step_on("cpu", arm)
    there, ours, gradient = step_on(CUDA, arm)
    assert there.ledger.generated_tokens == here.ledger.generated_tokens
    np.testing.assert_array_equal(ours.row_N, theirs.row_N)
    np.testing.assert_array_equal(ours.response_mask_N_T, theirs.response_mask_N_T)
    np.testing.assert_allclose(ours.weights_N, theirs.weights_N, rtol=1e-4)
    assert (gradient - expected).norm() <= 1e-3 * expected.norm() and expected.norm() > 0


def test_adapters_draw_and_learn_on_cuda_as_on_a_cpu(monkeypatch):
    draw_on_the_cpu(monkeypatch)
    drawn, gradients = [], []
    for device in ("cpu", CUDA):
        model = model_of().to(device)
        for _ in range(2):  # the second replays what the first has captured
            batch = draw(model, end=5, tokens=14)
        logprob_M_T = log_probabilities(model, batch, np.arange(8), END, 1.0)
        gradients.append(gradient(model, logprob_M_T, batch.responses.mask_N_T.clone()).cpu())
        drawn.append(batch.responses.ids_N_T.cpu())
        assert bool(lean_of(model).captured) == (device == CUDA)
    assert torch.equal(*drawn) and relative(*gradients[::-1]) < 1e-3
