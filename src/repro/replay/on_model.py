"""Some rollouts of one step on the model that wrote them: entropies, log-probabilities, gradients.

The gradient of a rollout is exact and over all parameters, one forward and backward pass each: the norm of A/d times
that of the score Σ_t ∇log π(y_t), d = T or 1 (repro.experiments.fidelity.gradient_norms). Weights are float32, on the
first GPU, or the CPU. Arms that read entropies are replayed on these rollouts too, and each arm's gradient of what it
trains on is compared with that of all of them, token losses summed: no norm and no angle is assumed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers.utils import logging

from repro.engine.generate import Responses
from repro.engine.log_probabilities import Batch as Tokens
from repro.engine.log_probabilities import response_log_probabilities
from repro.errors import Refused
from repro.evaluation.model import model_folder, stops_of
from repro.experiments.fidelity.probe import NO_GRADIENT, judge, measure
from repro.experiments.fidelity.proxies import PROXIES, Known
from repro.methods.method import Method
from repro.methods.rollouts import Rollouts
from repro.policy.flops import FlopCounter
from repro.policy.model import load_policy
from repro.replay.formats import Rollout
from repro.replay.measure import Batch, measured, whole
from repro.replay.over_steps import Replay, batches_of
from repro.replay.reading import read
from repro.replay.words import say


@dataclass(frozen=True)
class OnModel:
    """`rollouts`: a row for each of the sample, with its mean `surprise` −log π(y) and `entropy`, nats a token, and the
    gradient's `norm`, of its summed token losses. `proxies`: how well each proxy predicts the norm (repro.experiments.
    fidelity.probe), by `divisor`, T or 1. `arms`: measures of repro.replay.measure on the sample as one batch, `cosine`
    and `signal` of the measured gradients, and `tokens`, the share of response tokens in the loss. `notes`: what the
    model says of the files."""

    rollouts: pd.DataFrame
    proxies: pd.DataFrame
    arms: pd.DataFrame
    notes: list[str]


class Scored:
    """The rollouts of `given` on the model in `source`; `temperature`: the one that they were sampled at."""

    def __init__(self, source: str | Path, given: Sequence[Rollout], temperature: float):
        folder = model_folder(str(source), "float32")
        logging.disable_progress_bar()  # of its loading, which a page would show
        self.model, self.tokenizer = load_policy(folder, "cuda" if torch.cuda.is_available() else "cpu")
        end, self.temperature = stops_of(folder, self.tokenizer)[0], temperature
        self.tokens_N = [self._tokens(*_ids(rollout, self.tokenizer, end)) for rollout in given]

    @torch.no_grad()
    def _tokens(self, prompt: Sequence[int], response: Sequence[int]) -> Tokens:
        """With log-probabilities and entropies."""
        ids = torch.tensor([list(map(int, response))], device=self.model.device)
        zeros, mask = torch.zeros(ids.shape, device=ids.device), torch.ones_like(ids, dtype=torch.bool)
        count = torch.tensor([len(prompt)], device=ids.device)
        tokens = Tokens([list(map(int, prompt))], Responses(ids, zeros, zeros, mask, mask[:, 0], count))
        logprob_1_T, log_p_1_T_V = self._pass(tokens)
        entropy_1_T = torch.special.entr(log_p_1_T_V.exp()).sum(-1)
        tokens.responses = replace(tokens.responses, logprob_N_T=logprob_1_T, entropy_N_T=entropy_1_T)
        return tokens

    def _pass(self, tokens: Tokens) -> tuple[torch.Tensor, torch.Tensor]:
        return response_log_probabilities(self.model, tokens, [0], self.tokenizer.pad_token_id, self.temperature)

    def arrays(self) -> dict[str, np.ndarray]:
        """Lengths, mask, entropies and log-probabilities, as `Rollouts.from_batch` takes them."""
        responses = [tokens.responses for tokens in self.tokens_N]
        padded = {
            f"{ours}_N_T": pad_sequence([getattr(one, f"{theirs}_N_T")[0].cpu() for one in responses], True).numpy()
            for ours, theirs in (("response_mask", "mask"), ("entropy", "entropy"), ("logprob", "logprob"))
        }
        lengths = {"response_tokens_N": padded["response_mask_N_T"].sum(1)}
        return {"prompt_tokens_N": np.array([len(one.prompts_N[0]) for one in self.tokens_N]), **lengths, **padded}

    def norms(self, advantages_N: np.ndarray) -> tuple[Known, np.ndarray]:
        """(inputs of the proxies, ‖Σ_t ∇log π(y_t)‖) of each rollout; 0 of those without an advantage."""
        parts = [
            measure(self.model, self.tokenizer, tokens, advantages_N[row : row + 1], self.temperature)
            for row, tokens in enumerate(self.tokens_N)
        ]
        known = {part.name: np.concatenate([getattr(one, part.name) for one, _ in parts]) for part in fields(Known)}
        return Known(**known), np.concatenate([score for _, score in parts])

    def gradient(self, coefficient_N_T: np.ndarray) -> list[torch.Tensor]:
        """Σ c_it ∇log π(y_it) over rollouts and tokens, by parameter."""
        self.model.zero_grad(set_to_none=True)
        for tokens, coefficient_T in zip(self.tokens_N, coefficient_N_T, strict=True):
            if coefficient_T.any():
                logprob_1_T, _ = self._pass(tokens)
                weights_T = torch.as_tensor(coefficient_T[: logprob_1_T.shape[1]]).to(logprob_1_T)
                (logprob_1_T[0] @ weights_T).backward()
        return [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]


def on_model(
    found: Replay,
    source: str | Path | pd.DataFrame,
    model: str | Path,
    *,
    sample: int = 64,
    at: int | None = None,
    arms: Sequence[str] | None = None,
    temperature: float = 1.0,
    seed: int = 0,
    **reading: Any,
) -> OnModel:
    """About `sample` rollouts of the step `at` (None: the first), whole groups evenly spread, on the model.

    found, source, reading: what `replay` gave, what it was given, and its tokenizer, rewards and columns
    model: a folder of save_pretrained, or a hub id; it should be the one that wrote these rollouts
    arms: of those that `replay` could take, or that read entropies; None: baseline, primaries and the latter
    temperature: they were sampled at

    Refused where the files have neither texts nor tokens, the sample has nothing to learn from, or the model's layers
    cannot be taken apart.
    """
    rows, settings = found.rollouts, found.settings
    own = _sample(rows[rows["step"] == (rows["step"].iloc[0] if at is None else at)], sample)
    if not own["advantage"].any():
        raise Refused("no group of the sample has different rewards: take more rollouts, or those of another step")
    whole_of = read(source, **reading, whole=set(own.index)).whole
    scored = Scored(model, [whole_of[row] for row in own.index], temperature)
    batch = _batch(scored, own, found)
    rollouts, advantages_N = batch.rollouts, batch.rollouts.advantages_N
    try:
        known, score_N = scored.norms(advantages_N)
    except TypeError as error:
        raise Refused(f"{model}: {error}, so this model's gradients cannot be taken apart") from None
    lengths = {name: getattr(rollouts, f"{name}_N") for name in ("prompt_tokens", "response_tokens")}
    tokens_N, signal_N = rollouts.response_tokens_N, np.abs(advantages_N)
    table = own[["group", "reward", "advantage"]].assign(
        **lengths,
        surprise=-rollouts.logprob_N_T.sum(1) / tokens_N,
        entropy=rollouts.entropy_N,
        norm=signal_N * score_N,
    )
    known_arms = found.which.methods | found.which.scored
    arms = arms or [settings.baseline, *settings.primaries, *found.which.scored]
    methods = {name: known_arms[name] for name in arms if name in known_arms}
    how = FlopCounter.of(scored.model), found.facts["weight"], settings.engine.refill_rounds
    measures = _arms(scored, batch, methods, how, seed)
    return OnModel(table, _proxies(known, score_N, rollouts.costs_N), measures, _said(model, rollouts))


def _sample(own: pd.DataFrame, count: int) -> pd.DataFrame:
    if own.empty:
        raise Refused("there is no rollout of this step: give one that the files have")
    groups = own["group"].unique()
    groups = groups[np.linspace(0, len(groups) - 1, max(1, count * len(groups) // len(own))).round().astype(int)]
    return own[own["group"].isin(groups)]


def _batch(scored: Scored, own: pd.DataFrame, found: Replay) -> Batch:
    """The sample with the model's lengths in tokens, entropies and log-probabilities."""
    flops = FlopCounter.of(scored.model)
    [batch] = batches_of(own, found.which, found.settings.baseline, flops)
    arrays, steps = scored.arrays(), found.rollouts["step"].unique()
    given = {name: getattr(batch.rollouts, name) for name in ("group_N", "rewards_N", "advantages_N")}
    rollouts = Rollouts.from_batch(**given, **arrays)
    lengths = replace(batch.lengths, tokens_N=rollouts.response_tokens_N)
    progress = float(np.flatnonzero(steps == batch.step)[0] / len(steps))
    return Batch(batch.step, progress, rollouts, lengths, *whole(rollouts, flops))


def _said(model: str | Path, rollouts: Rollouts) -> list[str]:
    """Whether the model wrote them: then −log π has the mean of the entropy."""
    logprob_K, entropy_K = (
        values[rollouts.response_mask_N_T] for values in (rollouts.logprob_N_T, rollouts.entropy_N_T)
    )
    error, means = (logprob_K + entropy_K).std() / np.sqrt(len(entropy_K)), (-logprob_K.mean(), entropy_K.mean())
    strange = abs(means[0] - means[1]) > max(3 * error, 0.1 * means[1])
    return [say("strange" if strange else "own", surprise=means[0], entropy=means[1], model=Path(model).name)]


def _ids(rollout: Rollout, tokenizer: Any, end: int) -> tuple[Sequence[int], Sequence[int]]:
    """Of prompt and response: the files' own, or those of the texts and, unless it was cut off, an end."""
    if rollout.ids:
        return rollout.ids
    if not (rollout.prompt and rollout.response):
        raise Refused("the model needs rollouts with their texts or tokens, and these files have lengths alone")
    prompt, response = tokenizer(rollout.prompt), tokenizer(rollout.response, add_special_tokens=False)
    return prompt["input_ids"], response["input_ids"] + [end] * (not rollout.truncated)


def _proxies(known: Known, score_N: np.ndarray, costs_N: np.ndarray) -> pd.DataFrame:
    rows, signal_N = [], known.advantages_N != 0
    for divisor, divisor_N in (("T", known.tokens_N), ("1", np.ones(len(score_N)))):
        of_divisor, norms_N = replace(known, divisor_N=divisor_N), np.abs(known.advantages_N) * score_N / divisor_N
        norms_N[norms_N < NO_GRADIENT * norms_N.max()] = 0.0
        found = judge(norms_N, costs_N.astype(float), signal_N, {name: of(of_divisor) for name, of in PROXIES.items()})
        rows += [{"divisor": divisor, **row} for row in found]
    return pd.DataFrame(rows)


def _arms(
    scored: Scored, batch: Batch, methods: Mapping[str, Method], how: tuple[FlopCounter, float, int], seed: int
) -> pd.DataFrame:
    rollouts, rows = batch.rollouts, {}
    mask_N_T = rollouts.response_mask_N_T
    everything = [part.clone() for part in scored.gradient(rollouts.advantages_N[:, None] * mask_N_T)]
    for name, method in methods.items():
        found = measured(method, batch, *how, np.random.default_rng(seed))
        if found is None:
            continue
        row, chosen = found
        coefficient_N_T = np.zeros(mask_N_T.shape)
        weighted_M = chosen.weights_N * chosen.advantages_N
        np.add.at(coefficient_N_T, chosen.row_N, weighted_M[:, None] * chosen.response_mask_N_T)
        cosine = _cosine(everything, scored.gradient(coefficient_N_T))
        row |= {"cosine": cosine, "signal": row["refill"] * cosine**2 / row["bill"]}
        rows[name] = {**row, "tokens": (coefficient_N_T != 0).sum() / mask_N_T.sum()}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("arm")


def _cosine(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> float:
    product, *squares = (
        sum(float((a.double() * b.double()).sum()) for a, b in zip(*pair, strict=True))
        for pair in ((one, other), (one, one), (other, other))
    )
    return product / np.sqrt(squares[0] * squares[1])
