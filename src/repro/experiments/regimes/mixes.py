"""What a mix of queries is like for the base policy: how much signal, and does length correlate with difficulty?"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from repro import paths
from repro.files import read_parquet
from repro.settings import Settings, Statistics
from repro.stats.intervals import draws, percentiles

DEFAULT = "default"  # the mix of `task.families`, on which every arm of the study is trained


def titles(settings: Settings) -> dict[str, str]:
    """{mix: title}, the study's own mix first."""
    return {DEFAULT: "the study's own mix", **{name: mix.title for name, mix in settings.regimes.mixes.items()}}


def shares(settings: Settings) -> pd.DataFrame:
    """A row per mix, the share of each family in its queries, and `about`: what the mix is meant to be."""
    mixes = {DEFAULT: {name: family.share for name, family in settings.task.families.items()}}
    mixes |= {name: mix.shares for name, mix in settings.regimes.mixes.items()}
    about = {name: mix.about for name, mix in settings.regimes.mixes.items()}
    table = pd.DataFrame(mixes).T.fillna(0.0)
    return table.assign(about=pd.Series(about)).fillna({"about": ""}).rename(index=titles(settings))


def load_groups(settings: Settings) -> dict[str, pd.DataFrame]:
    """{mix: the base policy's rollouts on its held-out queries}: a row per rollout with query, group, correct,
    response_tokens and cost."""
    return {
        mix: read_parquet(paths.POLICY / "rollouts.parquet", "dvc repro policy")
        if mix == DEFAULT
        else read_parquet(paths.regime_results(mix) / "base.parquet", f"dvc repro regime@{mix}")
        for mix in titles(settings)
    }


def describe(
    groups: Mapping[str, pd.DataFrame], steps: pd.DataFrame, questions: pd.DataFrame, settings: Settings
) -> pd.DataFrame:
    """One row per mix of `groups`. Columns; * has _low and _high as well, a percentile bootstrap over queries:

    mix, queries, success
    groups_without_signal*     share of the base policy's groups whose rewards are all equal
    length_difficulty*         Spearman's ρ of a query's success rate and its mean response length, over queries
    advantage_length*          Spearman's ρ of |A| and response length, over rollouts of groups with signal
    silent_in_training         share of groups without signal in the baseline's batches, mean over steps and seeds
    length_difficulty_end      length_difficulty at the baseline's final evaluation, mean over seeds
    cost_variation             standard deviation over mean of a rollout's cost (prompt and response tokens)

    `steps`, `questions`: tables of the runs with columns `mix` and `arm`.
    """
    return pd.DataFrame([_row(mix, groups[mix], steps, questions, settings) for mix in groups])


def _row(mix: str, rollouts: pd.DataFrame, steps: pd.DataFrame, questions: pd.DataFrame, settings: Settings) -> dict:
    steps, questions = (t[(t["mix"] == mix) & (t["arm"] == settings.baseline)] for t in (steps, questions))
    signal = rollouts.groupby(["query", "group"])["correct"].nunique() > 1
    signal_Q = signal.groupby("query").mean().to_numpy(float)
    counts_B_Q = _resampled_counts(len(signal_Q), settings.statistics)
    estimates = {
        "groups_without_signal": 1 - counts_B_Q @ signal_Q / len(signal_Q),
        "length_difficulty": length_difficulty(rollouts, counts_B_Q),
        "advantage_length": advantage_length(rollouts, counts_B_Q),
    }
    row = {"mix": mix, "queries": len(signal_Q), "success": rollouts["correct"].mean()}
    for name, estimates_B in estimates.items():
        ends = percentiles(estimates_B, len(signal_Q), settings.statistics)
        row |= dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
    return row | {
        "silent_in_training": steps["groups_without_signal"].mean(),
        "length_difficulty_end": _at_the_end(questions),
        "cost_variation": rollouts["cost"].std() / rollouts["cost"].mean(),
    }


def length_difficulty(rollouts: pd.DataFrame, counts_B_Q: np.ndarray) -> np.ndarray:
    """rho_B: Spearman's correlation over queries of success rate and mean response length, under B weightings.

    The two come from different halves of a query's samples, both ways round, and the two are averaged: within one
    sample a lucky response moves both, which is not a property of the query. Too few samples pull it towards 0.
    """
    half_N = rollouts.groupby("query").cumcount() % 2
    halves = rollouts.assign(half=half_N).groupby(["half", "query"])[["correct", "response_tokens"]].mean()
    one, two = halves.loc[0], halves.loc[1]
    ways = ((one["correct"], two["response_tokens"]), (two["correct"], one["response_tokens"]))
    return np.mean([spearman(x.to_numpy(), y.to_numpy(), counts_B_Q) for x, y in ways], axis=0)


def advantage_length(rollouts: pd.DataFrame, counts_B_Q: np.ndarray) -> np.ndarray:
    """rho_B: Spearman's correlation over rollouts of |A| = |r − p|/√(p(1 − p)), p their group's success rate, and
    response length, under B weightings of the queries. Groups without signal are left out, since A = 0 there
    at any length. Few values of either occur, so the B weightings act on a table of counts.
    """
    rate_N = rollouts.groupby(["query", "group"])["correct"].transform("mean").to_numpy(float)
    live_N = (rate_N > 0) & (rate_N < 1)
    if not live_N.any():
        return np.full(len(counts_B_Q), np.nan)
    rate_N, live = rate_N[live_N], rollouts[live_N]
    advantages_N = np.abs(live["correct"] - rate_N) / np.sqrt(rate_N * (1 - rate_N))
    cells = pd.crosstab(live["query"], [advantages_N.round(9), live["response_tokens"]])
    counts_Q_C = cells.reindex(np.unique(rollouts["query"]), fill_value=0).to_numpy(float)
    advantages_C, lengths_C = (cells.columns.get_level_values(level).to_numpy(float) for level in (0, 1))
    return spearman(advantages_C, lengths_C, counts_B_Q @ counts_Q_C)


def spearman(x_N: np.ndarray, y_N: np.ndarray, weights_B_N: np.ndarray) -> np.ndarray:
    """rho_B: Spearman's rank correlation with tied ranks averaged, where entry n occurs weights_B_N[:, n] times.

    NaN where x or y does not vary.
    """
    total_B = weights_B_N.sum(1, keepdims=True)
    centred = []
    for values_N in (x_N, y_N):
        order_N = np.argsort(values_N, kind="stable")
        _, first_U, place_N = np.unique(values_N[order_N], return_index=True, return_inverse=True)
        mass_B_U = np.add.reduceat(weights_B_N[:, order_N], first_U, axis=1)
        ranks_B_N = np.empty(weights_B_N.shape)
        ranks_B_N[:, order_N] = (np.cumsum(mass_B_U, axis=1) - mass_B_U / 2)[:, place_N]
        centred.append(ranks_B_N - total_B / 2)  # the mean of mid-ranks is half of the total, ties or not
    x_B_N, y_B_N = centred
    norm_B = np.sqrt((weights_B_N * x_B_N**2).sum(1) * (weights_B_N * y_B_N**2).sum(1))
    covariance_B = (weights_B_N * x_B_N * y_B_N).sum(1)
    return np.divide(covariance_B, norm_B, out=np.full(len(norm_B), np.nan), where=norm_B > 0)


def _resampled_counts(n_queries: int, statistics: Statistics) -> np.ndarray:
    """counts_B_Q: how often each query occurs in each resample of the queries; row 0 has each once."""
    draws_B_Q = draws(n_queries, statistics)
    counts_B_Q = np.zeros(draws_B_Q.shape)
    np.add.at(counts_B_Q, (np.arange(len(draws_B_Q))[:, None], draws_B_Q), 1.0)
    return counts_B_Q


def _at_the_end(questions: pd.DataFrame) -> float:
    """Spearman's ρ of successes and response length over the queries of each run, mean over runs where it is defined.

    Both come from the same samples: the final evaluation draws enough of each query for that to matter little.
    """
    rhos = [
        spearman(run["successes"].to_numpy(float), run["tokens"].to_numpy(float), np.ones((1, len(run))))[0]
        for _, run in questions.groupby("seed")
    ]
    known = [rho for rho in rhos if np.isfinite(rho)]
    return float(np.mean(known)) if known else float("nan")
