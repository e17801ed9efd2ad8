"""Kills of a pipeline: dvc, its stage, the kernel, the pool and its workers, at random moments of a stage."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks.fault_project import SMALL, Project, struck
from benchmarks.faults import Fault, Settled

SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
KNOWN = "known.json"  # of the undisturbed stages, in the copy
KILLS = 3  # of one stage, before it may end
EVERY = SMALL["engine"]["checkpoint_every"]
STAGES = {  # those that are killed: what they write, and which processes they have
    "train@grpo": (["results/train/grpo"], ["worker", "pool", "kernel", "stage", "first", "all"]),
    "policy": (["results/policy"], ["kernel", "stage", "first", "all"]),
    "profile": (
        ["results/profile", "results/profile_temperature"],
        ["worker", "pool", "kernel", "stage", "first", "all"],
    ),
    "report@grpo": ([], ["kernel", "stage", "first", "all"]),
}
MADE = {"manifest": ["build/manifests"], **{stage: folders for stage, (folders, _) in STAGES.items()}}
ORDER = ("train@grpo", "policy", "train@grpo", "profile", "train@grpo", "report@grpo")
WHOLE = ("manifest", "policy", "profile", "train@grpo", "report@grpo")


def repro(stage: str) -> tuple[str, ...]:
    return "dvc", "repro", "--single-item", "--force", stage  # DVC would take what is removed from its cache


def kills(seed: int, folder: Path, done: int) -> Iterator[Callable[[], list[Fault]]]:
    """Without end, after `done` rows: kills at random moments of a stage, then its end, compared with its first run."""
    rng, known = np.random.default_rng([seed, 2, done]), {}
    for number in count(done):
        yield lambda number=number: _one(rng, ORDER[number % len(ORDER)], Project(folder / "a project"), known)


def made(project: Project, known: dict, stages: Sequence[str] = WHOLE) -> None:
    """Run stages once, undisturbed: {stage: (hashes, seconds)}; a later call in the same folder finds them."""
    file = project.folder / KNOWN
    if file.exists():
        known |= json.loads(file.read_text())
    else:
        project.remove("results", "timings", "reports", "build", "dvc.lock")
    for stage in stages:
        if stage in known:
            continue
        began = time.monotonic()
        project.done(*repro(stage))
        known[stage] = (project.hashes(*MADE[stage]), time.monotonic() - began)
        file.write_text(json.dumps(known))


def _one(rng: np.random.Generator, stage: str, project: Project, known: dict) -> list[Fault]:
    if not known:
        made(project, known)
    folders, roles = STAGES[stage]
    hashes, seconds = known[stage]
    report = f"reports/arm-{stage.partition('@')[2]}.html"
    project.remove(*folders, *([report] if not folders else []))
    found = []
    for _ in range(KILLS):
        role, name = str(rng.choice(roles)), str(rng.choice(SIGNALS))
        moment = float(rng.uniform(0.0, seconds))
        command, what = project.command(*repro(stage)), f"dvc repro {stage}"
        found.append(struck(project, command, "stage", what, role, name, moment, EVERY))
        if found[-1] is None or not found[-1].ended:  # the pipeline went on without what was killed
            break
    last = project.command(*repro(stage))
    same = last.wait() == 0 and project.hashes(*folders) == hashes
    known[stage] = (hashes, time.monotonic() - last.began)  # the machine may be less busy than it was
    (project.folder / KNOWN).write_text(json.dumps(known))
    if not folders:
        same = same and (project.folder / report).exists()
    return [each.settled(Settled(same=same)) for each in found if each is not None]
