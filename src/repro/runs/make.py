"""Make the runs that the store lacks: what each needs to know before it starts, then all of them in one pool."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from repro import arms, paths
from repro.engine.evaluate import both, examine, likeliest, summary
from repro.engine.groups import sample_groups
from repro.engine.progress import Watch
from repro.engine.run import Run
from repro.engine.runs import checkpoints_of, train_runs
from repro.experiments.profile.measure import list_jobs, measure_all, save
from repro.files import Unreadable, write_json
from repro.machine import commit, packages, processor
from repro.policy.adapters import load_learner
from repro.protocol.profile import Profile, ProfileError, Source, hash_policy, hash_queries
from repro.runs import golden, store
from repro.runs.key import Asked, digest
from repro.runs.store import ANY, Found, Need
from repro.settings import Settings
from repro.stored import Amount, Share, Size, read_stored
from repro.tasks.queries import QueryPools, make_pools

START = {"samples": Size, "accuracy": Share, "response_tokens": Amount, "truncated": Share}  # of the base policy


def made_ready(
    asked: Sequence[Asked], need: Need = ANY, say: Callable[[str], Any] = print, watch: Watch | None = None
) -> Found:
    """Where all of the runs are: what the store lacks is made, and stays there. A later call goes on where this one was
    cut off; several processes may ask for the same runs at once."""
    found = store.find(asked, need, say)
    while found.absent:
        make(found.absent, say, watch)
        found = store.find(asked, need, say)
    return found


def make(asked: Sequence[Asked], say: Callable[[str], Any] = print, watch: Watch | None = None) -> None:
    """Train these runs into this machine's layer, `engine.workers` at a time."""
    runs = _runs(asked, say)
    for run in runs:
        checkpoints_of(run).reopen()  # one that has ended lacks what is needed of it now
    train_runs(runs, say, watch)


def _runs(asked: Sequence[Asked], say: Callable[[str], Any]) -> list[Run]:
    made = {**commit(), "torch": packages(["torch"])["torch"]}
    made["date"] = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    runs: dict[Asked, Run] = {}
    names = dict(zip(asked, golden.computes(asked, say), strict=True))
    for group in _alike(asked):
        settings, policy, cpu = group[0].settings, group[0].policy, processor(group[0].settings.engine.device)
        arms.check(settings, dict.fromkeys(one.arm for one in group))
        start = start_of(settings, policy)
        profiled = sorted({one.seed for one in group if settings.arm(one.arm).profile})
        profiles = profiles_of(settings, policy, profiled) if profiled else None
        for one in group:
            kept, entry = store.checkpoints_for(one, names[one]), settings.arm(one.arm)
            known = {"asks": one.asks, "computes": names[one], "cpu": cpu, **made}
            profile = (profiles, profile_seconds()) if entry.profile else (None, 0.0)
            method = arms.build(one.arm, entry)
            place = (kept.folder, kept.fingerprint)
            runs[one] = Run(one.arm, one.seed, method, settings, policy, start, *place, *profile, known)
    return [runs[one] for one in asked]


def _alike(asked: Sequence[Asked]) -> list[list[Asked]]:
    """Those with the same settings and base policy together."""
    groups: dict[tuple, list[Asked]] = {}
    for one in asked:
        groups.setdefault((id(one.settings), one.policy), []).append(one)
    return list(groups.values())


def start_of(settings: Settings, policy: Path) -> dict[str, float] | None:
    """The base policy's evaluation on the held-out queries, as stage `policy` makes it; measured once. None if
    evaluations use another temperature."""
    described, engine = settings.policy, settings.engine
    if settings.evaluation.temperature != engine.temperature:
        return None
    asked = [["greedy"]] if settings.evaluation.greedy else []
    how = [described.describe_groups, described.group_size, described.seed, described.threads]
    path = paths.SCRATCH / f"start-{digest(how, *_sampled(settings, policy), *asked)}.json"
    if not path.exists():
        torch.set_num_threads(described.threads)
        model, tokenizer = load_learner(policy, engine)
        pools = make_pools(settings.task, pretraining=False)
        groups = sample_groups(
            model,
            tokenizer,
            pools.evaluation,
            groups=described.describe_groups,
            group_size=described.group_size,
            max_new_tokens=engine.max_new_tokens,
            temperature=engine.temperature,
            seed=described.seed,
        )
        write_json(start_evaluation(groups) | _more(settings, model, tokenizer, pools), path)
    return start_in(path)


def _more(settings: Settings, model: Any, tokenizer: Any, pools: QueryPools) -> dict[str, float]:
    """greedy, and harder and harder_greedy, of the base policy, where evaluations have them."""
    described, found = settings.policy, {}
    how = {"engine": settings.engine, "evaluation": settings.evaluation, "seed": described.seed}
    if settings.evaluation.greedy:
        found["greedy"] = float(likeliest(model, tokenizer, pools.evaluation, **how).mean())
    if not pools.harder:
        return found
    samples = described.describe_groups * described.group_size
    return both(found, summary(examine(model, tokenizer, pools.harder, samples=samples, **how), samples))


def start_in(path: Path) -> dict[str, float]:
    """What `start_of` has stored."""
    return read_stored(path, "delete it, and it is measured again", START)


def start_evaluation(groups: Any) -> dict[str, float]:
    """The base policy's accuracy from its groups on the held-out queries (repro.engine.groups.sample_groups): a single
    measurement with many samples for all arms and seeds."""
    if groups.empty:
        raise Unreadable("the base policy's groups are empty: delete results/policy and run `dvc repro policy`")
    return {
        "samples": len(groups) // groups["query"].nunique(),
        "accuracy": float(groups["correct"].mean()),
        "response_tokens": float(groups["response_tokens"].mean()),
        "truncated": float((~groups["finished"]).mean()),
    }


def profiles_of(settings: Settings, policy: Path, seeds: Sequence[int]) -> Path:
    """The folder of the profiles of `seeds`: that of stage `profile` where they are of this policy and these queries,
    else one of the store's own, measured where missing as the stage does."""
    queries = make_pools(settings.task, pretraining=False).train
    if _are_those_of_the_stage(settings, policy, queries, seeds):
        return paths.PROFILE
    study = [settings.profile.samples, settings.evaluation.batch_rollouts]
    folder = paths.SCRATCH / f"profiles-{digest(study, *_sampled(settings, policy))}"
    if wanted := [seed for seed in seeds if not (folder / f"seed-{seed}.parquet").exists()]:
        alone = settings.model_copy(update={"seeds": wanted})
        jobs = list_jobs(alone, policy, queries)
        profiles, _ = measure_all(jobs, settings.engine.workers)
        save(folder, policy, profiles)
    return folder


def _are_those_of_the_stage(settings: Settings, policy: Path, queries: Any, seeds: Sequence[int]) -> bool:
    engine = settings.engine
    for seed in seeds:
        source = Source(hash_policy(policy), hash_queries(queries), engine.temperature, engine.max_new_tokens, seed)
        try:
            profile = Profile.load(paths.PROFILE, f"seed-{seed}").check(source)
        except (ProfileError, OSError, ValueError):
            return False
        if profile.source != source or profile.samples != settings.profile.samples:
            return False
    return True


def profile_seconds(timings: Path | None = None) -> float:
    """Seconds for one sample of every training query in stage `profile`, mean over seeds; 0 if unknown."""
    path, name = (timings or paths.PROFILE_TIMINGS) / "seconds.json", "seconds_per_sample"
    if not path.exists():
        return 0.0
    return float(read_stored(path, "delete it and run `dvc repro profile`", {name: Amount})[name])


def _sampled(settings: Settings, policy: Path) -> list:
    """What samples of the base policy depend on."""
    engine = settings.engine
    return [hash_policy(policy), settings.task.model_dump(mode="json"), engine.temperature, engine.max_new_tokens]
