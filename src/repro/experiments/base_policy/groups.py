"""Groups sampled from the base policy, and what they show: the regime in which arms are compared."""

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
    """One row per family (index) and one for `all`: share of queries, success rate, share of groups without signal,
    median ratio of longest to shortest response in a group, mean response tokens when right and when wrong, mean
    entropy."""
    groups = describe_groups(rollouts)
    by_family, groups_of = _with_all(rollouts), _with_all(groups)
    right = rollouts["correct"] == 1.0
    return pd.DataFrame(
        {
            "share": by_family["query"].nunique() / rollouts["query"].nunique(),
            "success": by_family["correct"].mean(),
            "groups_without_signal": 1.0 - groups_of["signal"].mean(),
            "length_ratio": groups_of["length_ratio"].median(),
            "tokens_right": _with_all(rollouts[right])["response_tokens"].mean(),
            "tokens_wrong": _with_all(rollouts[~right])["response_tokens"].mean(),
            "entropy": by_family["entropy"].apply(pd.Series.mean),
        },
        index=pd.Index([*dict.fromkeys(rollouts["family"]), "all"], name="family"),
    )


def _with_all(table: pd.DataFrame) -> Any:
    """Grouped by family, the whole table being one more family, `all`."""
    return pd.concat([table, table.assign(family="all")]).groupby("family", sort=False)
