"""Faults of the disk and around it: full, cut, read-only, dated in the future; two pipelines at once; other folders."""

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks import fault_runs
from benchmarks.fault_project import Project
from benchmarks.fault_runs import Process, alone, bits, tiny_run, warm_up
from benchmarks.fault_stages import made, repro
from benchmarks.faults import Fault, Settled, Unavailable

LATER = 4102444800.0  # 1 January 2100
RESULTS = "results/train/grpo"
RUN = ("python", "-m", "repro.pipeline", "run", "train", "grpo")


def kills(seed: int, folder: Path, done: int) -> Iterator[Callable[[], list[Fault]]]:
    """Each case once a call: those of a tiny run first, then those of a pipeline."""
    warm_up(folder)
    for name, damage in RUN_FILES.items():
        yield lambda name=name, damage=damage: [file_of_a_run(name, damage, folder)]
    for name, place in (("full disk", full), ("read-only folder", read_only)):
        yield lambda name=name, place=place: [folder_of_a_run(name, place, folder)]
    project, known = Project(folder.parent / "stage" / "a project"), {}  # as made by kind stage
    for name, (damage, words) in PIPELINE_FILES.items():
        yield lambda name=name, damage=damage, words=words: [file_of_a_pipeline(name, damage, words, project, known)]
    for name, place in (("full disk", full), ("read-only folder", read_only)):
        yield lambda name=name, place=place: [results_of_a_pipeline(name, place, project, known)]
    yield lambda: [from_another_folder(project, known)]
    yield lambda: [two_at_once(project, known)]


def cut(path: Path, share: float = 0.5) -> None:
    """As a crash of the machine leaves a file that was not written whole."""
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def later(path: Path) -> None:
    """As written before the clock was put back."""
    for each in [path, *path.rglob("*")] if path.is_dir() else [path]:
        os.utime(each, (LATER, LATER))


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


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """The folder on a file system of 20 kB; where none can be mounted, no file may be larger than 20 kB."""
    folder.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20k", "none", folder], capture_output=True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if mounted.returncode != 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        if mounted.returncode == 0:
            subprocess.run(["umount", folder], check=True)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder as a read-only file system; where none can be mounted, without the right to write."""
    folder.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", folder], capture_output=True)
    if mounted.returncode != 0:
        if os.geteuid() == 0:
            raise Unavailable("the superuser writes everywhere, and nothing can be mounted here")
        folder.chmod(0o555)
    try:
        yield
    finally:
        folder.chmod(0o755) if mounted.returncode != 0 else subprocess.run(["umount", folder], check=True)


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


PIPELINE_FILES = {  # name: (file, damage), the command that meets it
    "cut rollouts.parquet": (("results/policy/rollouts.parquet", cut), RUN),
    "cut policy": (("results/policy/model/model.safetensors", cut), RUN),
    "cut manifest": (("build/manifests/train-grpo.json", cut), RUN),
    "cut last_run": (("build/last_run/train-grpo.json", cut), RUN),
    "cut dvc.lock": (("dvc.lock", cut), RUN),
    "cut dvc.lock, dvc": (("dvc.lock", cut), repro("train@grpo")),
    "cut crew.json": (("build/crew.json", lambda path: path.write_text('{"owner"')), repro("train@grpo")),
    "cut rwlock": ((".dvc/tmp/rwlock", lambda path: path.write_text('{"a')), repro("train@grpo")),
    "all from the future": (("results", later), RUN),
}


def _ready(project: Project, known: dict) -> dict[str, str]:
    """The hashes of undisturbed results; the project as after all stages but train@grpo."""
    if not known:
        made(project, known)
    project.remove(RESULTS)
    return known["train@grpo"][0]


def file_of_a_pipeline(name: str, what: tuple[str, Callable], words: tuple, project: Project, known: dict) -> Fault:
    hashes, (file, damage) = _ready(project, known), what
    path, kept = project.folder / file, project.folder / "kept"
    whole = path.exists() and path.is_file()
    if whole:
        shutil.copy2(path, kept)
        path.unlink()  # it may be a link of DVC's
        shutil.copy2(kept, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    damage(path)
    command = project.command(*words)
    status, told, orphans = command.wait(), command.said, command.left()
    if whole:
        path.unlink(missing_ok=True)
        shutil.copy2(kept, path)
    elif path.is_file():
        path.unlink()
    last = project.command(*RUN)
    same = last.wait() == 0 and project.hashes(RESULTS) == hashes
    fault = Fault("files", "the pipeline", name, "train@grpo", status != 0, told, orphans)
    return fault.settled(Settled(same=same))


def results_of_a_pipeline(name: str, place: Callable, project: Project, known: dict) -> Fault:
    hashes = _ready(project, known)
    with place(project.folder / RESULTS):
        command = project.command(*RUN)
        status, told, orphans = command.wait(), command.said, command.left()
    same = status != 0 and project.command(*RUN).wait() == 0 and project.hashes(RESULTS) == hashes
    return Fault("files", "the pipeline's results", name, "train@grpo", status != 0, told, orphans).settled(
        Settled(same=same)
    )


def from_another_folder(project: Project, known: dict) -> Fault:
    hashes = _ready(project, known)
    command = project.command(*RUN, cwd=project.folder / "notebooks" / "studies")
    status, told, orphans = command.wait(), command.said, command.left()
    same = status == 0 and project.hashes(RESULTS) == hashes
    fault = Fault("files", "the pipeline", "started in another folder", "train@grpo", status != 0, told, orphans)
    return fault.settled(Settled(same=same))


def two_at_once(project: Project, known: dict) -> Fault:
    """The second is told to wait for the first."""
    hashes = _ready(project, known)
    both = [project.command(*repro("train@grpo")) for _ in range(2)]
    statuses = [command.wait() for command in both]
    told = "\n".join(command.said for command, status in zip(both, statuses, strict=True) if status != 0)
    orphans = sum(command.left() for command in both)
    same = project.done(*repro("train@grpo")) is not None and project.hashes(RESULTS) == hashes
    fault = Fault("files", "the pipeline", "two at once", "train@grpo", any(statuses), told, orphans)
    return fault.settled(Settled(same=same))
