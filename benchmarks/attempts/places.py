"""Odd surroundings: what stands in the place of a file, variables of the environment, folders, limits, bytes of a
command line. Each attempt is a process of its own from its start, in a project of links to the copied one."""

import contextlib
import functools
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.attempts.attempt import Attempt
from benchmarks.attempts.child import Ending

SECONDS, MEMORY = 60.0, 4 << 30  # on the clock; of addresses, since some of it has no end
SMALL = "a file, not a project"


def attempts() -> Iterator[Attempt]:
    from benchmarks.attempts.places_listed import PLACES

    for name, (line, how, right) in PLACES.items():
        yield Attempt("attacks", "surroundings", name, functools.partial(tried, line, how), right)


def tried(line: tuple[str | bytes, ...], how: Mapping[str, Any]) -> Ending:
    """`python -m line` where `how` says: `put`: {place: what stands there}; `set`: variables; `limit`: {resource: n};
    `run`: what starts it, in a shell, in place of python itself, with "$@" for it; `flags`: of python."""
    project, folder = Path.cwd(), Path(tempfile.mkdtemp(prefix="place-"))
    root = folder / "project"
    try:
        linked(project, root)
        for place, put in how.get("put", {}).items():
            put(cleared(root, place))
        command = [sys.executable, *how.get("flags", ()), "-m", *line]
        if "run" in how:
            command = ["/bin/sh", "-c", how["run"], "sh", *command]
        return _ended(command, root / how.get("at", ""), _environment(root, how.get("set", {})), how.get("limit", {}))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def linked(project: Path, root: Path) -> None:
    """The folder `root` with a link to each entry of a project."""
    root.mkdir()
    for entry in project.iterdir():
        (root / entry.name).symlink_to(entry)
    (root / SMALL).write_text("x")


def cleared(root: Path, place: str) -> Path:
    """A place in `root` where nothing stands, and a folder of its own around it, not the linked one."""
    path, so_far = root / place, root
    for part in Path(place).parts[:-1]:
        so_far /= part
        if so_far.is_symlink():
            of = so_far.resolve()
            so_far.unlink()
            so_far.mkdir()
            for entry in of.iterdir():
                (so_far / entry.name).symlink_to(entry)
        so_far.mkdir(exist_ok=True)
    if path.is_symlink() or path.is_file():
        path.unlink()
    return path


def _environment(root: Path, changed: Mapping[str, str | None]) -> dict[str, str]:
    given = {"REPRO_ROOT": str(root), "PYTHONPATH": str(root / "src"), **changed}
    whole = {**os.environ, **{name: str(value).replace("ROOT", str(root)) for name, value in given.items()}}
    return {name: value for name, value in whole.items() if changed.get(name, "") is not None}


def _ended(command: list, at: Path, environment: dict[str, str], limits: Mapping[int, int]) -> Ending:
    def begin() -> None:
        for what, most in {resource.RLIMIT_AS: MEMORY, **limits}.items():
            resource.setrlimit(what, (most, most))

    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            command,
            cwd=at,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=said,
            preexec_fn=begin,
            start_new_session=True,
        )
        try:
            status = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        texts = [file.seek(0) or file.read().decode(errors="replace") for file in (said, printed)]
    return Ending(status, *texts)


def holds(content: bytes) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(content)


def link(target: str) -> Callable[[Path], Any]:
    return lambda path: path.symlink_to(target)


def loop(path: Path) -> None:
    """A link to itself."""
    path.symlink_to(path.name)


def links_in_a_circle(path: Path) -> None:
    """A folder in which a link leads back to it."""
    path.mkdir()
    (path / "again").symlink_to(path, target_is_directory=True)
