"""A copy of this project, or of the parts of it that a test or a benchmark needs, in a folder of its own."""

import shutil
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")


def copy_project(folder: Path, names: Iterable[str]) -> Path:
    """The files and folders `names` of this project, copied into `folder`, which is returned."""
    for name in names:
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=LEFT)
        else:
            shutil.copy(source, target)
    return folder
