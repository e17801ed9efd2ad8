"""From an arm's name to verl's inputs: files in a folder, and the configuration that refers to them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from repro.arms import build
from repro.engine.run import Run, profile_for
from repro.engine.train import stream_seed
from repro.files import write_json, write_parquet, write_text
from repro.methods.method import Method
from repro.methods.plans import Queries
from repro.policy.model import load_policy
from repro.settings import Settings
from repro.tasks.queries import Query, make_pools
from repro.tasks.tokenizer import encode
from repro.verl.config import TEXT_AGENT, Files, compose, cpu_values
from repro.verl.data import plan_table, planned_groups, query_rows
from repro.verl.identity import identified, profiled
from repro.verl.run import PROFILE, SETTINGS, check_arm


def prepare(
    arm: str,
    seed: int,
    settings: Settings,
    policy: Path,
    folder: Path,
    *,
    ranks: int = 1,
    profiles: Path | None = None,
    overrides: Sequence[str] = (),
) -> Any:
    """verl's configuration for one run of `arm` on this machine's CPU; writes its data to `folder`.

    `ranks`: data-parallel processes. `profiles`: the folder of stage `profile`'s profiles, for an arm with one; None
    measures one here, as in the embedded engine. `overrides`: verl's own keys, "key=value", applied last.
    """
    method = build(arm, settings.arm(arm))
    check_arm(arm, method)
    files = Files(
        policy=Path(policy).resolve(),
        train=folder / "train.parquet",
        evaluation=folder / "evaluation.parquet",
        agents=folder / "agents.json",
        settings=folder / SETTINGS,
        checkpoints=folder / "checkpoints",
        output=folder / "tables",
        profile=folder / "profile" if settings.arm(arm).profile else None,
        queries=folder / "queries.parquet" if method.profile_again else None,
    )
    pools = make_pools(settings.task, pretraining=False)
    model, tokenizer = load_policy(policy)
    prompts = encode(tokenizer, [query.prompt for query in [*pools.train, *pools.evaluation]])
    known = Queries(np.array([len(prompt) for prompt in prompts[: len(pools.train)]]))
    if files.profile:
        run = Run(arm, seed, method, settings, Path(policy), None, folder, "", profiles)
        profile, _ = profile_for(run, model, tokenizer, pools.train)
        profile.save(files.profile, PROFILE)
        known = profile.known()
    groups = write_plan(method, settings, arm, seed, known, pools.train, files.train)
    write_rows(pools.evaluation, files.evaluation)
    if files.queries:
        write_rows(pools.train, files.queries)
    write_json([TEXT_AGENT], files.agents)
    longest = max(map(len, prompts))
    values = cpu_values(settings, arm, seed, method, files, longest_prompt=longest, groups=groups, ranks=ranks)
    config = compose(values, overrides)
    identified(config, (query_rows(pools.train), query_rows(pools.evaluation)), files.policy)
    profiled(config, files.profile, settings.arm(arm).profile)
    write_text(settings.model_dump_json(indent=2) + "\n", files.settings)  # last: it marks the folder as a run
    return config


def write_plan(
    method: Method, settings: Settings, arm: str, seed: int, known: Queries, queries: Sequence[Query], path: Path
) -> int:
    """Write the plan that the embedded engine would make with this seed as verl's training data, and return the number
    of groups in a typical step."""
    engine = settings.engine_of(arm)
    rng = np.random.default_rng(stream_seed(seed, 0, "plan"))
    plan = method.made_plan(0, known, engine.rollouts_per_step, rng)
    rounds = engine.refill_rounds if method.filter is not None else 1
    groups = planned_groups(plan, settings.steps_of(arm), engine.rollouts_per_step, rounds)
    write_parquet(plan_table(query_rows(queries), groups), path)
    mean = float(np.mean([group.size for group in groups]))
    return max(1, round(engine.rollouts_per_step / mean))


def write_rows(queries: Sequence[Query], path: Path) -> None:
    """Write queries without group sizes; the number of samples is set when they are sampled."""
    import pandas as pd

    write_parquet(pd.DataFrame(query_rows(queries)), path)
