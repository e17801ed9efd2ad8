"""What is told at the start of `dvc exp run --temp`, before a stage trains: its copy holds what git does."""

import subprocess
from pathlib import Path

from repro import paths
from repro.errors import Refused

COPIES = Path(".dvc", "tmp", "exps")  # where DVC makes them, below the project


class NotKept(Refused):
    """One sentence: why DVC would not keep what an experiment makes."""


def check_copy(root: Path | None = None) -> None:
    """In a copy of DVC's: NotKept if the project is a shallow clone, where DVC runs an experiment and then keeps none;
    prints the files of code that are not in git, and so not in the copy. Nothing elsewhere."""
    root = root or paths.ROOT
    origin = next((each for each in root.parents if root.is_relative_to(each / COPIES)), None)
    if origin is None:
        return
    if _git(origin, "rev-parse", "--is-shallow-repository") == ["true"]:
        raise NotKept(
            f"{origin} is a shallow clone, of which DVC keeps no experiment, whatever it trains: `git fetch "
            "--unshallow` there, then run it again"
        )
    if missing := _git(origin, "ls-files", "--others", "--exclude-standard", "src", "notebooks", "configs"):
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        print(f"not in git, and so not in this copy: {', '.join(missing[:3])}{more}: `git add` them if they are used")


def _git(folder: Path, *words: str) -> list[str]:
    """The lines that git prints; none where it fails."""
    done = subprocess.run(
        ["git", "-C", str(folder), "-c", "core.quotePath=false", *words], capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines() if done.returncode == 0 else []
