"""A language model's profile, query by query: posterior and cost; examples; the savings that theory predicts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import beta as beta_distribution

from repro import paths
from repro.engine.query_plan import plan_table
from repro.files import read_parquet
from repro.methods.group_sizes.posterior import posterior
from repro.methods.sgpo_rule import fitted_population
from repro.protocol.profile import Profile
from repro.settings import SettingsError
from repro.settings.studies import LanguageModel
from repro.stored import Amount, Size, read_stored
from repro.tasks.queries import Query
from repro.theory.group_size import Population, compare

FOLDER = paths.RUNS / "language_model"  # profiled once, and kept in git
CURE = "git checkout runs/language_model"
FACTS = {
    "model": {"source": str, "engine": str, "dtype": str, "threads": Size},
    "seconds": {"load": Amount, "start": Amount, "sample": Amount},
}
CONFIDENCE = 0.95
DIFFICULTIES = {"never solved": 0.0, "seldom": 0.1, "half the time": 0.5, "mostly": 0.9, "always": 1.0}
PLANS = ("uniform", "filter", "allocation", "bayes", "sgpo", "shrunken", "equal", "best")  # of the theory's


@dataclass(frozen=True, eq=False)
class Study:
    """A profile of a language model, as `Measured.save` of repro.experiments.language_model.profile keeps it."""

    facts: dict[str, Any]
    queries: pd.DataFrame
    seconds: dict[str, float]
    profile: Profile
    samples: pd.DataFrame

    @property
    def learnable(self) -> bool:
        """Whether any query was solved sometimes but not always; without one, no plan is better than another."""
        return bool(((self.profile.rate_Q > 0) & (self.profile.rate_Q < 1)).any())

    @property
    def population(self) -> tuple[float, float]:
        """(α, β) of a Beta distribution of p, fitted to all queries together."""
        return fitted_population(self.profile.successes_Q, self.profile.samples)


def load(asked: LanguageModel, folder: Path = FOLDER) -> Study:
    """The profile in `folder`; SettingsError where it was made with other settings than `asked`."""
    stored = read_stored(folder / "settings.json", f"`{CURE}`", LanguageModel)
    for key, value in asked.model_dump(mode="json").items():
        if stored[key] != value:
            raise SettingsError(
                f"params.yaml: language_model.{key} is not what {folder} was profiled with: set it back to "
                f"{json.dumps(stored[key])}, or profile again with `make language-model`"
            )
    facts, seconds = (read_stored(folder / f"{name}.json", f"`{CURE}`", kinds) for name, kinds in FACTS.items())
    queries, samples = (read_parquet(folder / f"{name}.parquet", CURE) for name in ("queries", "samples"))
    return Study(facts, queries, seconds, Profile.load(folder, "profile"), samples)


def per_query(study: Study, rules: Mapping[str, float], rollouts_per_step: int, seed: int) -> pd.DataFrame:
    """One row per query: `plan_table`'s columns, and mean, low, high: the posterior mean of its success probability and
    the bounds of its central 95%; response_tokens, their mean; prompt_tokens.

    `rules`: settings' theory.group_size, which has the plan's largest, smallest and unsolvable_share. The prior is one
    Beta for all queries (an assumption: families differ).
    """
    profile = study.profile
    columns = (study.queries[name] for name in ("question", "answer", "family"))
    queries = [Query(*row, {}) for row in zip(*columns, strict=True)]
    parameters = {name: rules[name] for name in ("smallest", "largest", "unsolvable_share")}
    parameters["allocation"] = "shrunken"  # by the posterior mean, as the study's sGPO
    # No query gets more than the largest group, so these steps contain the whole first epoch.
    steps = 1 + 2 * len(queries) * int(rules["largest"]) // rollouts_per_step
    table = plan_table(profile, queries, parameters, rollouts_per_step, steps, np.random.default_rng(seed))
    a_Q, b_Q = posterior(profile.successes_Q, profile.samples, *study.population)
    tails = (1 - CONFIDENCE) / 2
    return table.assign(
        mean=a_Q / (a_Q + b_Q),
        low=beta_distribution.ppf(tails, a_Q, b_Q),
        high=beta_distribution.ppf(1 - tails, a_Q, b_Q),
        response_tokens=profile.response_tokens_Q_K.mean(1),
        prompt_tokens=profile.prompt_tokens_Q,
    )


def savings(study: Study, rules: Mapping[str, float]) -> pd.DataFrame:
    """Theory's comparison of plans (index) on this model's population, the profile charged: see
    repro.theory.group_size. α, β and K are those of this profile, the rest is from `rules`."""
    names = ("uniform", "smallest", "largest", "unsolvable_share", "passes", "profile_price")
    (alpha, beta), samples = study.population, study.profile.samples
    population = Population(alpha=alpha, beta=beta, samples=samples, **{name: rules[name] for name in names})
    return compare(population).loc[list(PLANS)]


def examples(study: Study, table: pd.DataFrame) -> pd.DataFrame:
    """For each family the query nearest to each of DIFFICULTIES, with the first right and the first wrong response.

    A query is shown once; a difficulty is left out if no query of the family is within 0.2 of it.
    """
    rows, samples = [], study.samples
    for family, part in table.groupby("family", sort=False):
        shown = set()
        for difficulty, rate in DIFFICULTIES.items():
            if rate in (0.0, 1.0):
                near = part[part["rate"] == rate]
            else:
                sometimes = ~part["rate"].isin([0.0, 1.0]) & ~part["query"].isin(shown)
                near = part[((part["rate"] - rate).abs() <= 0.2) & sometimes]
            if near.empty:
                continue
            row = near.loc[(near["rate"] - rate).abs().idxmin()]
            shown.add(row["query"])
            responses = samples[samples["query"] == row["query"]].groupby("correct")["response"].first()
            example = {"family": family, "difficulty": difficulty, "successes": row["successes"]}
            example |= {"question": row["prompt"], "answer": final_line(study.queries["answer"][row["query"]])}
            rows.append(example | {"right": responses.get(True, ""), "wrong": responses.get(False, "")})
    return pd.DataFrame(rows)


def final_line(answer: str) -> str:
    """An answer without its working."""
    return answer.splitlines()[-1].removeprefix("#### ")
