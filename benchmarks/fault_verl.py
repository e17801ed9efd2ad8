"""Kills of `python -m repro.verl`: the command, or a process of Ray, during a training of three steps on a CPU."""

import importlib.util
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.fault_project import Project, struck
from benchmarks.fault_runs import tiny_policy
from benchmarks.faults import Fault, Settled

SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
STEPS, EVERY = 3, 1
TABLES = ("steps", "evaluations", "selection")


def kills(seed: int, folder: Path, done: int) -> Iterator[Callable[[], list[Fault]]]:
    """Without end, after `done` rows: a kill at a random moment, then the run's end, compared with its first run."""
    if importlib.util.find_spec("verl") is None:
        return
    rng, known = np.random.default_rng([seed, 4, done]), {}
    for _ in count():
        yield lambda: _one(rng, Project(folder / "a project"), known)


def _one(rng: np.random.Generator, project: Project, known: dict) -> list[Fault]:
    policy = tiny_policy(project.folder / "policy")
    command = ("python", "-m", "repro.verl", "--arm", "grpo", "--scale", "smoke", "--steps", str(STEPS), "--resume")
    command += ("--policy", str(policy), f"trainer.save_freq={EVERY}")
    if not known:
        began = time.monotonic()
        project.done(*command)
        known["seconds"], known["rows"] = time.monotonic() - began, rows(project)
    project.remove("build/verl")
    role, name = str(rng.choice(["first", "ray", "all"])), str(rng.choice(SIGNALS))
    moment = float(rng.uniform(0.1, 1.0)) * known["seconds"]
    fault = struck(project, project.command(*command), "verl", "grpo", role, name, moment, EVERY)
    last = project.command(*command)
    status, found = last.wait(), rows(project)
    same = status == 0 and set(found) == set(known["rows"])
    same = same and all(found[table].equals(known["rows"][table]) for table in found)
    return [fault.settled(Settled(same=same))] if fault is not None else []


def rows(project: Project) -> dict[str, pd.DataFrame]:
    files = {table: project.folder / "build/verl/grpo" / f"{table}.parquet" for table in TABLES}
    return {table: pd.read_parquet(path) for table, path in files.items() if path.exists()}
