"""The base policy's held-out accuracy at temperatures other than training's, above all greedily.

Training on rewards sharpens a policy: part of what it gains at temperature 1, the base policy already reaches at a
lower one.
"""

import pandas as pd

from repro.engine.groups import GREEDY


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
