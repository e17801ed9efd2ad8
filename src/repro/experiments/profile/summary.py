"""What a profile says of every query, how uncertain that is, and how the samples of the other seeds judge it.

Each seed's profile is compared with the samples of all other seeds, which it never saw: its *truth*. That is an
estimate too, from as many samples as the other profiles have together. Axes: S seeds, Q queries, K samples, N samples
of the truth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.special import betaincinv

from repro.methods.group_sizes.posterior import beta_binomial, posterior
from repro.methods.sgpo_rule import CLASSES, Rule, classes, fitted_population
from repro.protocol.profile import Profile, ProfileError, hash_queries
from repro.settings import Statistics
from repro.stats.intervals import over_seeds
from repro.tasks.queries import Query

DIFFICULTIES = {
    "always solved": 1.0,
    "nearly always": 0.9,
    "half the time": 0.5,
    "sometimes": 0.2,
    "seldom": 0.05,
    "never solved": 0.0,
}


def stacked(profiles: Mapping[int, Profile]) -> np.ndarray:
    """correct_S_Q_K of the seeds' profiles; ProfileError unless there are two or more, of one policy and one pool."""
    first, *others = profiles.values()
    if not others:
        raise ProfileError(
            "a single profile has no other to be compared with: pass those of two seeds (`settings.profiled_seeds`)"
        )
    for other in others:
        other.check(first.source)
        if other.correct_Q_K.shape != first.correct_Q_K.shape:
            raise ProfileError(f"the profiles of seeds {list(profiles)} differ in size: run `dvc repro profile`")
    return np.stack([profile.correct_Q_K for profile in profiles.values()])


def truth(correct_S_Q_K: np.ndarray) -> tuple[np.ndarray, int]:
    """(successes_S_Q, N) among the samples of all seeds but the row's."""
    successes_S_Q = correct_S_Q_K.sum(2)
    return successes_S_Q.sum(0) - successes_S_Q, (len(correct_S_Q_K) - 1) * correct_S_Q_K.shape[2]


def describe_queries(
    profiles: Mapping[int, Profile], queries: Sequence[Query], rule: Rule, used: int, confidence: float
) -> pd.DataFrame:
    """One row per seed and query, from the first `used` samples of the seed's profile.

    Columns: seed, query, family, prompt, answer; samples, successes, rate (p̂), class, size (of its group by `rule`);
    mean, low, high of the posterior, with the population fitted to the seed's profile (alpha, beta); all_samples and
    all_successes, of the seed's whole profile; true_samples and true_successes, of the other seeds'. ProfileError
    where the profiles are of other queries.
    """
    correct_S_Q_K = stacked(profiles)
    for profile in profiles.values():
        profile.check(replace(profile.source, queries=hash_queries(queries)))
    true_S_Q, true_samples = truth(correct_S_Q_K)
    tail, frames = (1 - confidence) / 2, []
    for place, seed in enumerate(profiles):
        successes_Q = correct_S_Q_K[place, :, :used].sum(1)
        alpha, beta = fitted_population(successes_Q, used)
        a_Q, b_Q = posterior(successes_Q, used, alpha, beta)
        rate_Q = successes_Q / used
        columns = {
            "seed": seed,
            "query": np.arange(len(queries)),
            "family": [query.family for query in queries],
            "prompt": [query.prompt for query in queries],
            "answer": [query.answer for query in queries],
            "samples": used,
            "successes": successes_Q,
            "rate": rate_Q,
            "class": np.array(CLASSES)[classes(rate_Q)],
            "size": rule.sizes(rate_Q, used),
            "mean": a_Q / (a_Q + b_Q),
            "low": betaincinv(a_Q, b_Q, tail),
            "high": betaincinv(a_Q, b_Q, 1 - tail),
            "alpha": alpha,
            "beta": beta,
            "all_samples": correct_S_Q_K.shape[2],
            "all_successes": correct_S_Q_K[place].sum(1),
            "true_samples": true_samples,
            "true_successes": true_S_Q[place],
        }
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


def covered(table: pd.DataFrame, confidence: float) -> pd.Series:
    """Whether the other seeds' successes are where the posterior predicts them, with at least this probability.

    The central interval of the beta-binomial with the posterior's parameters, which includes the noise of the truth.
    """
    inside = pd.Series(False, index=table.index)
    for (samples, number), part in table.groupby(["samples", "true_samples"]):
        a_Q, b_Q = part["alpha"] + part["successes"], part["beta"] + samples - part["successes"]
        below_Q_N = np.cumsum(beta_binomial(a_Q.to_numpy(), b_Q.to_numpy(), int(number)), axis=1)
        seen_Q = part["true_successes"].to_numpy()
        up_to_Q = np.take_along_axis(below_Q_N, seen_Q[:, None], 1)[:, 0]
        before_Q = np.where(seen_Q > 0, np.take_along_axis(below_Q_N, np.maximum(seen_Q - 1, 0)[:, None], 1)[:, 0], 0)
        tail = (1 - confidence) / 2
        inside[part.index] = (up_to_Q > tail) & (before_Q < 1 - tail)
    return inside


def families(table: pd.DataFrame, statistics: Statistics) -> pd.DataFrame:
    """One row per family and one for `all` (index): queries; and, as means over seeds with _low and _high, the success
    rate, the shares of CLASSES, the width of a query's posterior interval and the share that is `covered`."""
    queries = table.assign(width=table["high"] - table["low"], covered=covered(table, statistics.confidence))
    queries = queries.assign(**{name: table["class"] == name for name in CLASSES})
    both = pd.concat([queries, queries.assign(family="all")])
    by_seed = both.groupby(["family", "seed"], sort=False)[["rate", *CLASSES, "width", "covered"]].mean().reset_index()
    means = over_seeds(by_seed, "family", statistics)
    means.insert(0, "queries", both.groupby("family")["query"].nunique())
    return means


def class_shares(table: pd.DataFrame, margin: float, statistics: Statistics) -> pd.DataFrame:
    """One row per class by p̂ (index): `share` of the queries, and `wrong`, the share that are in the class wrongly, as
    means over seeds with _low and _high; predicted_share and predicted_wrong, by the fitted population.

    Wrongly: the other seeds' success rate is below 1 − margin for a trivial query, above margin for an unsolvable one,
    outside both for a learnable one. The prediction is of this very count, with as many samples of the truth; for p
    itself see `repro.methods.group_sizes.posterior.misfiled`.
    """
    true_Q = classes(table["true_successes"] / table["true_samples"], margin)
    wrong = np.array(CLASSES)[true_Q] != table["class"]
    rows = [
        pd.DataFrame({"class": name, "seed": table["seed"], "share": table["class"] == name}).assign(
            wrong=lambda part: part["share"] & wrong
        )
        for name in CLASSES
    ]
    by_seed = pd.concat(rows).groupby(["class", "seed"], sort=False).mean().reset_index()
    shares = over_seeds(by_seed, "class", statistics)
    shares[["predicted_share", "predicted_wrong"]] = _predicted(table, margin)
    return shares


def _predicted(table: pd.DataFrame, margin: float) -> np.ndarray:
    """shares_3_2: share of each class and of those wrongly in it, by each seed's fitted population; mean over seeds."""
    shares_S_3_2 = []
    for _, group in table.groupby("seed"):
        K, N, alpha, beta = group[["samples", "true_samples", "alpha", "beta"]].iloc[0]
        successes_S, true_N = np.arange(int(K) + 1), classes(np.arange(int(N) + 1) / N, margin)
        share_S = beta_binomial(alpha, beta, int(K))
        # Given the profile, the truth's samples are again beta-binomial, with the posterior's parameters.
        true_S_N = beta_binomial(alpha + successes_S, beta + K - successes_S, int(N))
        class_S = classes(successes_S / K)
        wrong_S = (true_S_N * (true_N != class_S[:, None])).sum(1)
        shares_S_3_2.append([(share_S[class_S == c].sum(), (share_S * wrong_S)[class_S == c].sum()) for c in range(3)])
    return np.mean(shares_S_3_2, axis=0)


def examples(table: pd.DataFrame, each: int = 2) -> pd.DataFrame:
    """`each` queries at every difficulty (index), those with the nearest success rates: prompt, answer, family, and,
    as lists over the seeds, successes in the whole profile and group sizes by the first samples."""
    by_query = table.groupby("query").agg(
        prompt=("prompt", "first"),
        answer=("answer", "first"),
        family=("family", "first"),
        successes=("all_successes", list),
        samples=("all_samples", "first"),
        sizes=("size", list),
    )
    rate = by_query["successes"].map(np.mean) / by_query["samples"]
    nearest = {
        name: (rate - middle).abs().sort_values(kind="stable").index[:each] for name, middle in DIFFICULTIES.items()
    }
    rows = [by_query.loc[index].assign(difficulty=name) for name, index in nearest.items()]
    return pd.concat(rows).set_index("difficulty")
