"""Where and of what a number was made: the commit, the machine, the packages."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from repro.paths import BASE_POLICIES, BUILD, FIGURES, HERE, PANELS, REPORTS, RESULTS, ROOT, TABLES, TIMINGS

PACKAGES = (
    "torch", "transformers", "tokenizers", "reasoning-gym", "numpy", "scipy", "pandas", "pyarrow", "rliable",
    "matplotlib", "seaborn", "dvc", "papermill", "nbconvert", "vllm", "verl", "ray", "flash-attn",
)  # fmt: skip

# Outputs of a run, and prose: changes there do not make the code differ from the commit.
NOT_CODE = (
    *(
        os.path.relpath(path, ROOT).replace(os.sep, "/")
        for path in (RESULTS, TIMINGS, REPORTS, FIGURES, TABLES, BUILD, PANELS, BASE_POLICIES, HERE)
        if path.is_relative_to(ROOT)
    ),
    "dvc.lock",
    "metrics.json",
)


def commit(root: Path = ROOT) -> dict:
    """`commit`: the short hash of HEAD; `dirty`: whether code, settings or notebooks, as they are on disk (their filter
    may take a second for each), differ from it. Both None without git."""
    head = git(root, "rev-parse", "--short=12", "HEAD")
    if not head:
        return {"commit": None, "dirty": None}
    excluded = [f":(exclude){name}" for name in (*NOT_CODE, "*.md")]
    status = git(root, "-c", "filter.nbstripout.clean=", "status", "--porcelain", "--", ".", *excluded)
    return {"commit": head, "dirty": None if status is None else bool(status)}


def packages(names: Iterable[str] = PACKAGES) -> dict[str, str]:
    """The versions of the packages in `names` that are installed, without importing them."""
    versions = {}
    for name in names:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def hardware() -> dict:
    """`cpu` (model), `cores` this process may use, `memory` (GB, decimal), and `gpu` (names) if there is one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    machine = {"cpu": _cpu(), "cores": cores}
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        machine["memory"] = f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 1e9:.0f} GB"
    if gpus := _gpus():
        machine["gpu"] = ", ".join(gpus)
    return machine


def processor(device: str) -> str:
    """What computes on `device`: the kind of CPU, or of GPU; "no GPU" where there is none."""
    return hardware().get("gpu" if device == "cuda" else "cpu", "no GPU")


def slug(words: str) -> str:
    """`amd-epyc`: as a part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _gpus() -> list[str]:
    # torch is used only if already imported: a report that only draws figures should not wait for the import.
    if (torch := sys.modules.get("torch")) is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


def git(root: Path, *arguments: str) -> str | None:
    """Git's output, stripped; None without git, a repository or a commit."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
