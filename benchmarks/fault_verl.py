"""Faults of `python -m repro.verl`, a training of three steps on a CPU: kills of the command or of a process of Ray,
and a disk that is full."""

import importlib.util
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.fault_project import Project, struck
from benchmarks.fault_runs import tiny_policy
from benchmarks.faults import Fault, Settled, Unavailable

SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
FULL = "full disk"
ORDER = ("ray", FULL, "first", "all", "ray", "ray")  # what is killed, but for the disk
STEPS, EVERY = 3, 1
TABLES = ("steps", "evaluations", "selection")
PLACE, WHOLE, KNOWN = "build/verl/grpo", "undisturbed", "known.json"


def kills(seed: int, folder: Path, done: int) -> Iterator[Callable[[], list[Fault]]]:
    """Without end, after `done` rows: a fault, a kill at a random moment, then the run's end, compared with one left
    alone."""
    if importlib.util.find_spec("verl") is None:
        return
    rng = np.random.default_rng([seed, 4, done])
    for number in count(done):
        what = ORDER[number % len(ORDER)]
        yield lambda what=what: _one(rng, what, _ready(folder / "a project"))


class Verl(Project):
    """A copy in which the run has been made once, undisturbed."""

    @property
    def words(self) -> tuple[str, ...]:
        policy = tiny_policy(self.folder / "policy")
        words = ("python", "-m", "repro.verl", "--arm", "grpo", "--scale", "smoke", "--steps", str(STEPS), "--resume")
        return (*words, "--policy", str(policy), f"trainer.save_freq={EVERY}")

    def same(self) -> bool:
        """Whether the same command ends well, with the undisturbed run's tables."""
        if self.command(*self.words).wait() != 0:
            return False
        found, whole = rows(self.folder / PLACE), rows(self.folder / WHOLE)
        return set(found) == set(whole) == set(TABLES) and all(found[name].equals(whole[name]) for name in TABLES)


def _ready(folder: Path) -> Verl:
    """The copy, without a run; a later call in the same folder finds the undisturbed one."""
    project = Verl(folder)
    if not (folder / KNOWN).exists():
        project.remove(PLACE, WHOLE)
        began = time.monotonic()
        project.done(*project.words)
        shutil.move(folder / PLACE, folder / WHOLE)
        (folder / KNOWN).write_text(json.dumps({"seconds": time.monotonic() - began}))
    project.remove(PLACE)
    return project


def _one(rng: np.random.Generator, role: str, project: Verl) -> list[Fault]:
    if role == FULL:
        return [_full_disk(rng, project)]
    seconds = json.loads((project.folder / KNOWN).read_text())["seconds"]
    name, moment = str(rng.choice(SIGNALS)), float(rng.uniform(0.1, 1.0)) * seconds
    fault = struck(project, project.command(*project.words), "verl", "grpo", role, name, moment, EVERY)
    return [fault.settled(Settled(same=project.same()))] if fault is not None else []


def _full_disk(rng: np.random.Generator, project: Verl) -> Fault:
    """Room for one checkpoint and a part of the next; then there is more, and the same command is called again."""
    sizes = [path.stat().st_size for path in (project.folder / WHOLE).rglob(f"global_step_{STEPS}/**/*")]
    bytes_free = int(float(rng.uniform(1.1, 1.9)) * sum(sizes))
    with _small_disk(project.folder / PLACE, bytes_free) as made_larger:
        command = project.command(*project.words)
        status, orphans, said = command.wait(), command.left(), command.said
        made_larger()
        same = status != 0 and project.same()
    fault = Fault("verl", "grpo", FULL, f"{bytes_free} bytes", status != 0, said, orphans)
    return fault.settled(Settled(same=same))


@contextmanager
def _small_disk(folder: Path, size: int) -> Iterator[Callable[[], None]]:
    """The folder as a file system of so many bytes; yields what makes it large enough for all."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs"]
    if subprocess.run([*mount, "-o", f"size={size}", "none", folder], capture_output=True).returncode:
        raise Unavailable("nothing can be mounted here")
    try:
        yield lambda: subprocess.run(["mount", "-o", "remount,size=1g", folder], check=True)
    finally:
        subprocess.run(["umount", folder], check=True)


def rows(folder: Path) -> dict[str, pd.DataFrame]:
    files = {table: folder / f"{table}.parquet" for table in TABLES}
    return {table: pd.read_parquet(path) for table, path in files.items() if path.exists()}
