"""sGPO's plan for a profile, to be read: what becomes of every query, where the rollouts go, what they can teach."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from repro.engine.profile import Profile, ProfileError
from repro.methods.group_sizes.allocation import allocate_profile
from repro.methods.group_sizes.posterior import expected_informative, fitted_population, posterior
from repro.methods.plans import PlanStream
from repro.methods.plans.sgpo import sgpo
from repro.methods.sgpo_rule import CLASSES, classes
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
    (0 where these steps train it never); kept, whether it is in the first epoch; place, where in that epoch, from 0;
    step, from 0, in which it is first trained; visits, groups of it in all these steps. place and step are missing (NA)
    where there is none; the first epoch is told whole, so that a kept query that `steps` do not reach has a group_size
    too. ProfileError where the profile is not of as many queries.
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
    """Of each of CLASSES and `all` (index), in the first epoch: see `_account`."""
    parts = {name: table[table["class"] == name] for name in CLASSES}
    return _account(table, parts | {"all": table}, "class")


def by_size(table: pd.DataFrame) -> pd.DataFrame:
    """Of each group size in the first epoch (index, rollouts): see `_account`; `queries` are those kept."""
    kept = table[table["kept"]]
    return _account(table, {int(size): part for size, part in kept.groupby("group_size")}, "group size")


def predicted(table: pd.DataFrame, uniform: int) -> pd.DataFrame:
    """The first epoch against others, before any training (index: plan): groups, rollouts, informative (groups whose
    rewards can be expected to differ, by the posterior of every query), per_rollout, and ratio, per_rollout over that
    of uniform groups.

    uniform: all queries, `uniform` rollouts each. best: the most informative groups that the plan's rollouts can bring
    from these queries, whatever a filter says, with group sizes from 2 to the plan's largest.
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
        found = float(_informative(table, size_Q).sum())
        rows[name] = {"groups": int((size_Q > 0).sum()), "rollouts": int(size_Q.sum()), "informative": found}
    found = pd.DataFrame.from_dict(rows, orient="index").astype({"groups": int, "rollouts": int}).rename_axis("plan")
    found["per_rollout"] = found["informative"] / found["rollouts"]
    found["ratio"] = found["per_rollout"] / found.loc["uniform", "per_rollout"]
    return found


def steps_of_epoch(table: pd.DataFrame, rollouts_per_step: int) -> pd.DataFrame:
    """The steps (index) that the first epoch takes, as far as `plan_table` ran: groups, rollouts, fill (share of the
    budget), rate (mean p̂ of its groups), unsolvable (share of its rollouts). The last may go on with the next epoch,
    which is not counted."""
    kept = table[table["kept"] & table["step"].notna()].astype({"step": int})
    kept = kept.assign(unsolvable=kept["group_size"].where(kept["class"] == "unsolvable", 0))
    of_step = kept.groupby("step")
    found = pd.DataFrame({"groups": of_step.size(), "rollouts": of_step["group_size"].sum()})
    found["fill"] = found["rollouts"] / rollouts_per_step
    found["rate"] = of_step["rate"].mean()
    found["unsolvable"] = of_step["unsolvable"].sum() / found["rollouts"]
    return found


def plan_summary(table: pd.DataFrame, rollouts_per_step: int, uniform: int) -> str:
    """Markdown: who is kept, where an epoch's rollouts go, how its steps fill, and what it can bring against groups of
    `uniform` rollouts for all."""
    steps, outlook = steps_of_epoch(table, rollouts_per_step), predicted(table, uniform)
    classes, kept = by_class(table), table[table["kept"]]
    K, whole = int(table["samples"].iloc[0]), steps[:-1]  # the last step belongs to the next epoch too
    reached = kept["step"].notna()
    length = f"{len(steps)}" if reached.all() else f"more than {len(steps)}"
    filled = f", filled to {whole['fill'].mean():.1%} on average" if len(whole) else ""
    alone, unsolvable = int((steps["unsolvable"] == 1).sum()), classes.loc["unsolvable"]
    groups, (alpha, beta) = unsolvable["kept"] / len(kept), _population(table)
    lines = [
        f"An epoch trains {len(kept)} of {len(table)} queries with {kept['group_size'].sum()} rollouts; steps of "
        f"{rollouts_per_step} rollouts that it takes: {length}{filled}. Unsolvable queries are {groups:.0%} of its "
        f"groups and {unsolvable['share']:.0%} of its rollouts; steps that hold nothing else: {alone}. The profile "
        f"took {K * len(table)} rollouts, as many as {K * len(table) / rollouts_per_step:.1f} steps.",
        "",
        f"Expected with p ~ Beta({alpha:.2f}, {beta:.2f}), fitted to the profile, and the policy that was profiled: "
        f"{100 * outlook.loc['plan', 'per_rollout']:.2f} informative groups per 100 rollouts against "
        f"{100 * outlook.loc['uniform', 'per_rollout']:.2f} with {uniform} for every query, "
        f"**{outlook.loc['plan', 'ratio']:.2f}×**, profile not charged; the best division of the same rollouts among "
        f"all queries brings {100 * outlook.loc['best', 'per_rollout']:.2f}.",
        "",
        _markdown(classes),
        "",
        _markdown(by_size(table)),
    ]
    return "\n".join(lines) + "\n"


def _account(table: pd.DataFrame, parts: Mapping[Any, pd.DataFrame], name: str) -> pd.DataFrame:
    """queries; kept, those in the first epoch; rollouts they get and their share of all; informative, groups expected
    to have signal; per_100, the same for 100 rollouts (NaN where there are none)."""
    total = table.loc[table["kept"], "group_size"].sum()
    found_Q = pd.Series(_informative(table, np.where(table["kept"], table["group_size"], 0)), index=table.index)
    rows = {}
    for key, part in parts.items():
        kept = part[part["kept"]]
        rollouts, found = int(kept["group_size"].sum()), float(found_Q[kept.index].sum())
        row = {"queries": len(part), "kept": len(kept), "rollouts": rollouts, "share": rollouts / total}
        rows[key] = row | {"informative": found, "per_100": 100 * found / rollouts if rollouts else np.nan}
    whole = dict.fromkeys(("queries", "kept", "rollouts"), int)
    return pd.DataFrame.from_dict(rows, orient="index").astype(whole).rename_axis(name)


def _informative(table: pd.DataFrame, size_Q: np.ndarray) -> np.ndarray:
    """informative_Q: the probability that a group of each size has differing rewards, over each query's posterior."""
    a_Q, b_Q = posterior(table["successes"], int(table["samples"].iloc[0]), *_population(table))
    found_Q = np.zeros(len(table))
    for size in np.unique(size_Q):
        of = size_Q == size
        found_Q[of] = expected_informative(a_Q[of], b_Q[of], int(size))
    return found_Q


def _population(table: pd.DataFrame) -> tuple[float, float]:
    return fitted_population(table["successes"], int(table["samples"].iloc[0]))


def _known(values_Q: np.ndarray) -> pd.Series:
    """Whole numbers, NA where negative."""
    return pd.Series(values_Q, dtype="Int64").mask(values_Q < 0)


def _markdown(account: pd.DataFrame) -> str:
    heads = ("queries", "in the epoch", "rollouts", "share", "informative groups", "per 100 rollouts")
    lines = [f"| {account.index.name} | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    for key, row in account.iterrows():
        counts = [str(int(row[column])) for column in ("queries", "kept", "rollouts")]
        per = "–" if np.isnan(row["per_100"]) else f"{row['per_100']:.1f}"
        cells = [*counts, f"{row['share']:.0%}", f"{row['informative']:.1f}", per]
        lines.append(f"| {key} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
