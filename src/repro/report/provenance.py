"""The provenance of a report's numbers: code, settings, seeds, packages, machine, time and a hash of the data shown."""

import hashlib
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from repro.machine import commit, hardware, packages
from repro.paths import ROOT


def collect(
    *,
    settings: Mapping,
    seeds: Sequence[int] = (),
    seconds: float | None = None,
    data: Iterable[Path] = (),
    command: str | None = None,
) -> dict:
    """Everything in a report's footer, as plain values in the order shown.

    `settings`: the notebook's parameters. `seconds`: wall time. `data`: the files (or folders) whose content the report
    shows; FileNotFoundError if one is missing. `command`: regenerates this report. Values that do not exist (no git, no
    GPU, no data) are None or left out.
    """
    data = list(data)
    return {
        "command": command,
        **commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "seconds": None if seconds is None else round(seconds, 1),
        "seeds": list(seeds),
        "data": hash_files(data) if data else None,
        "hardware": hardware(),
        "python": platform.python_version(),
        "packages": packages(),
        "settings": dict(settings),
    }


def hash_files(paths: Iterable[Path], root: Path = ROOT) -> str:
    """`sha256:` and 12 hex digits over the names below `root` and the contents of `paths`, in any order.

    A folder means all files in it. FileNotFoundError names a path that does not exist.
    """
    files = set()
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f"no data to hash at {path}: run the stage that writes it first")
        files |= {f for f in path.rglob("*") if f.is_file()} if path.is_dir() else {path}
    digest = hashlib.sha256()
    for name, file in sorted((os.path.relpath(f.resolve(), root).replace(os.sep, "/"), f) for f in files):
        with file.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        digest.update(f"{name}\0{content}\n".encode())
    return f"sha256:{digest.hexdigest()[:12]}"
