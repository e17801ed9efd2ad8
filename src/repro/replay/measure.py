"""What an arm makes of a batch that is there: what it trains on, what that costs, what is left of the gradient.

Rollout i of N has the advantage A_i (the baseline's) and the cost c_i (prompt + response tokens). An arm draws it with
weights w and advantages A': its coefficient is a_i = Σ w A' over its draws. A filter that keeps K rollouts refills its
batch: it generates N/K times as many, up to `refill_rounds` times, and what it trains on grows alike.

Two measures rest on an assumption: the gradient of a rollout has the norm |A_i|, and, for the second, those of two
rollouts are orthogonal.

    tokens_to_error   (Σ p_i c_i)(Σ A_i²/p_i) / (Σ c_i · Σ A_i²): tokens for the same bound on the variance, relative to
                      uniform draws with replacement, of an arm that draws i with probability p_i; eq. 8 of Cost-Aware
                      Learning. NaN for arms that do not draw independently
    cosine            Σ a_i A_i / √(Σ a_i² · Σ A_i²), of the arm's gradient with that of the whole batch
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from repro.methods.choice import shares
from repro.methods.guard import name_of
from repro.methods.lengths import Lengths
from repro.methods.method import Method
from repro.methods.rollouts import Rollouts
from repro.methods.selection.importance import distribution
from repro.policy.flops import FlopCounter

# The signal that p is in proportion to, by the sampler's name.
SIGNALS: dict[str, Callable[[Rollouts], np.ndarray]] = {
    "cost_aware": lambda rollouts: np.abs(rollouts.advantages_N) / np.sqrt(rollouts.costs_N),
    "variance_optimal": lambda rollouts: np.abs(rollouts.advantages_N),
    "length_only": lambda rollouts: 1 / np.sqrt(rollouts.costs_N),
}


class Batch(NamedTuple):
    """The rollouts of one step, with the baseline's advantages. `progress`: share of the steps before it. FLOPs:
    `generation`, of generating them, and `training`, of training on every one once. `seconds`: of the requests that
    generated them, added up; NaN where the files have none."""

    step: int
    progress: float
    rollouts: Rollouts
    lengths: Lengths
    generation: float
    training: float
    seconds: float = np.nan


def whole(rollouts: Rollouts, flops: FlopCounter) -> tuple[float, float]:
    """(generation, training) of a batch. A prompt is read once a group; the last token of a response is sampled, and
    not read."""
    first_Q = np.unique(rollouts.group_N, return_index=True)[1]
    prompts = flops.forward(rollouts.prompt_tokens_N[first_Q])
    responses = flops.forward(rollouts.response_tokens_N - 1, rollouts.prompt_tokens_N)
    return prompts + responses, flops.forward_backward(rollouts.costs_N)


def measured(
    method: Method, batch: Batch, flops: FlopCounter, weight: float, refill_rounds: int, rng: np.random.Generator
) -> tuple[dict[str, float], Rollouts] | None:
    """The arm's measures on the batch, and what it trains on; None where nothing is left to. `weight`: what a FLOP of
    generation costs, in others.

    drawn, …, largest_weight      of `repro.methods.choice`, the first three times the refill
    trained_tokens, paper_tokens  tokens that have to be read, each rollout once, and those of every draw, as papers
                                  count: over the batch's
    refill                        rollouts generated for one of the batch
    seconds                       of the requests that generate the batch and its refill; NaN where the files have none
    flops, bill                   relative to training on every rollout once; the bill has generation at its weight
    signal                        refill · cosine² / bill: gradient for the money, relative to the same
    """
    n, costs_N, advantages_N = len(batch.rollouts), batch.rollouts.costs_N, batch.rollouts.advantages_N
    offered = _offered(method, batch, rng)
    chosen = offered and method.select(batch.step, offered, batch.progress, rng)
    if offered is None or chosen is None or not chosen.advantages_N.any():
        return None
    refill, row_M, choice = min(n / len(offered), refill_rounds), chosen.row_N, shares(chosen, n)
    read = np.unique(row_M[chosen.advantages_N != 0])
    coefficient_N = np.bincount(row_M, chosen.weights_N * chosen.advantages_N, minlength=n)
    generation, training = batch.generation, batch.training
    update = refill * flops.forward_backward(costs_N[read])
    paid = (weight * refill * generation + update) / (weight * generation + training)
    norms = np.linalg.norm(coefficient_N) * np.linalg.norm(advantages_N)
    cosine = float(coefficient_N @ advantages_N / norms) if norms else np.nan
    return {
        **choice,
        **{name: refill * choice[name] for name in ("drawn", "distinct", "effective")},
        "trained_tokens": refill * costs_N[read].sum() / costs_N.sum(),
        "paper_tokens": refill * costs_N[row_M].sum() / costs_N.sum(),
        "refill": refill,
        "seconds": refill * batch.seconds,
        "flops": (refill * generation + update) / (generation + training),
        "bill": paid,
        "tokens_to_error": _tokens_to_error(method, batch.rollouts, offered),
        "cosine": cosine,
        "signal": refill * cosine**2 / paid,
    }, chosen


def _offered(method: Method, batch: Batch, rng: np.random.Generator) -> Rollouts | None:
    """What the arm's samplers are given: of the groups that pass its filter, with its rewards and advantages."""
    step, rollouts = batch.step, batch.rollouts
    rewards_N, kept = method.rewards(step, rollouts.rewards_N, rng, batch.lengths), np.arange(len(rollouts))
    if method.filter is not None:
        _, index_N = np.unique(rollouts.group_N, return_inverse=True)
        kept = kept[method.kept_groups(step, rewards_N, rollouts.group_N)[index_N]]
    if not len(kept):
        return None
    taken, rewards_K = rollouts.take(kept), rewards_N[kept]
    advantages_K = method.advantages(step, rewards_K, taken.group_N, batch.lengths.take(kept))
    return replace(taken, rewards_N=rewards_K, advantages_N=advantages_K)


def _tokens_to_error(method: Method, everything: Rollouts, rollouts: Rollouts) -> float:
    square_N, p_N = rollouts.advantages_N**2, np.full(len(rollouts), 1 / len(rollouts))
    if method.samplers:
        name, given = name_of(method.samplers[0]), getattr(method.samplers[0], "keywords", {})
        if len(method.samplers) > 1 or name not in SIGNALS or given.get("resampling") == "systematic":
            return np.nan
        p_N = distribution(SIGNALS[name](rollouts), given.get("beta", 0.0))
    drawn = p_N > 0
    tokens = (p_N @ rollouts.costs_N) * (square_N[drawn] / p_N[drawn]).sum()
    return float(tokens / (everything.costs_N.sum() * square_N.sum()))
