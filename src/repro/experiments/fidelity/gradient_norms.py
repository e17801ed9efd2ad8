"""Exact gradient norms of single rollouts, at little more than the cost of one training pass over the batch.

At the policy that sampled it every PPO ratio is 1, so under GRPO, GSPO and CISPO alike the loss of rollout i has the
gradient −A_i/d_i · Σ_t ∇log π(y_t), with d_i = T_i for the sequence mean and d_i the same for all where tokens are
summed. Its norm is |A_i|/d_i times that of the score Σ_t ∇log π(y_t), which is what is computed here. (A KL term would
add to the gradient; `engine.kl` is 0.)

Rollouts of a batch do not interact, so one backward pass gives the gradient at the output of every module for all of
them. A module's inputs and output gradients then give its parameters' gradients rollout by rollout: Σ_t δ_t ⊗ a_t for a
linear layer (Goodfellow, 2015, arXiv:1510.01799), by torch.func, vmapped over rollouts, for any other.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch.func import functional_call, vjp, vmap

from repro.engine.log_probabilities import Batch, response_log_probabilities, slices_of_like_length


@dataclass
class ScoreNorms:
    """Of N rollouts, as float64.

    score_N         ‖Σ_t ∇log π(y_t)‖ over all parameters
    output_layer_N  the part of it from the output layer, ‖Σ_t e_t ⊗ h_t‖/temperature, h_t the layer's input
    error_sum_N     ‖Σ_t e_t‖, e_t = onehot(y_t) − π_t: the norm for a bias added to the tempered logits
    error_square_N  Σ_t ‖e_t‖²
    """

    score_N: np.ndarray
    output_layer_N: np.ndarray
    error_sum_N: np.ndarray
    error_square_N: np.ndarray


def score_norms(
    model: Any, batch: Batch, rows: np.ndarray, *, pad: int, temperature: float, slice_tokens: int = 1024
) -> ScoreNorms:
    """The norms of the rollouts `rows` of `batch`, in that order. Padding does not contribute.

    `slice_tokens` bounds the memory: a slice holds one copy of a layer's weights for each of its rollouts.
    """
    costs_N = batch.costs_N.cpu().numpy()[rows]
    norms = np.zeros((len(fields(ScoreNorms)), len(rows)))
    for part in slices_of_like_length(costs_N, slice_tokens):
        norms[:, part] = _slice_norms(model, batch, rows[part], pad, temperature)
    return ScoreNorms(*norms)


def _slice_norms(model: Any, batch: Batch, rows: np.ndarray, pad: int, temperature: float) -> np.ndarray:
    with torch.enable_grad(), _recorded(model) as calls:
        logprob_M_T, log_p_M_T_V = response_log_probabilities(model, batch, rows, pad, temperature)
        rows_M = torch.as_tensor(rows, device=logprob_M_T.device)
        mask_M_T = batch.responses.mask_N_T[rows_M, : logprob_M_T.shape[1]]
        gradients = torch.autograd.grad((logprob_M_T * mask_M_T).sum(), [call.output for call in calls])
    with torch.no_grad():
        # A tied weight gets gradients from two modules, so norms are taken after these are summed.
        of_parameter: dict[torch.nn.Parameter, torch.Tensor] = {}
        for call, gradient in zip(calls, gradients, strict=True):
            for parameter, part in parameter_gradients(call, gradient).items():
                if call.module is model.get_output_embeddings() and parameter is call.module.weight:
                    output_layer_M = part.flatten(1).norm(dim=1)
                of_parameter[parameter] = of_parameter[parameter] + part if parameter in of_parameter else part
        score_M = sum(whole.flatten(1).square().sum(1) for whole in of_parameter.values()).sqrt()
        tokens_M_T = batch.responses.ids_N_T[rows_M, : logprob_M_T.shape[1]]
        error_M_T_V = errors(log_p_M_T_V, tokens_M_T, mask_M_T)
        columns = score_M, output_layer_M, error_M_T_V.sum(1).norm(dim=1), error_M_T_V.square().sum((1, 2))
        return np.stack([column.double().cpu().numpy() for column in columns])


def errors(log_p_M_T_V: torch.Tensor, tokens_M_T: torch.Tensor, mask_M_T: torch.Tensor) -> torch.Tensor:
    """error_M_T_V: e_t = onehot(y_t) − π_t on the mask, 0 off it: the gradient of log π(y_t) at the tempered logits."""
    error_M_T_V = -log_p_M_T_V.exp()
    error_M_T_V.scatter_add_(2, tokens_M_T[:, :, None], torch.ones_like(error_M_T_V[:, :, :1]))
    return error_M_T_V * mask_M_T[:, :, None]


@dataclass
class Call:
    """One call of a module that owns parameters: its input (M, L, …) and its output."""

    module: torch.nn.Module
    inputs: torch.Tensor
    output: torch.Tensor


def parameter_gradients(call: Call, gradient: torch.Tensor) -> dict[torch.nn.Parameter, torch.Tensor]:
    """{parameter: its gradient for each rollout (M, *shape)}, given the gradient at the module's output."""
    module, inputs = call.module, call.inputs
    if type(module) is torch.nn.Linear:
        linear = {module.weight: torch.bmm(gradient.transpose(1, 2), inputs)}
        return linear if module.bias is None else linear | {module.bias: gradient.sum(1)}
    parameters = {name: parameter.detach() for name, parameter in module.named_parameters(recurse=False)}

    def one_rollout(inputs_L: torch.Tensor, gradient_L: torch.Tensor) -> dict[str, torch.Tensor]:
        _, pull = vjp(lambda values: functional_call(module, values, (inputs_L,)), parameters)
        return pull(gradient_L)[0]

    return {getattr(module, name): value for name, value in vmap(one_rollout)(inputs, gradient).items()}


@contextmanager
def _recorded(model: Any) -> Iterator[list[Call]]:
    """The calls of all modules that own parameters, recorded as they happen."""
    calls: list[Call] = []

    def record(module: torch.nn.Module, inputs: tuple, output: torch.Tensor) -> None:
        if len(inputs) != 1 or not isinstance(output, torch.Tensor):
            raise TypeError(f"gradient norms: a {type(module).__name__} with parameters is not tensor to tensor")
        calls.append(Call(module, inputs[0].detach(), output))

    owners = [module for module in model.modules() if next(module.parameters(recurse=False), None) is not None]
    handles = [module.register_forward_hook(record) for module in owners]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
