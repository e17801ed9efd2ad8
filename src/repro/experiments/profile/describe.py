"""What a profile says of every query, how sure it is, and how it looks from the samples of the other seeds.

Each seed's profile is held to the samples of all the others, which it never saw: its *truth*. That is an estimate too,
of as many samples as the other profiles have together. Array names: S seeds, Q queries, K samples, N the truth's
samples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import betaincinv

from repro.engine.profile import Profile, ProfileError, hash_queries
from repro.methods.group_sizes.posterior import beta_binomial, fit_population, posterior
from repro.methods.group_sizes.rule import rule_size
from repro.methods.plans.sgpo import sgpo
from repro.methods.plans.uniform import uniform
from repro.settings import Settings, Statistics
from repro.stats.intervals import mean_intervals
from repro.tasks.queries import Query

TRIVIAL, LEARNABLE, UNSOLVABLE = "trivial", "learnable", "unsolvable"
CLASSES = (TRIVIAL, LEARNABLE, UNSOLVABLE)


@dataclass(frozen=True)
class Rule:
    """What sGPO does with a success rate: groups of clip(⌈1/p̂⌉, smallest, largest), p̂ = 1 left out, a share of p̂ = 0
    kept. `uniform`: the group size that it is compared with. `margin`: in truth a query is trivial from p = 1 − margin
    up, unsolvable from p = margin down."""

    uniform: int
    smallest: int
    largest: int
    unsolvable_share: float
    margin: float

    @classmethod
    def of(cls, settings: Settings, arm: str) -> "Rule":
        """That of an arm whose plan is `sgpo`, and the baseline's groups; the margin is the theory's."""
        planned = _parameters(sgpo) | settings.arm(arm).plan[1]
        usual = _parameters(uniform) | settings.arm(settings.baseline).plan[1]
        sizes = (usual["group_size"], planned["smallest"], planned["largest"])
        return cls(*sizes, planned["unsolvable_share"], settings.theory.group_size.margin)

    def sizes(self, rate_Q: np.ndarray) -> np.ndarray:
        return rule_size(rate_Q, self.smallest, self.largest)

    def kept(self, rate_Q: np.ndarray) -> np.ndarray:
        """The probability with which a query is trained on."""
        return np.select([rate_Q == 1, rate_Q == 0], [0.0, self.unsolvable_share], 1.0)

    def true_classes(self, rate_Q: np.ndarray) -> np.ndarray:
        """Places in CLASSES."""
        return np.select([rate_Q >= 1 - self.margin, rate_Q <= self.margin], [0, 2], 1)


def classes(rate_Q: np.ndarray) -> np.ndarray:
    """Places in CLASSES, as sGPO files a success rate: 1 is trivial, 0 unsolvable."""
    return np.select([rate_Q == 1, rate_Q == 0], [0, 2], 1)


def fitted_population(successes_Q: np.ndarray, samples: int) -> tuple[float, float]:
    """(α, β) fitted to a profile; uniform, (1, 1), where one sample of each query says nothing of the spread."""
    return fit_population(successes_Q, samples) if samples > 1 else (1.0, 1.0)


def verdicts(profiles: Mapping[int, Profile]) -> np.ndarray:
    """correct_S_Q_K of the seeds' profiles; ProfileError unless there are two or more, of one policy and one pool."""
    first, *others = profiles.values()
    if not others:
        raise ProfileError("one seed's profile has none to be held to: give seeds in params.yaml at least two")
    for other in others:
        other.check(first.source)
        if other.correct_Q_K.shape != first.correct_Q_K.shape:
            raise ProfileError(f"the profiles of seeds {list(profiles)} differ in size: run `dvc repro profile`")
    return np.stack([profile.correct_Q_K for profile in profiles.values()])


def truth(correct_S_Q_K: np.ndarray) -> tuple[np.ndarray, int]:
    """(successes_S_Q, N) among the samples of all seeds but the row's own."""
    successes_S_Q = correct_S_Q_K.sum(2)
    return successes_S_Q.sum(0) - successes_S_Q, (len(correct_S_Q_K) - 1) * correct_S_Q_K.shape[2]


def describe_queries(
    profiles: Mapping[int, Profile], queries: Sequence[Query], rule: Rule, used: int, confidence: float
) -> pd.DataFrame:
    """One row per seed and query, from the first `used` samples of the seed's profile.

    Columns: seed, query, family, prompt, answer; samples, successes, rate (p̂), class, size (its group's by `rule`);
    mean, low, high of the posterior, the population fitted to the seed's profile (alpha, beta); all_samples and
    all_successes, of the seed's whole profile; true_samples and true_successes, of the other seeds'. ProfileError
    where the profiles are of other queries.
    """
    correct_S_Q_K = verdicts(profiles)
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
            "size": rule.sizes(rate_Q),
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

    The central interval of the beta-binomial with the posterior's parameters, so that the noise of the truth is in it.
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
    told = table.assign(width=table["high"] - table["low"], covered=covered(table, statistics.confidence))
    told = told.join(pd.get_dummies(table["class"]).reindex(columns=list(CLASSES), fill_value=False))
    measures, rows = ["rate", *CLASSES, "width", "covered"], {}
    for family in [*dict.fromkeys(table["family"]), "all"]:
        own = told if family == "all" else told[told["family"] == family]
        by_seed = own.groupby("seed")[measures].mean()
        rows[family] = {"queries": own["query"].nunique()} | spread(by_seed, statistics)
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("family")


def filed(table: pd.DataFrame, rule: Rule, statistics: Statistics) -> pd.DataFrame:
    """Trivial, learnable and unsolvable (index): the share filed so by the profile and the share filed so wrongly, as
    means over seeds with _low and _high; and what the fitted population predicts of both (predicted_…).

    Wrongly: among the trivial a true rate below 1 − margin, among the unsolvable above margin, among the learnable
    outside both. The prediction is of this very count, through as many samples of the truth as there are: for p itself
    see `repro.methods.group_sizes.posterior.misfiled`.
    """
    true_rate = table["true_successes"] / table["true_samples"]
    wrong = rule.true_classes(true_rate.to_numpy()) != [CLASSES.index(name) for name in table["class"]]
    rows = {}
    for place, name in enumerate(CLASSES):
        own = table["class"] == name
        by_seed = pd.DataFrame({"share": own, "wrong": own & wrong, "seed": table["seed"]}).groupby("seed").mean()
        rows[name] = spread(by_seed, statistics)
        rows[name] |= dict(zip(("predicted_share", "predicted_wrong"), _predicted(table, rule)[place], strict=True))
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("class")


def _predicted(table: pd.DataFrame, rule: Rule) -> np.ndarray:
    """shares_3_2: of each class and of those wrongly in it, by each seed's own population, mean over seeds."""
    found = []
    for _, own in table.groupby("seed"):
        K, N, alpha, beta = own[["samples", "true_samples", "alpha", "beta"]].iloc[0]
        successes_S, true_N = np.arange(int(K) + 1), rule.true_classes(np.arange(int(N) + 1) / N)
        share_S = beta_binomial(alpha, beta, int(K))
        # Given the profile, the truth's samples are again beta-binomial, with the posterior's parameters.
        true_S_N = beta_binomial(alpha + successes_S, beta + K - successes_S, int(N))
        class_S = classes(successes_S / K)
        wrong_S = (true_S_N * (true_N != class_S[:, None])).sum(1)
        found.append([(share_S[class_S == c].sum(), (share_S * wrong_S)[class_S == c].sum()) for c in range(3)])
    return np.mean(found, axis=0)


def examples(table: pd.DataFrame, each: int = 2) -> pd.DataFrame:
    """`each` queries at every difficulty (index: its name), those nearest to its middle: prompt, answer, family, and
    lists over the seeds: successes in the whole profile, group sizes by the first samples."""
    by_query = table.groupby("query").agg(
        prompt=("prompt", "first"),
        answer=("answer", "first"),
        family=("family", "first"),
        successes=("all_successes", list),
        sizes=("size", list),
        samples=("all_samples", "first"),
    )
    rate = by_query["successes"].map(np.mean) / by_query["samples"]
    marks = {"always solved": 1.0, "nearly always": 0.9, "half the time": 0.5, "sometimes": 0.2, "seldom": 0.05}
    rows = []
    for name, mark in (*marks.items(), ("never solved", 0.0)):
        nearest = (rate - mark).abs().sort_values(kind="stable").index[:each]
        rows.append(by_query.loc[nearest].assign(difficulty=name, rate=rate[nearest]))
    return pd.concat(rows).set_index("difficulty")


def spread(by_seed: pd.DataFrame, statistics: Statistics) -> dict[str, float]:
    """Each column's mean over the seeds with its interval, as name, name_low and name_high; NaN bounds for one seed."""
    found = mean_intervals({name: column.to_numpy(float) for name, column in by_seed.items()}, statistics)
    ends = ("", "_low", "_high")
    return {
        f"{name}{end}": value for name, interval in found.items() for end, value in zip(ends, interval, strict=True)
    }


def _parameters(plan: Callable) -> dict[str, Any]:
    """The defaults of a plan's own parameters."""
    found = signature(plan).parameters.values()
    return {each.name: each.default for each in found if each.kind is each.KEYWORD_ONLY}
