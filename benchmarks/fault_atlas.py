"""Faults of `python -m repro.atlas run` on a design of four runs in a copy: kills of the command or a worker, and cut
tables."""

import re
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from benchmarks.fault_disk import cut
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
RUN = ("python", "-m", "repro.atlas", "run", "--shard")
FILES = {  # name: (table that is cut, whether the runs that it holds are listed as made)
    "cut runs.parquet": ("runs", True),
    "cut curves.parquet": ("curves", False),  # after a kill between two tables
}


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
    command = (*RUN, shard)
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


def cases(folder: Path) -> dict[tuple[str, str], Callable[[], Fault]]:
    """{(target, fault): what makes it}: each table cut."""
    return {("the atlas", name): lambda name=name: cut_table(name, new_project(folder)) for name in FILES}


def cut_table(name: str, project: Project) -> Fault:
    """A table is cut, named by the next call, deleted as it says, and made again."""
    shard, (table, listed) = SHARDS[0], FILES[name]
    data = project.folder / "atlas" / "data" / "one"
    project.remove("atlas/data", "build")
    project.done(*RUN, shard)
    whole, (path,) = rows(project), data.glob(f"{table}-*.parquet")
    if not listed:
        (data / path.name.replace(table, "runs")).unlink()
    cut(path)
    command = project.command(*RUN, shard)
    status, orphans, said = command.wait(), command.left(), command.said
    named = re.search(rf"^repro.atlas: .*{path.name}", said, re.MULTILINE)
    path.unlink()
    same = status != 0 and bool(named) and project.command(*RUN, shard).wait() == 0 and _equal(rows(project), whole)
    return Fault("files", "the atlas", name, "its next call", status != 0, said, orphans).settled(Settled(same=same))
