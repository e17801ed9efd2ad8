"""The log of a run: rows of its tables."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from repro.methods.rollouts import Rollouts
from repro.methods.samplers import effective_sample_size
from repro.tasks.queries import Query


@dataclass
class Log:
    """One row per training step, per evaluation, per question of the last evaluation (of the harder split apart) and,
    at some steps, per rollout (numbers of all, texts of a few). Seconds by phase are kept separately, since they differ
    from run to run."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    questions: list[dict[str, Any]] = field(default_factory=list)
    harder: list[dict[str, Any]] = field(default_factory=list)
    rollouts: list[dict[str, Any]] = field(default_factory=list)
    selection: list[dict[str, Any]] = field(default_factory=list)
    seconds: list[dict[str, Any]] = field(default_factory=list)


# Metrics of the selection; NaN in a step that was skipped because its batch had no signal.
SELECTED = (
    "usefulness",
    "selected_rollouts",
    "distinct_rollouts",
    "selected_tokens",
    "effective_sample_size",
    "largest_weight",
)
# Metrics of an update; NaN in a step that was skipped because its batch had no signal. computed_rollouts: distinct
# rollouts of each mini-batch that were read, summed over mini-batches.
UPDATED = ("loss", "gradient_norm", "gradient_clipped", "clipped", "computed_rollouts", "loss_tokens")


def describe_selection(selected: Rollouts) -> dict[str, float]:
    """`SELECTED` of the samplers' output. usefulness: D³S's sample usefulness rate, the fraction of the groups trained
    on that have a nonzero advantage."""
    groups = np.unique(selected.group_N)
    useful = np.unique(selected.group_N[selected.advantages_N != 0])
    values = (
        len(useful) / len(groups),
        len(selected),
        len(np.unique(selected.row_N)),
        float(selected.costs_N.sum()),
        effective_sample_size(selected.weights_N),
        float(selected.weights_N.max()),
    )
    return dict(zip(SELECTED, values, strict=True))


def selection_rows(
    at: dict[str, Any], query_N: np.ndarray, queries: Sequence[Query], rollouts: Rollouts, selected: Rollouts | None
) -> list[dict[str, Any]]:
    """One row per rollout of a batch: its numbers, how often it trained and with which weight; `at` starts each row."""
    n = len(rollouts)
    times_N, weight_N = np.zeros(n, int), np.zeros(n)
    if selected is not None:
        np.add.at(times_N, selected.row_N, 1)
        weight_N[selected.row_N] = selected.weights_N
    entropy_N = rollouts.entropy_N if rollouts.measured("entropy_N_T") else np.full(n, np.nan)
    return [
        {
            **at,
            "query": int(query_N[row]),
            "family": queries[query_N[row]].family,
            "reward": float(rollouts.rewards_N[row]),
            "advantage": float(rollouts.advantages_N[row]),
            "cost": int(rollouts.costs_N[row]),
            "response_tokens": int(rollouts.response_tokens_N[row]),
            "entropy": float(entropy_N[row]),
            "times_trained": int(times_N[row]),
            "weight": float(weight_N[row]),
        }
        for row in range(n)
    ]


def rollout_rows(
    selection: Sequence[dict[str, Any]], texts: Sequence[str], queries: Sequence[Query]
) -> list[dict[str, Any]]:
    """Human-readable rows, with prompt and response, for as many rollouts as there are texts."""
    wanted = ("reward", "advantage", "cost", "times_trained", "weight")
    return [
        {
            "seed": row["seed"],
            "step": row["step"],
            "family": row["family"],
            "prompt": queries[row["query"]].prompt,
            "response": text,
            **{name: row[name] for name in wanted},
        }
        for row, text in zip(selection, texts, strict=False)
    ]
