"""Kills of `python -m repro.atlas run`: the command or a worker, on a design of four runs in a copy."""

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from benchmarks.fault_project import SMALL, Project, struck
from benchmarks.fault_runs import tiny_policy
from benchmarks.faults import Fault, Settled

SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
KILLS = 3
SHARDS = ("1/2", "2/2")
DESIGN = {
    "settings": {"fidelity": {"arms": []}, "drift": {"arms": []}},
    "policies": {"tiny": {}},
    "groups": {},
    "panels": {
        "one": {
            "question": "Is anything lost?",
            "arms": ["grpo", "cost-aware"],
            "policies": ["tiny"],
            "seeds": [0, 1],
        }
    },
}
TABLES = ("curves", "steps", "questions", "batches")


def kills(seed: int, folder: Path, done: int) -> Iterator[Callable[[], list[Fault]]]:
    """Without end, after `done` rows: kills at random moments of a shard, then its end, compared with its first run."""
    rng, known = np.random.default_rng([seed, 3, done]), {}
    for number in count(done):
        yield lambda number=number: _one(rng, SHARDS[number % len(SHARDS)], new_project(folder / "a project"), known)


def new_project(folder: Path) -> Project:
    project = Project(folder)
    design = folder / "atlas" / "design.yaml"
    if not design.exists():
        design.parent.mkdir(exist_ok=True)
        design.write_text(yaml.safe_dump(DESIGN))
        tiny_policy(folder / "atlas" / "policies" / "tiny")
    return project


def rows(project: Project) -> dict[str, pd.DataFrame]:
    """The shards' tables in one order: what is made first depends on what was made before the kill."""
    found = {}
    for table in TABLES:
        files = sorted((project.folder / "atlas" / "data" / "one").glob(f"{table}-*.parquet"))
        frames = [pd.read_parquet(path) for path in files]
        if frames:
            whole = pd.concat(frames)
            found[table] = whole.sort_values(["run"], kind="stable").reset_index(drop=True)
    return found


def _equal(found: dict[str, pd.DataFrame], tables: dict[str, pd.DataFrame]) -> bool:
    return set(found) == set(tables) == set(TABLES) and all(found[name].equals(tables[name]) for name in TABLES)


def _one(rng: np.random.Generator, shard: str, project: Project, known: dict) -> list[Fault]:
    command = ("python", "-m", "repro.atlas", "run", "--shard", shard)
    if shard not in known:
        project.remove("atlas/data", "build")
        began = time.monotonic()
        project.done(*command)
        known[shard] = (rows(project), time.monotonic() - began)
    tables, seconds = known[shard]
    project.remove("atlas/data", "build")
    found = []
    for _ in range(KILLS):
        role, name = str(rng.choice(["worker", "first", "first", "all"])), str(rng.choice(SIGNALS))
        moment = float(rng.uniform(0.2, 1.0)) * seconds
        under_way, most = project.command(*command), SMALL["engine"]["checkpoint_every"]
        found.append(struck(project, under_way, "atlas", f"shard {shard}", role, name, moment, most))
        if found[-1] is None or not found[-1].ended:
            break
    last = project.command(*command)
    same = last.wait() == 0 and _equal(rows(project), tables)
    known[shard] = (tables, time.monotonic() - last.began)
    return [each.settled(Settled(same=same)) for each in found if each is not None]
