"""sGPO's plan for a profile, query by query: who is trained on, where the rollouts go, what signal to expect."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from repro.methods.group_sizes.allocation import allocate_profile
from repro.methods.group_sizes.posterior import expected_informative, posterior
from repro.methods.plans import PlanStream
from repro.methods.plans.sgpo import sgpo
from repro.methods.sgpo_rule import CLASSES, classes, fitted_population
from repro.protocol.profile import Profile, ProfileError
from repro.tasks.queries import Query


def plan_table(
    profile: Profile,
    queries: Sequence[Query],
    parameters: Mapping[str, Any],
    rollouts_per_step: int,
    steps: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """One row per query, from the plan itself run for `steps` steps; `parameters` are those of `sgpo`.

    query, family, prompt; successes, samples, rate (p̂); class (one of CLASSES); group_size, rollouts of its first group
    (0 if it is never trained on in these steps); kept, whether it is in the first epoch; place, its position in that
    epoch, from 0; step, from 0, in which it is first trained on; visits, its groups in all these steps. place and step
    are NA where there is none. The first epoch is complete even where `steps` end within it. ProfileError where the
    profile has another number of queries.
    """
    n_queries = len(profile.rate_Q)
    if n_queries != len(queries):
        raise ProfileError(f"the profile is of {n_queries} queries, the plan for {len(queries)}: profile the same pool")
    epochs = sgpo(profile.known(), rollouts_per_step, rng, **parameters)
    first = epochs.draw()
    stream = PlanStream(chain(first, epochs))
    size_Q, visits_Q = np.zeros((2, n_queries), np.int64)
    place_Q, step_Q = np.full((2, n_queries), -1)
    for place, group in enumerate(first):
        place_Q[group.query], size_Q[group.query] = place, group.size
    for step in range(steps):
        for group in stream.fill_step(rollouts_per_step):
            visits_Q[group.query] += 1
            if step_Q[group.query] < 0:
                step_Q[group.query], size_Q[group.query] = step, group.size
    return pd.DataFrame(
        {
            "query": np.arange(n_queries),
            "family": [query.family for query in queries],
            "prompt": [query.prompt for query in queries],
            "successes": profile.successes_Q.astype(np.int64),
            "samples": profile.samples,
            "rate": profile.rate_Q,
            "class": np.array(CLASSES)[classes(profile.rate_Q)],
            "group_size": size_Q,
            "kept": place_Q >= 0,
            "place": _known(place_Q),
            "step": _known(step_Q),
            "visits": visits_Q,
        }
    )


def by_class(table: pd.DataFrame) -> pd.DataFrame:
    """Of each of CLASSES and of `all` (index), in the first epoch: see `_account`."""
    parts = {name: table[table["class"] == name] for name in CLASSES}
    return _account(table, parts | {"all": table}, "class")


def predicted(table: pd.DataFrame, uniform: int) -> pd.DataFrame:
    """The first epoch of three plans, before any training (index: plan): groups; rollouts; informative, the expected
    number of groups whose rewards differ, by the posterior of every query; per_rollout; ratio, to uniform groups.

    uniform: all queries, `uniform` rollouts each. best: the largest expected number of informative groups that the
    plan's rollouts allow, over all queries, with group sizes from 2 to the plan's largest.
    """
    kept = table[table["kept"]]
    sizes = range(2, int(kept["group_size"].max()) + 1)
    rollouts, successes, samples = int(kept["group_size"].sum()), table["successes"], int(table["samples"].iloc[0])
    best_Q = allocate_profile(successes, samples, sizes, rollouts, population=_population(table))
    of_plan = {
        "plan": np.where(table["kept"], table["group_size"], 0),
        "uniform": np.full(len(table), uniform),
        "best": best_Q,
    }
    rows = {}
    for name, size_Q in of_plan.items():
        informative = float(_informative(table, size_Q).sum())
        rows[name] = {"groups": int((size_Q > 0).sum()), "rollouts": int(size_Q.sum()), "informative": informative}
    plans = pd.DataFrame.from_dict(rows, orient="index").astype({"groups": int, "rollouts": int}).rename_axis("plan")
    plans["per_rollout"] = plans["informative"] / plans["rollouts"]
    plans["ratio"] = plans["per_rollout"] / plans.loc["uniform", "per_rollout"]
    return plans


def _account(table: pd.DataFrame, parts: Mapping[Any, pd.DataFrame], name: str) -> pd.DataFrame:
    """queries; kept, those in the first epoch; their rollouts and share of all rollouts; informative, expected groups
    with signal; per_100, the same per 100 rollouts (NaN without rollouts)."""
    total = table.loc[table["kept"], "group_size"].sum()
    informative_Q = pd.Series(_informative(table, np.where(table["kept"], table["group_size"], 0)), index=table.index)
    rows = {}
    for key, part in parts.items():
        kept = part[part["kept"]]
        rollouts, informative = int(kept["group_size"].sum()), float(informative_Q[kept.index].sum())
        row = {"queries": len(part), "kept": len(kept), "rollouts": rollouts, "share": rollouts / total}
        rows[key] = row | {"informative": informative, "per_100": 100 * informative / rollouts if rollouts else np.nan}
    whole = dict.fromkeys(("queries", "kept", "rollouts"), int)
    return pd.DataFrame.from_dict(rows, orient="index").astype(whole).rename_axis(name)


def _informative(table: pd.DataFrame, size_Q: np.ndarray) -> np.ndarray:
    """informative_Q: the probability that a group of each size has differing rewards, over each query's posterior."""
    a_Q, b_Q = posterior(table["successes"], int(table["samples"].iloc[0]), *_population(table))
    informative_Q = np.zeros(len(table))
    for size in np.unique(size_Q):
        of = size_Q == size
        informative_Q[of] = expected_informative(a_Q[of], b_Q[of], int(size))
    return informative_Q


def _population(table: pd.DataFrame) -> tuple[float, float]:
    return fitted_population(table["successes"], int(table["samples"].iloc[0]))


def _known(values_Q: np.ndarray) -> pd.Series:
    """Whole numbers, NA where negative."""
    return pd.Series(values_Q, dtype="Int64").mask(values_Q < 0)
