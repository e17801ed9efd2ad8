"""What a disk does to files: cuts them, dates them wrongly, is full, is read-only."""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.faults import Unavailable

LATER = 4102444800.0  # 1 January 2100


def cut(path: Path, share: float = 0.5) -> None:
    """As a crash of the machine leaves a file that was not written whole."""
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def later(path: Path) -> None:
    """As written before the clock was put back."""
    for each in [path, *path.rglob("*")] if path.is_dir() else [path]:
        os.utime(each, (LATER, LATER))


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


PLACES = {"full disk": full, "read-only folder": read_only}
