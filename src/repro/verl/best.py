"""A run's checkpoints: the best, kept next to the last ones, which verl deletes as it writes new ones."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

from repro.files import write_json, write_text
from repro.settings import SettingsError
from repro.stored import Count, Share, read_stored

FOLDER = "best"  # next to verl's folder of checkpoints; holds one of them, and:
FILE = "best.json"
KEPT = {"source": str, "accuracy": Share, "step": Count}
STATE = "repro.json"  # next to each of verl's checkpoints
LATEST = "latest_checkpointed_iteration.txt"  # verl's, written when a checkpoint is whole
LAST = "data.pt"  # of a checkpoint's files, verl's last


def check_rhythm(config: Any) -> None:
    """SettingsError where `repro.best` names a data source, and the run evaluates where it writes no checkpoint: the
    best of them could not be kept. Without any checkpoint (-1) there is none to keep."""
    every, saved = config.trainer.test_freq, config.trainer.save_freq
    if config.repro.get("best") and every > 0 and saved > 0 and every % saved:
        raise SettingsError(
            f"trainer.test_freq={every} is no multiple of trainer.save_freq={saved}, so the best checkpoint could not "
            f"be kept: make it one, such as trainer.save_freq={every}, or keep none with repro.best=null"
        )


def known(run: Path) -> dict[str, float | str | int] | None:
    """{"source", "accuracy", "step"} of the checkpoint that is kept in the run's folder; None if there is none."""
    path = run / FOLDER / FILE
    remedy = f"delete {path.parent}, and the next best checkpoint is kept there"
    return read_stored(path, remedy, KEPT) if path.exists() else None


def keep_if_best(checkpoint: Path, run: Path, source: str, accuracy: float, step: int) -> bool:
    """Keep `checkpoint`, evaluated with `accuracy` on `source`, if none of the run's was better; of equals the first.

    Its files are linked, not copied, where the file system allows it.
    """
    before = known(run)
    if not checkpoint.is_dir() or (before and before["source"] == source and before["accuracy"] >= accuracy):
        return False
    folder = run / FOLDER
    kept, unfinished = folder / checkpoint.name, folder / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(checkpoint, unfinished, copy_function=_link)
    unfinished.rename(kept)
    write_json({"source": source, "accuracy": accuracy, "step": step}, folder / FILE)
    for other in folder.glob("global_step_*"):
        if other != kept:
            shutil.rmtree(other)
    return True


def mend_latest(folder: Path) -> None:
    """Name the last checkpoint in `folder` that is whole where the file that names it is empty: verl opens it once that
    checkpoint is written, and a kill or a full disk may come before the number. verl could not read it."""
    latest = folder / LATEST
    if not latest.exists() or latest.read_text().strip():
        return
    whole = [path.name for path in folder.glob("global_step_*") if (path / LAST).exists()]
    steps = [int(step[1]) for name in whole if (step := re.fullmatch(r"global_step_(\d+)", name))]
    write_text(str(max(steps)), latest) if steps else latest.unlink()


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
