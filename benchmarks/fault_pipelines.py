"""Faults around a pipeline's stage: its files cut, its folders full or read-only, two at once, a folder that moves, a
clock that is put back."""

import re
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from benchmarks.fault_disk import PLACES, cut, later
from benchmarks.fault_project import LIMIT_SECONDS, Command, Project, until
from benchmarks.fault_stages import MADE, made, repro
from benchmarks.faults import TRACE, Fault, Settled

RESULTS, REPORT = "results/train/grpo", "reports/arm-grpo.html"
RUN = ("python", "-m", "repro.pipeline", "run", "train", "grpo")
SHOW = ("python", "-m", "repro.pipeline", "run", "report", "grpo")
DVC = repro("train@grpo")
MANIFEST = repro("manifest")  # of seconds, where it does not matter which stage it is
MAKE = ("sh", "-c", f"python -m repro.pipeline check && exec {' '.join(MANIFEST)}")  # as `make repro` calls it
STAGE_OF = {SHOW: "report@grpo", MANIFEST: "manifest", MAKE: "manifest"}  # of the others: train@grpo
STAGES = ("manifest", "policy", "train@grpo", "report@grpo")
ONE = re.compile(
    r"^(repro\S*: |ERROR: |'\./dvc\.lock' (is invalid|validation failed)).*", re.MULTILINE
)  # our sentence, or DVC's
LOCKED = ".dvc/tmp/rwlock"
CLOCK = """\
\"""As if the machine's clock were put back by a day, ten seconds after a process has started.\"""
import time

_true, _began = time.time, time.monotonic()


def _put_back():
    return _true() - (86400.0 if time.monotonic() - _began > 10.0 else 0.0)


time.time, time.time_ns = _put_back, lambda: int(1e9 * _put_back())
"""


@dataclass(frozen=True)
class Damage:
    """To a file that `words` meet; `goes_on`: whether they make it anew by themselves, else they name it."""

    file: str
    does: Callable[[Path], object]
    words: tuple[str, ...]
    goes_on: bool


def beginning(text: str) -> Callable[[Path], object]:
    """A file of which only this was written."""
    return lambda path: path.write_text(text)


def halved(path: Path) -> None:
    lock = yaml.safe_load(path.read_text())
    stages = dict(list(lock["stages"].items())[::2])
    path.write_text(yaml.safe_dump(lock | {"stages": stages}, sort_keys=False))


def torn(path: Path) -> None:
    """Cut within a word; between two stages it would be a lock of fewer stages."""
    text = path.read_text()
    path.write_text(text[: text.index("path:", len(text) // 2) + len("pa")])


DVC_FILES = {
    "cut dvc.lock": Damage("dvc.lock", torn, MAKE, False),
    "cut dvc.lock, dvc": Damage("dvc.lock", torn, MANIFEST, False),
    "half of dvc.lock's stages": Damage("dvc.lock", halved, MAKE, True),
    "empty dvc.lock": Damage("dvc.lock", beginning(""), MAKE, False),
    "cut rwlock": Damage(LOCKED, beginning('{"a'), MAKE, False),
    "cut rwlock, dvc": Damage(LOCKED, beginning('{"a'), MANIFEST, False),
}
FILES = {
    "cut manifest": Damage("build/manifests/train-grpo.json", cut, DVC, True),
    "cut crew.json": Damage("build/crew.json", beginning('{"owner"'), DVC, True),
    "cut seconds.json": Damage("build/seconds.json", cut, DVC, True),
    "cut last_run": Damage("build/last_run/train-grpo.json", cut, RUN, True),
    "cut evaluations.parquet": Damage(f"{RESULTS}/evaluations.parquet", cut, SHOW, False),
    "cut rollouts.parquet": Damage("results/policy/rollouts.parquet", cut, RUN, False),
    "cut policy": Damage("results/policy/model/model.safetensors", cut, RUN, False),
    "all from the future": Damage("results", later, RUN, True),
}
FOLDERS = {RESULTS: RUN, "build/checkpoints": RUN, "reports": SHOW}  # where these words write


def cases(project: Project, known: dict) -> dict[tuple[str, str], Callable[[], Fault]]:
    """{(target, fault): what makes it}."""
    found = {("the pipeline", name): partial(damaged, name, damage) for name, damage in DVC_FILES.items()}
    for words in (DVC, RUN):
        name = f"two at once, {words[0]}"
        found["the pipeline", name] = partial(two_at_once, name, words)
    for name, case in OTHERS.items():
        found["the pipeline", name] = partial(case, name)
    for folder, words in FOLDERS.items():
        target = f"the pipeline's {folder.partition('/')[0]}"
        found |= {(target, name): partial(placed, name, target, folder, words) for name in PLACES}
    found |= {("the pipeline", name): partial(damaged, name, damage) for name, damage in FILES.items()}
    return {key: partial(case, project, known) for key, case in found.items()}


def _stage(words: tuple[str, ...]) -> str:
    return STAGE_OF.get(words, "train@grpo")


def _ready(project: Project, known: dict, words: tuple[str, ...] = RUN) -> None:
    """The project as it is before `words` in an undisturbed pipeline."""
    made(project, known, STAGES)
    if words == SHOW:
        project.remove(REPORT)
        if project.hashes(RESULTS) != known["train@grpo"][0]:
            project.done(*RUN)
    elif _stage(words) == "train@grpo":
        project.remove(RESULTS)


def _same(project: Project, known: dict, words: tuple[str, ...] = RUN) -> bool:
    """Whether what `words` make is there, with the undisturbed bits; a report tells of its seconds."""
    if words == SHOW:
        return (project.folder / REPORT).exists() and project.hashes(RESULTS) == known["train@grpo"][0]
    stage = _stage(words)
    return project.hashes(*MADE[stage]) == known[stage][0]


def ended(command: Command, name: str, target: str, at: str = "train@grpo") -> Fault:
    """What became of a command; one that failed without a sentence counts as one with a traceback."""
    status = command.wait()
    orphans, said = command.left(), command.said
    if status is None:
        said = f"{said}\ndid not end within {LIMIT_SECONDS:g} s"  # and all that is left of it are its orphans
    elif status != 0 and not ONE.search(said):
        said = f"{said}\n{TRACE}: no sentence"
    return Fault("files", target, name, at, status != 0, said, orphans)


def damaged(name: str, damage: Damage, project: Project, known: dict) -> Fault:
    """The file is damaged, and whole again once it was named."""
    _ready(project, known, damage.words)
    path, kept = project.folder / damage.file, project.folder / "kept"
    if whole := path.is_file():
        shutil.copy2(path, kept)
        path.unlink()  # it may be a link of DVC's
        shutil.copy2(kept, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    damage.does(path)
    fault = ended(project.command(*damage.words), name, "the pipeline", _stage(damage.words))
    if fault.ended:
        path.unlink()
        if whole:
            shutil.copy2(kept, path)
        project.command(*damage.words).wait()
    same = _same(project, known, damage.words) and fault.ended != damage.goes_on
    return fault.settled(Settled(same=same))


def placed(name: str, target: str, folder: str, words: tuple[str, ...], project: Project, known: dict) -> Fault:
    """A folder that takes nothing, or too little, and then takes all."""
    _ready(project, known, words)
    with PLACES[name](project.folder / folder):
        fault = ended(project.command(*words), name, target, _stage(words))
    project.command(*words).wait()
    return fault.settled(Settled(same=fault.ended and _same(project, known, words)))


def two_at_once(name: str, words: tuple[str, ...], project: Project, known: dict) -> Fault:
    """DVC's second is told to wait for the first; two of ours make the same files."""
    _ready(project, known)
    both = [project.command(*words) for _ in range(2)]
    ends = [ended(command, name, "the pipeline") for command in both]
    fault = max(ends, key=lambda end: end.ended)
    return fault.settled(Settled(same=not all(end.ended for end in ends) and _same(project, known)))


def from_another_folder(name: str, project: Project, known: dict) -> Fault:
    _ready(project, known)
    command = project.command(*RUN, cwd=project.folder / "notebooks" / "studies")
    fault = ended(command, name, "the pipeline")
    return fault.settled(Settled(same=not fault.ended and _same(project, known)))


def to_another_folder(name: str, project: Project, known: dict) -> Fault:
    """The project is moved between a kill and the next run."""
    _ready(project, known)
    killed = project.command(*RUN)
    until(lambda: bool(project.checkpoints()) or killed.process.poll() is not None, 600.0)
    for process in killed.of("all"):
        process.send_signal(signal.SIGKILL)
    killed.wait()
    killed.left()
    other = project.folder.with_name("a project, moved")
    shutil.move(project.folder, other)
    try:
        moved = Project(other)
        fault = ended(moved.command(*RUN), name, "the pipeline")
        same = not fault.ended and _same(moved, known)
    finally:
        shutil.move(other, project.folder)
    return fault.settled(Settled(same=same))


def clock_put_back(name: str, project: Project, known: dict) -> Fault:
    """As by a network's time that corrects a machine's."""
    _ready(project, known)
    customised = project.folder / "clock"
    customised.mkdir(exist_ok=True)
    (customised / "sitecustomize.py").write_text(CLOCK)
    command = project.command(*DVC, first=customised)
    time.sleep(1.0)
    fault = ended(command, name, "the pipeline")
    return fault.settled(Settled(same=not fault.ended and _same(project, known)))


OTHERS = {
    "started in another folder": from_another_folder,
    "moved to another folder": to_another_folder,
    "clock put back by a day": clock_put_back,
}
