"""Which groups would have been worth asking: the success counts of a dump as sGPO's profile."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from repro.methods.group_sizes.posterior import gain_table, posterior
from repro.methods.sgpo_rule import CLASSES, Rule, classes, fitted_population
from repro.settings import Settings

SIZES = (2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Plan:
    """A query's first group of the usual size K, `samples`, is its profile; p ~ Beta(α, β) over the queries. `shares`:
    of the classes of sGPO. `sizes`: for groups of one size and for its plan (the index) the rollouts a query, the share
    of them in groups without a signal, and the rollouts for one group with one, expected under a query's posterior."""

    queries: int
    samples: int
    shares: dict[str, float]
    sizes: pd.DataFrame


def plan_of(rows: pd.DataFrame, correct_N: np.ndarray, settings: Settings) -> Plan | None:
    """None where fewer than two queries, or groups of one, leave nothing to fit."""
    groups = rows.assign(correct=correct_N).groupby(["query", "group"], sort=False)["correct"].agg(["sum", "size"])
    samples = int(groups["size"].mode().iloc[0])
    first = groups[groups["size"] == samples].groupby("query", sort=False).head(1)
    if samples < 2 or len(first) < 2:
        return None
    successes_Q = first["sum"].to_numpy(int)
    rate_Q = successes_Q / samples
    rule = Rule.of(settings.arm("sgpo").plan[1] if "sgpo" in settings.all_arms else {"allocation": "shrunken"})
    plans = {f"groups of {size}": (np.full(len(rate_Q), size), np.ones(len(rate_Q))) for size in SIZES}
    plans["sGPO"] = rule.sizes(rate_Q, samples), rule.kept(rate_Q)
    informative_Q_G = gain_table(
        *posterior(successes_Q, samples, *fitted_population(successes_Q, samples)), range(rule.largest + 1)
    )
    table = {}
    for name, (size_Q, kept_Q) in plans.items():
        signal_Q, spent = informative_Q_G[np.arange(len(size_Q)), size_Q], (kept_Q * size_Q).sum()
        silent = 1 - (kept_Q * size_Q * signal_Q).sum() / spent
        table[name] = {"rollouts": spent / len(size_Q), "silent": silent, "for_one": spent / (kept_Q * signal_Q).sum()}
    shares = np.bincount(classes(rate_Q), minlength=len(CLASSES)) / len(rate_Q)
    sizes = pd.DataFrame.from_dict(table, orient="index").rename_axis("plan")
    return Plan(len(rate_Q), samples, dict(zip(CLASSES, shares.tolist(), strict=True)), sizes)
