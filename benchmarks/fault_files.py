"""Faults of the disk and around it: a run's checkpoints here, then a pipeline's files and the atlas's."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks import fault_atlas, fault_pipelines, fault_runs
from benchmarks.fault_disk import PLACES, cut, later
from benchmarks.fault_project import Project
from benchmarks.fault_runs import Process, alone, bits, tiny_run, warm_up
from benchmarks.faults import Fault, Settled, kept


def kills(seed: int, folder: Path, done: int) -> Iterator[Callable[[], list[Fault]]]:
    """Each case once a call, first those that have the fewest rows: of a pipeline, an atlas, a tiny run."""
    warm_up(folder)
    target = "a run's checkpoint"
    cases = fault_pipelines.cases(Project(folder / "a project", one=True), {})
    cases |= fault_atlas.cases(folder / "an atlas")
    cases |= {(target, name): partial(file_of_a_run, name, what, folder) for name, what in RUN_FILES.items()}
    cases |= {(target, name): partial(folder_of_a_run, name, place, folder) for name, place in PLACES.items()}
    rows = Counter((row["target"], row["fault"]) for row in kept())
    for case in sorted(cases, key=lambda case: rows[case]):
        yield lambda case=case: [cases[case]()]


RUN_FILES = {  # name: (file, damage, whether the run goes on by itself)
    "cut state.pt": ("state.pt", cut, False),
    "empty state.pt": ("state.pt", partial(cut, share=0.0), False),
    "other bytes in state.pt": ("state.pt", lambda path: path.write_bytes(os.urandom(4096)), False),
    "a pickle as state.pt": ("state.pt", lambda path: path.write_bytes(b"cos\nsystem\n(S'true'\ntR."), False),
    "cut finished.json": ("finished.json", cut, False),
    "half a file beside state.pt": ("state.pt", lambda path: (path.parent / ".state.pt.1.partial").touch(), True),
    "state.pt from the future": ("state.pt", later, True),
}


def file_of_a_run(name: str, what: tuple[str, Callable, bool], folder: Path) -> Fault:
    """A run is killed, one of its files damaged; the next run goes on, or names the file, which is then deleted."""
    from repro.engine.runs import checkpoints_of

    file, damage, harmless = what
    run, said = tiny_run("grpo", 0, folder / "killed"), folder / "said.txt"
    process = Process(run, said)
    process.wait_for(fault_runs.STEPS // 2)
    if file == "state.pt":
        os.kill(process.pid, 9)
    process.end()
    damage(run.folder / file)
    status, told = Process(run, said).end(), said.read_text()
    if status == 0 and not harmless:
        told += "\na damaged file was taken for a whole one"
    if status != 0:
        named = file in told
        told = told if named else f"{told}\nTraceback (most recent call last): the file is not named"
        (run.folder / file).unlink()
        Process(run, said).end()
    same = bits(checkpoints_of(run).finished()) == alone("grpo", 0, folder)[0] and (status == 0) == harmless
    checkpoints_of(run).remove()
    return Fault("files", "a run's checkpoint", name, "its next start", status != 0, told).settled(Settled(same=same))


def folder_of_a_run(name: str, place: Callable, folder: Path) -> Fault:
    from repro.engine.runs import checkpoints_of

    run, said = tiny_run("grpo", 0, folder / "killed"), folder / "said.txt"
    checkpoints_of(run).remove()
    with place(run.folder):
        status, told = Process(run, said).end(), said.read_text()
    again = Process(run, said).end()
    same = status != 0 and again == 0 and bits(checkpoints_of(run).finished()) == alone("grpo", 0, folder)[0]
    checkpoints_of(run).remove()
    return Fault("files", "a run's checkpoint", name, "its start", status != 0, told).settled(Settled(same=same))
