"""The gates of a bed: what it needs before it can answer which rollouts are worth training on. Measured in a panel of
GRPO and a coin flip as reward: `gates` on every base policy of the bench, none of which was left out; that of the
language model has another name."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from repro.stats import panels
from repro.stats.intervals import t_intervals
from repro.stats.pass_at_k import pass_at_k

PANEL, TAUGHT, CHANCE = "gates", "grpo", "random-reward"
HELD_OUT, HARDER = "held-out", "harder"
CONFIDENCE = 0.95
Value = Callable[[pd.DataFrame], np.ndarray]  # of rows of counts, one per query


def greedy(rows: pd.DataFrame) -> np.ndarray:
    return rows["greedy"].to_numpy(float)


def accuracy(rows: pd.DataFrame) -> np.ndarray:
    return (rows["successes"] / rows["samples"]).to_numpy()


def pass_16(rows: pd.DataFrame) -> np.ndarray:
    return pass_at_k(rows["successes"].to_numpy(), rows["samples"].to_numpy(), 16)


def of_runs(table: str, arm: str = TAUGHT, panel: str = PANEL) -> pd.DataFrame:
    """A table of the panel's runs of `arm`, with policy and seed."""
    runs = panels.made([panel], ["policy", "arm", "seed"])
    return panels.load(table, panel).merge(runs.loc[runs["arm"] == arm, ["run", "policy", "seed"]], on="run")


def base(policy: str, split: str = HELD_OUT) -> pd.DataFrame:
    """The base policy's counts on the queries of a split."""
    whole = panels.base_of(policy)
    return whole[whole["split"] == split]


def rises(of: Value, split: str = HELD_OUT, arm: str = TAUGHT, panel: str = PANEL) -> pd.DataFrame:
    """A row per base policy (the index): before, after, rise, low and high, what training adds to `of` and its 95%
    interval over queries, each the mean over seeds."""
    asked, rows = of_runs("questions" if split == HELD_OUT else "harder", arm, panel), {}
    asked = asked.assign(value=of(asked))
    for policy, own in asked.groupby("policy"):
        before_Q = of(base(policy, split))
        after_Q = own.groupby("query")["value"].mean().to_numpy()
        ends = (float(end[0]) for end in t_intervals((after_Q - before_Q)[None], CONFIDENCE))
        rows[policy] = [before_Q.mean(), after_Q.mean(), *ends]
    return pd.DataFrame.from_dict(rows, orient="index", columns=["before", "after", "rise", "low", "high"])


def met(rises: pd.DataFrame, least: float) -> int:
    """On how many base policies a rise is at least `least`, and its interval above 0."""
    return int(((rises["rise"] >= least) & (rises["low"] > 0)).sum())


def queries(panel: str = PANEL) -> pd.DataFrame:
    """Of each base policy (the index), the shares of held-out queries with 0 < p < 0.1 and p > 0.9."""
    rates = {policy: accuracy(base(policy)) for policy in policies(panel)}
    shares = {policy: [((p > 0) & (p < 0.1)).mean(), (p > 0.9).mean()] for policy, p in rates.items()}
    return pd.DataFrame.from_dict(shares, orient="index", columns=["rare", "known"])


def costs(panel: str = PANEL) -> pd.DataFrame:
    """Of each base policy's first batches: variation (standard deviation over mean) of costs, tail (99th percentile
    over the median); and over a run's logged batches correlation, the mean one of |A| and cost, and cut, the mean share
    of truncated responses."""
    logged = of_runs("selection", panel=panel)
    cut = of_runs("curves", panel=panel).groupby("policy")["truncated"].mean()
    rows = {}
    for policy, own in logged.groupby("policy"):
        cost_N = own.loc[own["step"] == 0, "cost"].to_numpy(float)
        each = [np.corrcoef(batch["advantage"].abs(), batch["cost"])[0, 1] for _, batch in own.groupby(["run", "step"])]
        variation, tail = cost_N.std() / cost_N.mean(), np.quantile(cost_N, 0.99) / np.median(cost_N)
        rows[policy] = [variation, tail, np.nanmean(each), cut[policy]]
    return pd.DataFrame.from_dict(rows, orient="index", columns=["variation", "tail", "correlation", "cut"])


def last_quarter() -> tuple[float, float, float]:
    """(mean, low, high) over runs of GRPO: what the last quarter of the steps adds to accuracy at temperature 1,
    linear between evaluations."""
    gained = []
    for _, own in of_runs("curves").sort_values("step", kind="stable").groupby("run"):
        before, after = np.interp([0.75, 1.0], own["step"] / own["step"].max(), own["accuracy"])
        gained.append(after - before)
    mean, low, high = (float(end[0]) for end in t_intervals(np.array([gained]), CONFIDENCE))
    return mean, low, high


def clipped(panel: str = PANEL) -> pd.Series:
    """The share of tokens that PPO's clip acts on, mean over a run of GRPO, by base policy."""
    return of_runs("steps", panel=panel).groupby("policy")["clipped"].mean()


def seconds(panel: str = PANEL) -> pd.Series:
    """CPU seconds of a run of GRPO, evaluations included (the index: runs)."""
    return of_runs("seconds", panel=panel).groupby("run")["seconds"].sum()


def policies(panel: str = PANEL) -> list[str]:
    return sorted(panels.made([panel], ["policy"])["policy"].unique())
