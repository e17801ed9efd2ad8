"""A language model's profile read: how hard its queries are, how sure that is, its cost, sGPO's plan for it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import beta as beta_distribution

from repro.engine.profile import Profile
from repro.experiments.arm.query_plan import plan_summary, plan_table, predicted
from repro.experiments.profile.describe import fitted_population
from repro.files import read_parquet, write_parquet
from repro.methods.group_sizes.posterior import misfiled, posterior
from repro.tasks.queries import Query
from repro.theory.group_size.plans import Population, compare

MADE_BY = "dvc repro profile_language_model"
CONFIDENCE = 0.95
DIFFICULTIES = {"never solved": 0.0, "seldom": 0.1, "half the time": 0.5, "mostly": 0.9, "always": 1.0}
NOTHING = "No query was solved sometimes but not always: nothing to learn from, so there is no plan to compare."
SHOWN = ("uniform", "filter", "allocation", "sgpo", "shrunken", "equal", "best")  # of the theory's plans


@dataclass(frozen=True, eq=False)
class Study:
    """What stage profile_language_model left; `profile` and `samples` are None where there was no model."""

    facts: dict[str, Any]
    queries: pd.DataFrame
    seconds: dict[str, float]
    profile: Profile | None = None
    samples: pd.DataFrame | None = None

    @property
    def found(self) -> bool:
        """Whether there was a model to profile."""
        return self.profile is not None

    @property
    def teaches(self) -> bool:
        """Whether any query was solved sometimes but not always; without one, no plan is better than another."""
        return self.found and bool(((self.profile.rate_Q > 0) & (self.profile.rate_Q < 1)).any())


def load(results: Path, timings: Path) -> Study:
    """From the folders that repro.experiments.language_model.profile's `Measured.save` filled."""
    if not (Path(results) / "model.json").exists():
        raise FileNotFoundError(f"{Path(results) / 'model.json'} is not there yet: run `{MADE_BY}` first")
    facts = json.loads((Path(results) / "model.json").read_text())
    seconds = json.loads((Path(timings) / "seconds.json").read_text())
    queries = read_parquet(Path(results) / "queries.parquet", MADE_BY)
    if facts["missing"]:
        return Study(facts, queries, seconds)
    samples = read_parquet(Path(results) / "samples.parquet", MADE_BY)
    return Study(facts, queries, seconds, Profile.load(Path(results), "profile"), samples)


def per_query(study: Study, population: Mapping[str, float], rollouts_per_step: int, seed: int) -> pd.DataFrame:
    """One row per query: `plan_table`'s columns, and mean, low, high: the posterior mean of its success probability and
    the bounds of its central 95%; response_tokens, their mean; prompt_tokens.

    `population`: largest, smallest and unsolvable_share of the plan are taken from it. Prior: a Beta fitted to all
    queries together (an assumption: families differ, but a query is held to the whole pool). Empty without a model.
    """
    if not study.found:
        return pd.DataFrame()
    profile = study.profile
    told = zip(study.queries["question"], study.queries["answer"], study.queries["family"], strict=True)
    queries = [Query(question, answer, family, {}) for question, answer, family in told]
    parameters = {name: population[name] for name in ("smallest", "largest", "unsolvable_share")}
    # No query gets more than the largest group, so these steps hold the first epoch whole.
    steps = 1 + 2 * len(queries) * int(population["largest"]) // rollouts_per_step
    rng = np.random.default_rng(seed)
    table = plan_table(profile, queries, parameters, rollouts_per_step, steps, rng)
    a_Q, b_Q = posterior(profile.successes_Q, profile.samples, *fit(profile))
    tails = (1 - CONFIDENCE) / 2
    return table.assign(
        mean=a_Q / (a_Q + b_Q),
        low=beta_distribution.ppf(tails, a_Q, b_Q),
        high=beta_distribution.ppf(1 - tails, a_Q, b_Q),
        response_tokens=profile.response_tokens_Q_K.mean(1),
        prompt_tokens=profile.prompt_tokens_Q,
    )


def save_plan(table: pd.DataFrame, folder: Path) -> None:
    """plan.parquet: `per_query`'s table."""
    write_parquet(table, Path(folder) / "plan.parquet")


def fit(profile: Profile) -> tuple[float, float]:
    """(α, β) of the population."""
    return fitted_population(profile.successes_Q, profile.samples)


def savings(study: Study, population: Mapping[str, float]) -> pd.DataFrame:
    """The theory's comparison of plans (index) on this model's population, the profile charged: see
    repro.theory.group_size.plans. `population`: that of settings' theory.group_size; its α, β and K are replaced by
    those of this profile."""
    names = ("uniform", "smallest", "largest", "unsolvable_share", "passes", "profile_price")
    alpha, beta = fit(study.profile)
    own = Population(
        alpha=alpha, beta=beta, samples=study.profile.samples, **{name: population[name] for name in names}
    )
    return compare(own).loc[list(SHOWN)]


def conclusion(study: Study, table: pd.DataFrame, population: Mapping[str, float]) -> str:
    """The summary: what the profile says, what it cost, what the plan would save; or what is missing."""
    if not study.found:
        return f"**Not profiled here.** {study.facts['missing']}. Everything else of the study goes without this model."
    profile, classes = study.profile, table["class"].value_counts(normalize=True)
    wrong = misfiled(profile.samples, *fit(profile), population["margin"])
    doubt = wrong["unsolvable_wrongly"] / wrong["unsolvable"] if wrong["unsolvable"] else 0.0
    engine = "vLLM" if study.facts["engine"] == "vllm" else "transformers"
    why = f" ({study.facts['why']})" if study.facts["why"] else ""
    return (
        f"Of {len(table)} queries, {profile.samples} samples each, the model `{study.facts['source']}` never solves "
        f"{classes.get('unsolvable', 0):.0%} and always solves {classes.get('trivial', 0):.0%}; its mean success rate "
        f"is {profile.rate_Q.mean():.3f}. Of the queries never solved, {doubt:.0%} are expected to have a success "
        f"probability above {population['margin']:g} all the same. Sampled with {engine}{why}: "
        f"{profile.response_tokens_Q_K.sum():,} tokens in {study.seconds['sample']:.0f} s. "
        f"{_outlook(study, table, population)}"
    )


def _outlook(study: Study, table: pd.DataFrame, population: Mapping[str, float]) -> str:
    if not study.teaches:
        return NOTHING
    ratio = predicted(table, int(population["uniform"])).loc["plan", "ratio"]
    rate = savings(study, population).loc["sgpo", "saving_rate"]
    verdict = "saves" if rate > 1 else "does not save"
    return (
        f"sGPO's plan is predicted to bring {ratio:.2f} times the informative groups per rollout that uniform groups "
        f"of {population['uniform']} bring; with the profile charged, over {population['passes']:g} passes, uniform "
        f"groups spend {rate:.2f} times as much on an informative group: here the plan **{verdict}**."
    )


def plan_text(study: Study, table: pd.DataFrame, rollouts_per_step: int, uniform: int) -> str:
    """`plan_summary`, or why there is nothing to plan."""
    return plan_summary(table, rollouts_per_step, uniform) if study.teaches else NOTHING


def families_table(table: pd.DataFrame, samples: pd.DataFrame) -> str:
    """Markdown, a row per family: queries, success, share never and always solved, tokens, share truncated."""
    heads = ("queries", "success rate", "never solved", "always solved", "tokens per response", "truncated")
    finished_Q = samples.groupby("query")["finished"].mean().to_numpy()
    table = table.assign(truncated=1 - finished_Q)
    lines = ["| family | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    for family, part in [*table.groupby("family", sort=False), ("all", table)]:
        shares = [(part["class"] == name).mean() for name in ("unsolvable", "trivial")]
        cells = [f"{len(part)}", f"{part['rate'].mean():.3f}", *(f"{share:.0%}" for share in shares)]
        cells += [f"{part['response_tokens'].mean():.1f}", f"{part['truncated'].mean():.0%}"]
        lines.append(f"| {family} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def cost_table(study: Study, population: Mapping[str, float]) -> str:
    """Markdown: tokens, seconds and rollouts of the profile."""
    profile, seconds = study.profile, study.seconds
    tokens, rollouts = int(profile.response_tokens_Q_K.sum()), profile.correct_Q_K.size
    rows = {
        "engine, weights": f"{study.facts['engine']}, {study.facts['dtype']}, {study.facts['threads']} threads",
        "responses": f"{rollouts:,}",
        "response tokens": f"{tokens:,}",
        "prompt tokens, each prompt once": f"{profile.prompt_tokens_Q.sum():,}",
        "seconds to load or convert the model": f"{seconds['load']:.1f}",
        "seconds to start the engine": f"{seconds['start']:.1f}",
        "seconds to sample": f"{seconds['sample']:.1f}",
        "response tokens per second": f"{tokens / max(seconds['sample'], 1e-9):.0f}",
        f"passes over the queries with groups of {population['uniform']} that the responses would fill": (
            f"{profile.samples / population['uniform']:.1f}"
        ),
    }
    return "\n".join(["| | |", "|---|---:|", *(f"| {name} | {value} |" for name, value in rows.items())]) + "\n"


def savings_table(study: Study, population: Mapping[str, float]) -> str:
    """`savings` as Markdown, or why there are none."""
    if not study.teaches:
        return NOTHING
    heads = {
        "rollouts": "rollouts per query",
        "profile": "+ profile",
        "informative": "informative groups per query",
        "saving_pass": "saved per pass",
        "saving_rate": "saved per informative group",
        "saving_coverage": "saved, same groups and queries",
    }
    lines = ["| plan | " + " | ".join(heads.values()) + " |", "|---|" + "---:|" * len(heads)]
    for _, row in savings(study, population).iterrows():
        cells = [f"{row[name]:.2f}" + ("×" if name.startswith("saving") else "") for name in heads]
        lines.append(f"| {row['title']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def examples(study: Study, table: pd.DataFrame, families: Sequence[str] | None = None, width: int = 110) -> str:
    """Plain text: for each family, the query nearest to each of DIFFICULTIES with a right and a wrong response.

    A query is shown once; a difficulty that no query of the family is near (0.2) is passed over.
    """
    lines = []
    for family in families or dict.fromkeys(table["family"]):
        part, shown = table[table["family"] == family], set()
        for word, rate in DIFFICULTIES.items():
            exact = rate in (0.0, 1.0)
            near = part[(part["rate"] == rate) if exact else ((part["rate"] - rate).abs() <= 0.2)]
            near = near[exact | ~near["rate"].isin([0.0, 1.0]) & ~near["query"].isin(shown)]
            if near.empty:
                continue
            row = near.loc[(near["rate"] - rate).abs().idxmin()]
            shown.add(row["query"])
            answer = study.queries["answer"][row["query"]].splitlines()[-1].removeprefix("#### ")
            lines.append(f"{family}, {word} ({row['successes']} of {row['samples']}): {row['prompt']}   [{answer}]")
            own = study.samples[study.samples["query"] == row["query"]]
            for kind, chosen in (("right", own[own["correct"]]), ("wrong", own[~own["correct"]])):
                lines += [f"    {kind}: {_short(text, width)}" for text in chosen["response"].head(1)]
    return "\n".join(lines)


def _short(text: str, width: int) -> str:
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"
