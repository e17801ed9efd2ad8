"""Filters and samplers inside other trainers, through the hooks that these offer: a module for each (docs/plugins.md).

A host takes a yes or no for each group, and one number for each rollout, its advantage. `kept` and `credits` bring a
filter and a sampler to that form; they need numpy and pydantic alone.
"""

import zlib
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from repro.errors import Refused
from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.guard import array_of, call, name_of
from repro.methods.rollouts import NoSignal, Rollouts
from repro.methods.samplers import apply_chain


class NotForHosts(Refused, ValueError):
    """What a host's hook cannot do, in one sentence."""


def method(package: str, name: str | Callable) -> Callable:
    """The filter or sampler of this name, `package` filters or samplers; a function is returned as it is."""
    if callable(name):
        return name
    try:
        return getattr(import_module(f"repro.methods.{package}.{name}"), name)
    except ModuleNotFoundError:
        raise NotForHosts(f"{package} has no {name!r}: docs/samplers.md and docs/methods.md list the names") from None


def kept(name: str | Callable, rewards_N: Any, group_N: Any = None, **parameters: Any) -> np.ndarray:
    """keep_Q (bool) of a filter, groups in sorted order; without `group_N` the rollouts are one group."""
    rewards_N = np.asarray(rewards_N, float)
    group_N = np.zeros(len(rewards_N), int) if group_N is None else np.asarray(group_N)
    keep = partial(method("filters", name), **parameters)
    return array_of("filter", keep, call("filter", keep, rewards_N, group_N), (len(np.unique(group_N)),)).astype(bool)


def credits(
    name: str | Callable,
    rewards_N: Any,
    group_N: Any,
    prompt_tokens_N: Any,
    response_tokens_N: Any,
    *,
    seed: int = 0,
    **parameters: Any,
) -> np.ndarray:
    """credits_N: what a host takes as advantages so that its mean over all N rollouts is that over the M chosen,

        credit_i = (N/M) Σ_{draws j of rollout i} w_j A_j,   0 for a rollout that was not drawn,

    of the sampler's rows, weights w and advantages A; these are GRPO's, normalised within the group, unless the sampler
    replaces them. With positive weights this is exact under the clip (`repro.methods.rollouts`) where each rollout
    counts equally; where each token does, it is so up to a factor of the whole batch. Random numbers depend on `seed`
    and the batch alone. All are 0 if nothing is left to learn from. NotForHosts if the sampler chooses tokens.

    >>> credits("pods", [1, 0, 0, 0], [0, 0, 0, 0], [8, 8, 8, 8], [10, 44, 16, 53], share=0.5).round(3)
    array([ 2., -2.,  0.,  0.])
    """
    rollouts = Rollouts.from_batch(
        group_N=np.asarray(group_N),
        rewards_N=rewards_N,
        advantages_N=group_normalised(np.asarray(rewards_N, float), np.asarray(group_N)),
        prompt_tokens_N=prompt_tokens_N,
        response_tokens_N=response_tokens_N,
    )
    sampler, credits_N = partial(method("samplers", name), **parameters), np.zeros(len(rollouts))
    batch = rollouts.rewards_N.tobytes() + rollouts.costs_N.astype(float).tobytes()
    try:
        chosen = apply_chain([sampler], rollouts, 0.0, np.random.default_rng([seed, zlib.crc32(batch)]))
    except NoSignal:
        return credits_N
    if (chosen.response_mask_N_T != rollouts.response_mask_N_T[chosen.row_N]).any():
        raise NotForHosts(f"{name_of(sampler)} chooses tokens, and the host takes one number a rollout: use repro.verl")
    np.add.at(credits_N, chosen.row_N, chosen.weights_N * chosen.advantages_N)
    return credits_N * (len(rollouts) / len(chosen))
