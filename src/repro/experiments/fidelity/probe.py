"""One checkpoint probed: fresh groups from its policy, their gradient norms, and how well each proxy stands in.

`probe` is a pure function of its argument, so that a pool of processes can work through many.
"""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from repro.engine.evaluate import decode, score
from repro.engine.generate import generate
from repro.engine.update import Batch
from repro.experiments.fidelity.gradient_norms import score_norms
from repro.experiments.fidelity.proxies import PROXIES, Known
from repro.methods.advantages.group_normalised import group_normalised
from repro.policy.model import load_policy
from repro.settings import Settings
from repro.tasks.queries import Query, make_pools
from repro.theory.proxy import excess, product, sampling

BASE = "base"  # the arm's name for the policy before any training
UNIFORM = "uniform"  # the row for p = 1/N, no proxy but what proxies are held against
# Relative to the largest norm of the batch: below this a gradient in float32 is rounding, and counts as none. A proxy
# of float32 probabilities rounds to 0 there as well, which would make the χ² infinite for nothing.
NO_GRADIENT = 1e-6
MEASURES = ("pearson", "pearson_signal", "chi2", "product")
SHOWN = 100  # about as many rollouts of a checkpoint are kept for the scatter plots, evenly spread


@dataclass(frozen=True)
class Checkpoint:
    """A policy to probe: `weights` laid over the base policy in the folder `policy`, or None for the base itself."""

    arm: str
    seed: int
    step: int
    policy: Path
    weights: Path | None
    settings: Settings


def probe(checkpoint: Checkpoint) -> dict[str, pd.DataFrame]:
    """{summary, token_sum, sample} of one checkpoint.

    summary: one row per proxy and one for uniform sampling, against the norms under the sequence mean. Columns arm,
    seed, step, proxy, pearson (with the norm, over the batch), pearson_signal (over rollouts with A ≠ 0), chi2 (Theorem
    4.2), product (J(p̂)/J(p*), computed by itself; 1 + chi2 by the theorem), signal (share of rollouts with A ≠ 0).
    token_sum: the same against the norms where tokens are summed (token-mean and constant-length: one divisor for all).
    sample: some rollouts with A ≠ 0: arm, seed, step, response_tokens, norm (sequence mean), a column per proxy.
    At one seed, all checkpoints are probed with the same queries. If no rollout has an advantage, nothing is measured:
    NaN, and no sample.
    """
    settings = checkpoint.settings
    model, tokenizer = load_checkpoint(checkpoint)
    batch, advantages_N = sample_batch(model, tokenizer, settings, checkpoint.seed, checkpoint.step)
    at = {"arm": checkpoint.arm, "seed": checkpoint.seed, "step": checkpoint.step}
    signal_N = advantages_N != 0
    known, score_N = know(model, tokenizer, batch, advantages_N, settings.engine.temperature)
    costs_N, ends, tables = batch.costs_N.cpu().numpy().astype(float), {"signal": float(signal_N.mean())}, {}
    for table, divisor_N in (("summary", known.tokens_N), ("token_sum", np.ones(len(score_N)))):
        norms_N = np.abs(advantages_N) * score_N / divisor_N
        norms_N[norms_N < NO_GRADIENT * norms_N.max()] = 0.0
        known = replace(known, divisor_N=divisor_N)
        proxies = {name: proxy(known) for name, proxy in PROXIES.items()}
        tables[table] = pd.DataFrame([{**at, **row, **ends} for row in judge(norms_N, costs_N, signal_N, proxies)])
        if table == "summary":
            columns = {"response_tokens": known.tokens_N.astype(int), "norm": norms_N, **proxies}
            shown = np.flatnonzero(signal_N)[:: max(1, signal_N.sum() // SHOWN)]
            tables["sample"] = pd.DataFrame({**at, **columns}).iloc[shown]
    return tables


def judge(
    norms_N: np.ndarray, costs_N: np.ndarray, signal_N: np.ndarray, proxies: dict[str, np.ndarray]
) -> list[dict[str, Any]]:
    """One row per proxy (proxy and `MEASURES`) and one for uniform sampling."""
    if not signal_N.any():
        return [{"proxy": name, **dict.fromkeys(MEASURES, float("nan"))} for name in (*proxies, UNIFORM)]
    rows = []
    for name, proxy_N in proxies.items():
        p_N = sampling(proxy_N, costs_N)
        correlations = {
            "pearson": pearson(proxy_N, norms_N),
            "pearson_signal": pearson(proxy_N[signal_N], norms_N[signal_N]),
        }
        rows.append({"proxy": name, **correlations, **_paid(norms_N, costs_N, p_N)})
    nothing = {"pearson": float("nan"), "pearson_signal": float("nan")}
    uniform_N = np.full(len(norms_N), 1 / len(norms_N))
    return [*rows, {"proxy": UNIFORM, **nothing, **_paid(norms_N, costs_N, uniform_N)}]


def pearson(x_N: np.ndarray, y_N: np.ndarray) -> float:
    """Pearson's correlation; NaN where one of the two does not vary."""
    if len(x_N) < 2 or np.ptp(x_N) == 0 or np.ptp(y_N) == 0:
        return float("nan")
    return float(np.corrcoef(x_N, y_N)[0, 1])


def load_checkpoint(checkpoint: Checkpoint) -> tuple[Any, Any]:
    """(model, tokenizer). FileNotFoundError or ValueError in one sentence when the weights are missing or odd."""
    from safetensors.torch import load_file

    model, tokenizer = load_policy(checkpoint.policy, checkpoint.settings.engine.device)
    if checkpoint.weights is None:
        return model, tokenizer
    if not checkpoint.weights.exists():
        raise FileNotFoundError(f"{checkpoint.weights} is not there yet: run `dvc repro train@{checkpoint.arm}` first")
    given, state = load_file(checkpoint.weights), model.state_dict()
    places = {state[name].data_ptr() for name in given if name in state}  # a tied weight is stored once
    missing = [name for name, value in state.items() if value.data_ptr() not in places]
    if missing or set(given) - set(state):
        odd = (missing or sorted(set(given) - set(state)))[0]
        raise ValueError(f"{checkpoint.weights} does not fit the base policy at {odd}: train the arm again")
    model.load_state_dict(given, strict=False)
    return model, tokenizer


def sample_batch(model: Any, tokenizer: Any, settings: Settings, seed: int, step: int) -> tuple[Batch, np.ndarray]:
    """(batch, advantages_N) of `fidelity.queries` training queries drawn by `seed` alone, in groups."""
    engine, size = settings.engine, settings.fidelity.group_size
    pool = make_pools(settings.task.model_copy(update={"pretraining_queries": 1})).train
    count = min(settings.fidelity.queries, len(pool))
    queries: list[Query] = [pool[i] for i in np.random.default_rng([seed, 0]).choice(len(pool), count, replace=False)]
    prompts = tokenizer([query.prompt for query in queries])["input_ids"]
    words = np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)
    responses = generate(
        model,
        prompts,
        [size] * count,
        max_new_tokens=engine.max_new_tokens,
        eos=tokenizer.eos_token_id,
        pad=tokenizer.pad_token_id,
        temperature=engine.temperature,
        generator=torch.Generator(device=model.device).manual_seed(int(words[0] >> np.uint64(1))),
    )
    texts, valid_N = decode(tokenizer, responses)
    rewards_N = score(texts, valid_N, [query for query in queries for _ in range(size)])
    batch = Batch([prompt for prompt in prompts for _ in range(size)], responses)
    return batch, group_normalised(rewards_N, np.repeat(np.arange(count), size))


def know(
    model: Any, tokenizer: Any, batch: Batch, advantages_N: np.ndarray, temperature: float
) -> tuple[Known, np.ndarray]:
    """(what proxies may know, for the sequence mean; score_N = ‖Σ_t ∇log π(y_t)‖). Rollouts without an advantage have
    no gradient: their score and what comes with it are left at 0."""
    rows, n, responses = np.flatnonzero(advantages_N), len(advantages_N), batch.responses
    found = score_norms(model, batch, rows, pad=tokenizer.pad_token_id, temperature=temperature)
    norms_N = {part.name: np.zeros(n) for part in fields(found)}
    for name, values_N in norms_N.items():
        values_N[rows] = getattr(found, name)
    score_N = norms_N.pop("score_N")
    tensors = (responses.mask_N_T, responses.entropy_N_T, responses.logprob_N_T)
    mask_N_T, entropy_N_T, logprob_N_T = (tensor.cpu().numpy().astype(float) for tensor in tensors)
    known = Known(
        advantages_N=advantages_N,
        tokens_N=mask_N_T.sum(1),
        divisor_N=mask_N_T.sum(1),
        entropy_N=entropy_N_T.sum(1).clip(0),  # rounding may leave a trace below 0
        surprise_square_N=(np.expm1(logprob_N_T) ** 2).sum(1),  # logprob is 0 off the mask, and so is this
        **norms_N,
    )
    return known, score_N


def _paid(norms_N: np.ndarray, costs_N: np.ndarray, p_N: np.ndarray) -> dict[str, float]:
    return {"chi2": excess(norms_N, costs_N, p_N), "product": product(norms_N, costs_N, p_N)}
