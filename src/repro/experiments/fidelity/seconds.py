"""What a proxy costs: seconds for its inputs, relative to a training pass over the same rollouts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import torch

from repro.engine.log_probabilities import Batch, response_log_probabilities, slices_of_like_length
from repro.engine.snapshots import Checkpoint, load_checkpoint
from repro.experiments.fidelity.gradient_norms import errors, score_norms
from repro.experiments.fidelity.probe import sample_batch

REPEATS = 5  # the fastest counts: other processes can only slow it down
ROLLOUTS = 256  # timed
TRAINING = "a training pass"


@dataclass
class Pass:
    """What a forward pass over M rollouts leaves in memory: the inputs of a proxy's own computation."""

    logprob_M_T: torch.Tensor
    log_p_M_T_V: torch.Tensor
    hidden_M_T_D: torch.Tensor
    tokens_M_T: torch.Tensor
    mask_M_T: torch.Tensor

    @property
    def errors_M_T_V(self) -> torch.Tensor:
        return errors(self.log_p_M_T_V, self.tokens_M_T, self.mask_M_T)


WORK: dict[str, Callable[[Pass], torch.Tensor]] = {
    "log-probabilities": lambda at: (at.logprob_M_T.expm1() * at.mask_M_T).square().sum(1),
    "entropies": lambda at: ((at.log_p_M_T_V.exp() * at.log_p_M_T_V).sum(2) * at.mask_M_T).sum(1),
    "errors": lambda at: at.errors_M_T_V.square().sum((1, 2)),
    "error vectors": lambda at: at.errors_M_T_V.sum(1).norm(dim=1),
    "hidden states": lambda at: torch.bmm(at.errors_M_T_V.transpose(1, 2), at.hidden_M_T_D).flatten(1).norm(dim=1),
}


def prices(checkpoint: Checkpoint) -> pd.DataFrame:
    """`seconds` of the first `ROLLOUTS` rollouts that `checkpoint` was probed with."""
    model, tokenizer = load_checkpoint(checkpoint)
    settings = checkpoint.settings
    batch, _ = sample_batch(model, tokenizer, settings, checkpoint.seed, checkpoint.step)
    rows, engine = np.arange(min(ROLLOUTS, len(batch.prompts_N))), settings.engine
    options = {"temperature": engine.temperature, "slice_tokens": engine.slice_tokens}
    return seconds(model, batch, rows, pad=tokenizer.pad_token_id, **options)


def seconds(
    model: Any, batch: Batch, rows: np.ndarray, *, pad: int, temperature: float, slice_tokens: int
) -> pd.DataFrame:
    """Of the rollouts `rows`: columns needs, milliseconds (per rollout), share (of a training pass).

    One row for each of `WORK`, on top of a pass that already has the distribution and the hidden states: sampling,
    where the engine exposes them. Then "a scoring pass", which comes on top where it does not, "the gradient" (the
    exact norms) and "a training pass". Measured on one thread; different at every run.
    """
    threads, options = torch.get_num_threads(), (pad, temperature)
    torch.set_num_threads(1)
    spent = dict.fromkeys((*WORK, "a scoring pass", "the gradient", TRAINING), 0.0)
    for part in slices_of_like_length(batch.costs_N.cpu().numpy()[rows], slice_tokens):
        some = partial(response_log_probabilities, model, batch, rows[part], *options)
        with torch.no_grad():
            at = _pass(model, batch, rows[part], *options)
            for needs, work in WORK.items():
                spent[needs] += _fastest(partial(work, at))
            spent["a scoring pass"] += _fastest(some)
        spent[TRAINING] += _fastest(lambda some=some: some()[0].sum().backward())
    model.zero_grad(set_to_none=True)
    spent["the gradient"] = _fastest(partial(score_norms, model, batch, rows, pad=pad, temperature=temperature))
    torch.set_num_threads(threads)
    return pd.DataFrame(
        {"needs": needs, "milliseconds": 1000 * duration / len(rows), "share": duration / spent[TRAINING]}
        for needs, duration in spent.items()
    )


def _pass(model: Any, batch: Batch, rows: np.ndarray, pad: int, temperature: float) -> Pass:
    inputs: list[torch.Tensor] = []
    handle = model.get_output_embeddings().register_forward_pre_hook(lambda module, given: inputs.append(given[0]))
    try:
        logprob_M_T, log_p_M_T_V = response_log_probabilities(model, batch, rows, pad, temperature)
    finally:
        handle.remove()
    rows_M, width = torch.as_tensor(rows, device=logprob_M_T.device), logprob_M_T.shape[1]
    tokens_M_T, mask_M_T = batch.responses.ids_N_T[rows_M, :width], batch.responses.mask_N_T[rows_M, :width]
    # These columns begin within the prompts; for the timing only their number matters.
    return Pass(logprob_M_T, log_p_M_T_V, inputs[0][:, :width], tokens_M_T, mask_M_T)


def _fastest(work: Callable[[], Any]) -> float:
    def once() -> float:
        started = perf_counter()
        work()
        return perf_counter() - started

    return min(once() for _ in range(REPEATS))
