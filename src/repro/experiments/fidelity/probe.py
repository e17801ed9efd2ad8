"""One checkpoint: fresh groups from its policy, their gradient norms, and how well each proxy approximates them.

`probe` is a pure function of its argument, so a pool of processes can run it on many checkpoints.
"""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from repro.engine.generate import generate
from repro.engine.log_probabilities import Batch
from repro.engine.sample import decode, score
from repro.engine.snapshots import Checkpoint, load_checkpoint
from repro.engine.workers import map_in_workers
from repro.experiments.fidelity.gradient_norms import score_norms
from repro.experiments.fidelity.proxies import PROXIES, UNIFORM, Known
from repro.methods.advantages.group_normalised import group_normalised
from repro.settings import Settings
from repro.tasks.queries import Query, make_pools
from repro.theory.proxy import excess, product, sampling

# Relative to the largest norm of the batch: a smaller gradient is float32 rounding and counts as zero. A proxy computed
# from float32 probabilities rounds to 0 there as well, which would make the χ² infinite.
NO_GRADIENT = 1e-6
MEASURES = ("pearson", "pearson_signal", "chi2", "product")
SHOWN = 100  # about this many rollouts of a checkpoint are kept for the scatter plots, evenly spread


def probe(checkpoint: Checkpoint) -> dict[str, pd.DataFrame]:
    """{summary, token_sum, sample} of one checkpoint.

    summary: one row per proxy and one for uniform sampling, against the norms under the sequence mean. Columns arm,
    seed, step, proxy, pearson (with the norm, over the batch), pearson_signal (over rollouts with A ≠ 0), chi2 (Theorem
    4.2), product (J(p̂)/J(p*), computed by itself; 1 + chi2 by the theorem), signal (share of rollouts with A ≠ 0).
    token_sum: the same against the norms where tokens are summed (token-mean and constant-length: one divisor for all).
    sample: some rollouts with A ≠ 0: arm, seed, step, response_tokens, norm (sequence mean), a column per proxy.
    With one seed, all checkpoints get the same queries. If no rollout has an advantage, measures are NaN and the sample
    is empty.
    """
    settings = checkpoint.settings
    model, tokenizer = load_checkpoint(checkpoint)
    batch, advantages_N = sample_batch(model, tokenizer, settings, checkpoint.seed, checkpoint.step)
    at = {"arm": checkpoint.arm, "seed": checkpoint.seed, "step": checkpoint.step}
    signal_N = advantages_N != 0
    known, score_N = measure(model, tokenizer, batch, advantages_N, settings.engine.temperature)
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


def probe_all(checkpoints: list[Checkpoint], workers: int) -> dict[str, pd.DataFrame]:
    """The tables of `probe` for all checkpoints, in their order, from `workers` processes of one thread each."""
    parts = map_in_workers(probe, checkpoints, workers)
    return {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}


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
        rows.append({"proxy": name, **correlations, **_cost(norms_N, costs_N, p_N)})
    nothing = {"pearson": float("nan"), "pearson_signal": float("nan")}
    uniform_N = np.full(len(norms_N), 1 / len(norms_N))
    return [*rows, {"proxy": UNIFORM, **nothing, **_cost(norms_N, costs_N, uniform_N)}]


def pearson(x_N: np.ndarray, y_N: np.ndarray) -> float:
    """Pearson's correlation; NaN where one of the two does not vary."""
    if len(x_N) < 2 or np.ptp(x_N) == 0 or np.ptp(y_N) == 0:
        return float("nan")
    return float(np.corrcoef(x_N, y_N)[0, 1])


def sample_batch(model: Any, tokenizer: Any, settings: Settings, seed: int, step: int) -> tuple[Batch, np.ndarray]:
    """(batch, advantages_N) of `fidelity.queries` training queries drawn by `seed` alone, in groups."""
    engine, size = settings.engine, settings.fidelity.group_size
    pool = make_pools(settings.task, pretraining=False).train
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


def measure(
    model: Any, tokenizer: Any, batch: Batch, advantages_N: np.ndarray, temperature: float
) -> tuple[Known, np.ndarray]:
    """(inputs of the proxies, for the sequence mean; score_N = ‖Σ_t ∇log π(y_t)‖). Rollouts without an advantage have
    no gradient: their score, and what is computed with it, are left at 0."""
    rows, n, responses = np.flatnonzero(advantages_N), len(advantages_N), batch.responses
    measured = score_norms(model, batch, rows, pad=tokenizer.pad_token_id, temperature=temperature)
    norms_N = {part.name: np.zeros(n) for part in fields(measured)}
    for name, values_N in norms_N.items():
        values_N[rows] = getattr(measured, name)
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


def _cost(norms_N: np.ndarray, costs_N: np.ndarray, p_N: np.ndarray) -> dict[str, float]:
    return {"chi2": excess(norms_N, costs_N, p_N), "product": product(norms_N, costs_N, p_N)}
