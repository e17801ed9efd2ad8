"""Groups sampled from the base policy, and what they show: the regime in which arms are compared; and its held-out
accuracy at temperatures other than training's, above all greedily, which is part of what training gains at
temperature 1."""

from typing import Any

import pandas as pd

from repro.engine.groups import GREEDY


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


def by_temperature(rollouts: pd.DataFrame, lower: pd.DataFrame, temperature: float) -> pd.DataFrame:
    """One row per temperature, from the lowest: temperature, name, samples (of a query), accuracy, response_tokens,
    truncated. `rollouts`: the base policy's groups, at `temperature`; `lower`: repro.engine.groups.sample_at's."""
    both = pd.concat([lower, rollouts.assign(temperature=temperature)])
    groups = both.groupby("temperature")
    table = pd.DataFrame(
        {
            "samples": groups.size() // groups["query"].nunique(),
            "accuracy": groups["correct"].mean(),
            "response_tokens": groups["response_tokens"].mean(),
            "truncated": 1 - groups["finished"].mean(),
        }
    ).reset_index()
    table.insert(1, "name", ["greedy" if value == GREEDY else f"T = {value:g}" for value in table["temperature"]])
    return table


def sentence(table: pd.DataFrame) -> str:
    """`The base policy scores 0.390 at T = 1, 0.560 at T = 0.6 and 0.610 greedily`, from `by_temperature`'s table."""
    *others, last = [
        f"{row['accuracy']:.3f} " + ("greedily" if row["name"] == "greedy" else f"at {row['name']}")
        for row in table.iloc[::-1].to_dict("records")
    ]
    return f"The base policy scores {', '.join(others)} and {last}"
