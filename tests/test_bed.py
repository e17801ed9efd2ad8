"""The gates of the bed, written down before its base policies were made: what a bed needs before it can answer which
rollouts are worth training on. Read from panel `gates`: GRPO and a coin flip as reward, two seeds on each of eight base
policies, none of which was left out. A gate that is not met is a strict expected failure with its figure."""

import numpy as np
import pandas as pd
import pytest

from repro.runs.policies import base_of
from repro.stats import panels
from repro.stats.intervals import t_intervals
from repro.stats.pass_at_k import pass_at_k

POLICIES, SEEDS = tuple("ijklmnop"), 2
TAUGHT = 6  # of the eight policies


def gates(table: str) -> pd.DataFrame:
    runs = panels.load("runs", "gates")[["run", "policy", "arm", "seed"]]
    return panels.load(table, "gates").merge(runs, on="run")


def per_query(table: str, arm: str = "grpo") -> pd.DataFrame:
    rows = gates(table)
    return rows[rows["arm"] == arm]


def rise(policy: str, of, split: str = "held-out", arm: str = "grpo") -> tuple[float, float, float]:
    """(mean over queries of what training adds to `of`, its 95% interval): queries are what an evaluation samples."""
    base = base_of(policy)
    base = base[base["split"] == split]
    after = per_query("questions" if split == "held-out" else "harder", arm)
    after = after[after["policy"] == policy].assign(value=lambda rows: of(rows))
    gained_Q = after.groupby("query")["value"].mean().to_numpy() - of(base)
    mean, low, high = (float(end[0]) for end in t_intervals(np.asarray(gained_Q)[None], 0.95))
    return mean, low, high


def greedy(rows: pd.DataFrame) -> np.ndarray:
    return rows["greedy"].to_numpy(float)


def accuracy(rows: pd.DataFrame) -> np.ndarray:
    return (rows["successes"] / rows["samples"]).to_numpy()


def pass_16(rows: pd.DataFrame) -> np.ndarray:
    return pass_at_k(rows["successes"].to_numpy(), rows["samples"].to_numpy(), 16)


def test_the_panel_is_whole():
    runs = panels.load("runs", "gates")
    assert sorted(runs.groupby("policy").size().items()) == [(policy, 2 * SEEDS) for policy in POLICIES]


@pytest.mark.parametrize(("of", "least"), [(greedy, 0.15), (pass_16, 0.02)])
def test_training_teaches(of, least):
    found = {policy: rise(policy, of) for policy in POLICIES}
    assert sum(mean >= least and low > 0 for mean, low, _ in found.values()) >= TAUGHT, found


def test_a_coin_flip_teaches_nothing():
    for of in (greedy, accuracy):
        found = {policy: rise(policy, of, arm="random-reward") for policy in POLICIES}
        assert all(low <= 0 for _, low, _ in found.values()), found


def test_the_harder_split_moves():
    found = {policy: rise(policy, accuracy, "harder") for policy in POLICIES}
    assert sum(mean >= 0.02 and low > 0 for mean, low, _ in found.values()) >= TAUGHT, found


def base_rates() -> dict[str, np.ndarray]:
    return {policy: accuracy(base_of(policy).query("split == 'held-out'")) for policy in POLICIES}


def test_base_policies_have_queries_that_they_can_learn():
    """As many as a language model leaves between never and rarely."""
    shares = {policy: float(((rate > 0) & (rate < 0.1)).mean()) for policy, rate in base_rates().items()}
    assert min(shares.values()) >= 0.15, shares


def test_base_policies_have_queries_that_they_know():
    shares = {policy: float((rate > 0.9).mean()) for policy, rate in base_rates().items()}
    assert sum(share >= 0.10 for share in shares.values()) >= TAUGHT, shares


def test_costs_vary_and_go_with_advantages():
    """A tail, some responses cut, and a cost that says something of |A|: else no method that reads costs has anything
    to read."""
    rows = per_query("selection")
    rows = rows[rows["step"] == 0]
    for policy, of in rows.groupby("policy"):
        cost_N = of["cost"].to_numpy(float)
        assert cost_N.std() / cost_N.mean() > 0.8, (policy, cost_N.std() / cost_N.mean())
        assert np.quantile(cost_N, 0.99) > 2.5 * np.median(cost_N), policy
        assert abs(np.corrcoef(of["advantage"].abs(), cost_N)[0, 1]) > 0.05, policy
    assert (per_query("curves")["truncated"] > 0).any()


def test_the_clip_acts():
    clipped = per_query("steps").groupby("policy")["clipped"].mean()
    assert clipped.between(0.01, 0.20).sum() >= TAUGHT, clipped.to_dict()


def test_the_last_quarter_still_improves():
    curves = per_query("curves")
    at = {
        run: np.interp([0.75, 1.0], own["step"] / own["step"].max(), own["accuracy"])
        for run, own in curves.groupby("run")
    }
    gained = np.array([late - before for before, late in at.values()])
    mean, low, _ = (float(end[0]) for end in t_intervals(gained[None], 0.95))
    assert mean > 0.01 and low > 0, (mean, low)


def test_a_run_takes_twenty_seconds():
    seconds = per_query("seconds").groupby("run")["seconds"].sum()
    assert seconds.median() <= 20, seconds.median()
