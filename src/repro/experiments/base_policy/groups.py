"""What the base policy does with the queries before any reinforcement: the regime in which arms are compared."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from repro.engine.evaluate import decode, score
from repro.engine.generate import generate
from repro.tasks.queries import Query


def sample_groups(
    model: Any,
    tokenizer: Any,
    queries: Sequence[Query],
    *,
    groups: int,
    group_size: int,
    max_new_tokens: int,
    temperature: float,
    seed: int,
) -> pd.DataFrame:
    """`groups` groups of `group_size` responses to every query, one row per rollout.

    Columns: query, family, group (0 … groups−1), prompt, response, correct (0.0 or 1.0), response_tokens, cost,
    entropy (nats, mean over the response), finished.
    """
    generator = torch.Generator(device=model.device).manual_seed(seed)
    samples = groups * group_size
    parts = []
    for start in range(0, len(queries), 4096 // samples):
        chunk = queries[start : start + 4096 // samples]
        responses = generate(
            model,
            tokenizer([query.prompt for query in chunk])["input_ids"],
            [samples] * len(chunk),
            max_new_tokens=max_new_tokens,
            eos=tokenizer.eos_token_id,
            pad=tokenizer.pad_token_id,
            temperature=temperature,
            generator=generator,
        )
        texts, valid_N = decode(tokenizer, responses)
        queries_N = [query for query in chunk for _ in range(samples)]
        tokens_N = responses.mask_N_T.sum(1).cpu().numpy()
        parts.append(
            pd.DataFrame(
                {
                    "query": np.repeat(np.arange(start, start + len(chunk)), samples),
                    "family": [query.family for query in queries_N],
                    "group": np.tile(np.repeat(np.arange(groups), group_size), len(chunk)),
                    "prompt": [query.prompt for query in queries_N],
                    "response": texts,
                    "correct": score(texts, valid_N, queries_N),
                    "response_tokens": tokens_N,
                    "cost": tokens_N + responses.prompt_tokens_N.cpu().numpy(),
                    "entropy": (responses.entropy_N_T.sum(1) / responses.mask_N_T.sum(1)).cpu().numpy(),
                    "finished": responses.finished_N.cpu().numpy(),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def describe_groups(rollouts: pd.DataFrame) -> pd.DataFrame:
    """One row per group: query, family, success (its rate), signal (rewards differ), length_ratio (longest response of
    the group over its shortest)."""
    by_group = rollouts.groupby(["query", "group"], sort=True)
    lengths = by_group["response_tokens"]
    return pd.DataFrame(
        {
            "family": by_group["family"].first(),
            "success": by_group["correct"].mean(),
            "signal": by_group["correct"].nunique() > 1,
            "length_ratio": lengths.max() / lengths.min(),
        }
    ).reset_index()


def describe_families(rollouts: pd.DataFrame) -> pd.DataFrame:
    """One row per family and one for `all`: share of queries, success rate, share of groups without signal, median
    ratio of longest to shortest response in a group, mean response tokens when right and when wrong, mean entropy."""
    groups = describe_groups(rollouts)
    rows = []
    for family in [*dict.fromkeys(rollouts["family"]), "all"]:
        own = rollouts if family == "all" else rollouts[rollouts["family"] == family]
        own_groups = groups if family == "all" else groups[groups["family"] == family]
        right, wrong = own[own["correct"] == 1.0], own[own["correct"] == 0.0]
        rows.append(
            {
                "family": family,
                "share": own["query"].nunique() / rollouts["query"].nunique(),
                "success": own["correct"].mean(),
                "groups_without_signal": 1.0 - own_groups["signal"].mean(),
                "length_ratio": own_groups["length_ratio"].median(),
                "tokens_right": right["response_tokens"].mean(),
                "tokens_wrong": wrong["response_tokens"].mean(),
                "entropy": own["entropy"].mean(),
            }
        )
    return pd.DataFrame(rows)


def families_table(families: pd.DataFrame) -> str:
    """`describe_families`'s table as Markdown."""
    heads = {
        "family": "family",
        "share": "share of queries",
        "success": "success rate",
        "groups_without_signal": "groups without signal",
        "length_ratio": "longest / shortest (median)",
        "tokens_right": "tokens when right",
        "tokens_wrong": "tokens when wrong",
        "entropy": "entropy (nats)",
    }
    lines = ["| " + " | ".join(heads.values()) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for row in families.to_dict("records"):
        cells = [row["family"]] + [f"{row[name]:.{1 if 'tokens' in name else 2}f}" for name in list(heads)[1:]]
        lines.append("| " + " | ".join("–" if cell == "nan" else cell for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def regime(rollouts: pd.DataFrame) -> str:
    """The regime in a sentence or two, computed: signal, trivial and unsolvable queries, spread of lengths."""
    groups = describe_groups(rollouts)
    by_query = rollouts.groupby("query")["correct"].mean()
    samples = len(rollouts) // len(by_query)
    return (
        f"At the start {1 - groups['signal'].mean():.0%} of groups carry no signal (D³S reports about 30%). "
        f"Of the {len(by_query)} held-out queries, {(by_query >= 0.9).mean():.0%} are trivial (right at least nine "
        f"times in ten, {samples} samples each) and {(by_query == 0).mean():.0%} unsolved in every sample; "
        f"the mean success rate is {rollouts['correct'].mean():.3f}. "
        f"In {(groups['length_ratio'] >= 2).mean():.0%} of groups the longest response is at least twice the shortest."
    )
