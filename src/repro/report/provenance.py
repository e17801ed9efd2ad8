"""The provenance of a report's numbers: code, settings, seeds, packages, machine, time and a hash of the data shown."""

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from repro.paths import ATLAS_DATA, ATLAS_POLICIES, BUILD, FIGURES, REPORTS, RESULTS, ROOT, TABLES, TIMINGS

PACKAGES = (
    "torch", "transformers", "tokenizers", "reasoning-gym", "numpy", "scipy", "pandas", "pyarrow", "rliable",
    "matplotlib", "seaborn", "dvc", "papermill", "nbconvert", "vllm", "verl", "ray", "flash-attn",
)  # fmt: skip

# Outputs of a run, and prose: changes there do not make the code differ from the commit.
NOT_CODE = (
    *(
        p.relative_to(ROOT).as_posix()
        for p in (RESULTS, TIMINGS, REPORTS, FIGURES, TABLES, BUILD, ATLAS_DATA, ATLAS_POLICIES)
    ),
    "dvc.lock",
    "metrics.json",
)


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


def commit(root: Path = ROOT) -> dict:
    """`commit`: the short hash of HEAD; `dirty`: whether code or settings differ from it. Both None without git."""
    head = _git(root, "rev-parse", "--short=12", "HEAD")
    if not head:
        return {"commit": None, "dirty": None}
    excluded = [f":(exclude){name}" for name in (*NOT_CODE, "*.md")]
    status = _git(root, "status", "--porcelain", "--", ".", *excluded)
    return {"commit": head, "dirty": None if status is None else bool(status)}


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


def packages(names: Iterable[str] = PACKAGES) -> dict[str, str]:
    """The versions of the packages in `names` that are installed, without importing them."""
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
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


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _gpus() -> list[str]:
    # torch is used only if already imported: a report that only draws figures should not wait for the import.
    if (torch := sys.modules.get("torch")) is not None:
        if not torch.cuda.is_available():
            return []
        return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    driver = Path("/proc/driver/nvidia/gpus")
    lines = [line for f in sorted(driver.glob("*/information")) for line in f.read_text().splitlines()]
    return [line.partition(":")[2].strip() for line in lines if line.startswith("Model")]


def _git(root: Path, *arguments: str) -> str | None:
    """Git's output, stripped; None without git, a repository or a commit."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
